//! `hf-meta completions` and `hf-meta man`: generate files for shells and packages.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use clap_mangen::Man;

use super::exit::{ExitStatus, failed_to};

/// Print shell completions
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hf-meta completions bash > ~/.local/share/bash-completion/completions/hf-meta
  hf-meta completions zsh > ~/.zfunc/_hf-meta
  hf-meta completions fish > ~/.config/fish/completions/hf-meta.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell to generate completions for
    shell: Shell,
}

/// Print the manual page, or write the pages of all subcommands to a folder
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Output folder for the pages, such as ~/.local/share/man/man1
    #[arg(long, short, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

/// Prints the completions of the command.
pub(crate) fn completions(
    args: &CompletionsArgs,
    mut command: clap::Command,
) -> io::Result<ExitStatus> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "hf-meta", &mut script);
    print(&script)
}

/// Prints the manual page of the command, or writes all pages.
pub(crate) fn man(args: &ManArgs, command: clap::Command) -> io::Result<ExitStatus> {
    let command = without_help(command);
    if let Some(folder) = &args.output {
        let mut command = command.disable_help_subcommand(true);
        command.build();
        let write = std::fs::create_dir_all(folder).and_then(|()| write_pages(command, folder));
        write.map_err(failed_to(format!("write to `{}`", folder.display())))?;
        return Ok(ExitStatus::Success);
    }
    print(page(&Man::new(command))?.as_bytes())
}

/// Writes the manual pages of a command and its subcommands.
fn write_pages(command: clap::Command, folder: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_pages(subcommand.clone(), folder)?;
    }
    let man = Man::new(command);
    std::fs::write(folder.join(man.get_filename()), page(&man)?)
}

/// Renders a page whose examples keep their line breaks and alignment. `clap_mangen` joins and justifies them.
fn page(man: &Man) -> io::Result<String> {
    let mut page = Vec::new();
    man.render(&mut page)?;
    Ok(String::from_utf8_lossy(&page).replace("\n.SH EXTRA\n", "\n.SH EXTRA\n.nf\n"))
}

/// Hides the `help` subcommands, each of which would add one page per subcommand.
fn without_help(command: clap::Command) -> clap::Command {
    command.mut_subcommands(|command| match command.get_name() {
        "help" => command.hide(true),
        _ => without_help(command),
    })
}

/// Prints bytes for other programs, unmodified.
fn print(bytes: &[u8]) -> io::Result<ExitStatus> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()?;
    Ok(ExitStatus::Success)
}
