//! Completions in the shells that people use.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support;

/// Words after `hf-meta`, and the completion of the last one; `None` if it has none.
const CASES: [(&str, Option<&str>); 10] = [
    ("verify --stri", Some("--strict")),
    ("verify cens", None),
    ("gpt2 --sort par", Some("parameters")),
    ("gpt2 --sort mod", None),
    ("--weights gg", Some("gguf")),
    ("diff ./mod", Some("./model.safetensors")),
    ("mod", Some("model.safetensors")),
    ("completions fi", Some("fish")),
    ("cache cl", Some("clear")),
    ("verify --base mod", Some("model.safetensors")),
];

/// Completes one line in an interactive shell, and prints the candidates.
const BASH: &str = r#"
source <(hf-meta completions bash)
COMP_WORDS=($LINE) COMP_LINE=$LINE COMP_POINT=${#LINE} COMP_TYPE=9
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
[[ $(complete -p hf-meta) =~ -F\ ([^ ]+) ]]
${BASH_REMATCH[1]} hf-meta "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// The completions of a shell are read from its function path, at the first completion of a terminal.
const ZSH: &str = r#"
zmodload zsh/zpty
hf-meta completions zsh >$FUNCTIONS/_hf-meta
zpty terminal zsh -f -i
zpty -w terminal "fpath=($FUNCTIONS \$fpath); autoload -U compinit; compinit -u -D"
zpty -w terminal 'show() { zle -I; print -r -- "LINE<$BUFFER>" }; zle -N show; bindkey "^Xs" show'
zpty -w terminal 'print READ""Y'
zpty -r terminal out '*READY*'
zpty -n -w terminal "$LINE"$'\t\C-xs'
zpty -r terminal out '*LINE<*>*'
print -r -- "${${out##*LINE<}%%>*}"
"#;

const FISH: &str = "hf-meta completions fish | source; complete -C $LINE";

/// Runs a script in a folder with one file. Returns `None` if the shell is missing.
fn run(shell: &[&str], script: &str, line: &str) -> Option<String> {
    let [folder, functions] = [(); 2].map(|()| TempDir::new().unwrap());
    fs::write(folder.path().join("model.safetensors"), "").unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_hf-meta")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    // A shell that never completes must not stop the tests.
    let mut command = Command::new("timeout");
    command.arg("60").args(shell).arg(script).current_dir(&folder).stdin(Stdio::null());
    command.env("PATH", format!("{}:{path}", programs.display())).env("TERM", "xterm");
    command.env("LINE", line).env("FUNCTIONS", functions.path()).env("HOME", folder.path());
    let output = command.output().unwrap();
    let is_missing = matches!(output.status.code(), Some(126 | 127));
    (!is_missing).then(|| String::from_utf8(output.stdout).unwrap())
}

fn check(shell: &[&str], script: &str) {
    for (words, expected) in CASES {
        let Some(completed) = run(shell, script, &format!("hf-meta {words}")) else {
            return support::program_is_missing(shell[0], "completions");
        };
        let word = words.rsplit(' ').next().unwrap();
        let last = completed.split_whitespace().rfind(|text| text.starts_with(word));
        // A terminal shows an incomplete word as it was typed.
        let last = last.filter(|last| *last != word);
        assert_eq!(last, expected, "{}: {words}: {completed}", shell[0]);
    }
}

/// Completes the last word of a line in a folder with the folder `my model`.
fn candidates(shell: &str, words: &[&str]) -> Vec<String> {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("my model")).unwrap();
    fs::write(folder.path().join("my model/x.safetensors"), "").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hf-meta"));
    command.env("HF_META_COMPLETE", shell).env("_CLAP_IFS", "\n").current_dir(&folder);
    command.env("_CLAP_COMPLETE_INDEX", (words.len()).to_string());
    let output = command.args(["--", "hf-meta"]).args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_gets_escaped_paths() {
    assert_eq!(candidates("bash", &["my"]), [r"my\ model/"]);
    assert_eq!(candidates("bash", &[r"my\ model/"]), [r"my\ model/x.safetensors"]);
    assert_eq!(candidates("zsh", &["my"]), ["my model/"]);
}

#[test]
fn options_are_candidates_only_after_a_hyphen() {
    for shell in ["bash", "zsh", "fish"] {
        let [words, options] = ["", "-"].map(|word| candidates(shell, &[word]));
        assert!(
            words[0].starts_with("badge") && !words.iter().any(|word| word.starts_with('-')),
            "{words:?}"
        );
        assert!(options.iter().all(|word| word.starts_with('-')), "{options:?}");
    }
    let script = Command::new(env!("CARGO_BIN_EXE_hf-meta")).args(["completions", "zsh"]).output();
    let script = String::from_utf8(script.unwrap().stdout).unwrap();
    let [others, folders] =
        ["'values' other", "'values' dirs"].map(|group| script.find(group).unwrap());
    assert!(others < folders, "{script}");
}

#[test]
fn bash_completes_subcommands_values_and_files() {
    check(&["bash", "--norc", "-ic"], BASH);
}

#[test]
fn zsh_completes_subcommands_values_and_files() {
    check(&["zsh", "-fc"], ZSH);
}

#[test]
fn fish_completes_subcommands_values_and_files() {
    // The first column is the candidate, the second one its description.
    check(&["fish", "--no-config", "-c"], &format!("{FISH} | string replace -r '\\t.*' ''"));
}
