//! `hf-meta completions`: completions in shells. The script that is printed makes the shell call the command itself
//! for the candidates, so that all shells complete the same words. Scripts with all candidates do not complete
//! subcommands of a command with a hyphen in its name in bash (<https://github.com/clap-rs/clap/issues/6421>).

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};

use clap_complete::Shell;
use clap_complete::env::Shells;

use super::connection::hiding;
use super::exit::{CommandError, ExitStatus};
use super::output::print_bytes;
use super::table::with_backslashes;

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
pub(crate) fn run(args: &CompletionsArgs) -> Result<ExitStatus, CommandError> {
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
    definition: impl FnOnce() -> clap::Command,
    arguments: &[OsString],
) -> Option<io::Result<()>> {
    let name = env::var(SHELL_VARIABLE).ok()?;
    let shells = Shells::builtins();
    let shell = shells.completer(&name)?;
    let words = arguments.iter().skip_while(|argument| *argument != "--").skip(1).cloned();
    let is_bash = name == "bash";
    let words: Vec<_> = words.map(|word| if is_bash { unescaped(word) } else { word }).collect();
    let index = env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|index| index.parse().ok());
    let word = words.get(index.unwrap_or(words.len().saturating_sub(1)));
    // Options are candidates for words that begin with `-`, or if there are no others.
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
