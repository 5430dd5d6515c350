//! Subcommands that send no requests: `hf-meta cache`, which manages the local header cache, `hf-meta man`, which
//! generates manual pages, and `hf-meta completions`.
//!
//! The script that `completions` prints makes the shell call the command itself for the candidates, so that all shells
//! complete the same words. Scripts with all candidates do not complete subcommands of a command with a hyphen in its
//! name in bash (<https://github.com/clap-rs/clap/issues/6421>).

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use clap_complete::Shell;
use clap_complete::env::Shells;
use clap_mangen::Man;
use hf_meta::{DiskCache, DiskUsage};
use hf_meta_count::results::text::{bytes, counted, escape};

use super::connection::hiding;
use super::exit::{CommandResult, ExitStatus, failed_to};
use super::output::{Page, print_bytes};
use super::table::with_backslashes;

/// Inspect or clear the local header cache
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Print the location and size of the cache
    Info,
    /// Delete all cached headers; they are fetched again when needed
    Clear,
}

/// Print the manual page, or write the pages of all subcommands to a folder
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Output folder for the pages, such as ~/.local/share/man/man1
    #[arg(long, short, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

/// Prints the location and the size of the cache, or clears it.
pub(crate) fn cache(command: &CacheCommand) -> CommandResult {
    let text = match DiskCache::from_env() {
        None => "no disk cache: it is disabled by HF_META_CACHE, or there is no home directory"
            .to_owned(),
        Some(cache) => manage(&cache, command)?,
    };
    Page::print(|page| writeln!(page.out, "{text}"))?;
    Ok(ExitStatus::Success)
}

fn manage(cache: &DiskCache, command: &CacheCommand) -> io::Result<String> {
    let folder = escape(&cache.folder().display().to_string());
    let size =
        |usage: DiskUsage| format!("{} in {}", bytes(usage.bytes), counted(usage.entries, "file"));
    Ok(match command {
        CacheCommand::Info => {
            let limit = bytes(DiskCache::DEFAULT_LIMIT);
            let usage = cache.usage().map_err(failed_to(format!("read the cache `{folder}`")))?;
            format!("{folder}\n{} (limit: {limit})", size(usage))
        }
        CacheCommand::Clear => {
            let usage = cache.clear().map_err(failed_to(format!("clear the cache `{folder}`")))?;
            format!("deleted {} from {folder}", size(usage))
        }
    })
}

/// Prints the manual page of the command, or writes all pages.
pub(crate) fn man(args: &ManArgs, definition: clap::Command) -> CommandResult {
    let command = without_help(definition);
    if let Some(folder) = &args.output {
        let mut command = command.disable_help_subcommand(true);
        command.build();
        let write = std::fs::create_dir_all(folder).and_then(|()| write_pages(command, folder));
        write.map_err(failed_to(format!("write to `{}`", folder.display())))?;
    } else {
        print_bytes(page(&Man::new(command))?.as_bytes())?;
    }
    Ok(ExitStatus::Success)
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

/// The variable with which a shell requests candidates. Its value is the name of the shell.
const SHELL_VARIABLE: &str = "HF_META_COMPLETE";

/// An addition to the script for zsh. zsh reads a file of its function path at the first completion, so the file
/// itself has to complete.
const ZSH_FIRST_COMPLETION: &str =
    "[[ $funcstack[1] == _hf-meta ]] && _clap_dynamic_completer_hf_meta\n";

/// Two lines of the script for zsh, which is to show subcommands before folders.
const ZSH_GROUPS: [&str; 2] = [
    "[[ -n $dirs ]] && _describe -V 'values' dirs -S '/' -r '/'\n",
    "[[ -n $other ]] && _describe -V 'values' other\n",
];

/// The characters that bash interprets in a word.
const BASH_SPECIAL: &str = " \t'\"\\$`&;|<>()*?[]{}!#";

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

/// Prints the script for a shell.
pub(crate) fn completions(args: &CompletionsArgs) -> CommandResult {
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(&args.shell.to_string()) {
        shell.write_registration(SHELL_VARIABLE, "hf-meta", "hf-meta", "hf-meta", &mut script)?;
    }
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if args.shell == Shell::Zsh {
        let [folders, others] = ZSH_GROUPS;
        script = script.replace(folders, "").replace(others, &[others, folders].concat());
        script += ZSH_FIRST_COMPLETION;
    }
    print_bytes(script.as_bytes())?;
    Ok(ExitStatus::Success)
}

/// Prints the candidates for the last word if a shell requests them. Returns `None` if it does not.
pub(crate) fn answer_shell(
    arguments: &[OsString],
    definition: fn() -> clap::Command,
) -> Option<io::Result<()>> {
    let name = env::var(SHELL_VARIABLE).ok()?;
    let shells = Shells::builtins();
    let shell = shells.completer(&name)?;
    let words = arguments.iter().skip_while(|argument| *argument != "--").skip(1).cloned();
    let is_bash = name == "bash";
    let words: Vec<_> = words.map(|word| if is_bash { unescaped(word) } else { word }).collect();
    let index = env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|index| index.parse().ok());
    let word = words.get(index.unwrap_or(words.len().saturating_sub(1)));
    // Offers options only for words that begin with `-`, or if nothing else fits.
    let is_option = word.is_some_and(|word| word.as_encoded_bytes().starts_with(b"-"));
    let mut command = definition();
    if !is_option {
        command = hiding(command, |arg| !arg.is_positional());
    }
    let (mut candidates, folder) = (Vec::new(), env::current_dir().ok());
    let written = shell.write_complete(&mut command, words, folder.as_deref(), &mut candidates);
    if is_bash {
        let text = String::from_utf8_lossy(&candidates);
        candidates = with_backslashes(&text, BASH_SPECIAL).into_bytes();
    }
    Some(written.and_then(|()| io::stdout().write_all(&candidates)))
}

/// Removes the backslashes that bash passes on.
fn unescaped(word: OsString) -> OsString {
    let Some(text) = word.to_str() else { return word };
    text.split("\\\\").map(|part| part.replace('\\', "")).collect::<Vec<_>>().join("\\").into()
}
