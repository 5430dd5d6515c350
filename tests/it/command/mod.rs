//! The command as people and scripts use it: stdout, stderr and the exit status.
//!
//! Add a test here if it is about what the command prints, or about arguments, files and variables that it reads. Tests
//! call [`run`] with the local Hub. Output that people read is a snapshot.

#[cfg(target_os = "linux")]
mod action;
mod completions;
mod engine;
mod environment;
mod errors;
mod fit;
mod inputs;
mod json;
mod metadata;
mod metadata_edits;
mod overview;
mod recipes;
mod schema;
mod terminal;
mod views;

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::hub::LocalHub;
use crate::support;

/// The command with an empty environment and no cache.
pub(crate) fn hf_meta(endpoint: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hf-meta"));
    command.env_clear().env("HF_ENDPOINT", endpoint).env("HF_HOME", "/nonexistent");
    command.env("HF_META_CACHE", "off");
    command.stdin(Stdio::null());
    command
}

/// The result of a command that has ended.
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandOutput {
    pub(crate) fn new(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        Self {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Returns stdout of a command that succeeded and printed nothing to stderr.
    pub(crate) fn data(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""));
        self.stdout
    }
}

pub(crate) fn run(hub: &LocalHub, args: &[&str]) -> CommandOutput {
    CommandOutput::new(hf_meta(hub.endpoint()).args(args))
}

#[test]
fn every_subcommand_has_help() {
    let hub = LocalHub::start([]).unwrap();
    let calls: [&[&str]; 7] = [
        &["-h"],
        &["--help"],
        &["verify", "-h"],
        &["diff", "-h"],
        &["metadata", "set", "-h"],
        &["cache", "-h"],
        &["serve", "-h"],
    ];
    let texts =
        calls.map(|args| format!("$ hf-meta {}\n{}", args.join(" "), run(&hub, args).data()));
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn badges_are_written_to_stdout_or_a_file() {
    let hub = support::fixtures_hub();
    let svg = run(&hub, &["badge", "bigscience/bloom", "--style", "flat-square"]).data();
    assert!(svg.starts_with("<svg") && svg.contains("<title>params: 176B</title>"), "{svg}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("badge.json");
    let asked = ["badge", "bigscience/bloom", "--json", "--show", "dtype", "--color", "green"];
    let written =
        CommandOutput::new(hf_meta(hub.endpoint()).args(asked).arg("--output").arg(&file)).data();
    assert_eq!(written, "");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let expected = serde_json::json!({
        "schemaVersion": 1, "label": "BF16", "message": "176B", "color": "67ac09"
    });
    assert_eq!(json, expected);
    let folder = folder.path().to_str().unwrap();
    let several = ["badge", "gpt2", "bigscience/bloom", "--output"];
    assert_eq!(run(&hub, &[&several[..], &["-"]].concat()).data().lines().count(), 2);
    assert_eq!(run(&hub, &[&several[..], &[folder]].concat()).data(), "");
    for name in ["gpt2.svg", "bigscience--bloom.svg"] {
        let svg = std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
        assert!(svg.starts_with("<svg"), "{name}");
    }
    let one_file = run(&hub, &[&several[..], &[&format!("{folder}/gpt2.svg")]].concat());
    assert!(
        one_file.code == 2 && one_file.stderr.contains("must be a folder"),
        "{}",
        one_file.stderr
    );
    let (new, local) = (format!("{folder}/new"), "../local.safetensors");
    std::fs::create_dir(format!("{folder}/below")).unwrap();
    std::fs::write(format!("{folder}/local.safetensors"), support::file_start("{}")).unwrap();
    let mut command = hf_meta(hub.endpoint());
    command.current_dir(format!("{folder}/below")).args(["badge", "gpt2", local, "-o", &new]);
    assert_eq!(CommandOutput::new(&mut command).data(), "");
    let mut names: Vec<_> =
        std::fs::read_dir(new).unwrap().map(|file| file.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["gpt2.svg", "local.safetensors.svg"]);
    let cases: [(&[&str], i32, &str); 7] = [
        (&["badge", "org/none"], 3, "not found"),
        (&["badge", "gpt2", "roberta-base", "-o", "two.svg"], 2, "must be a folder"),
        (&["badge", "gpt2", "-o", "x.png"], 2, "the name of `--output` must end with .svg"),
        (&["badge", "gpt2", "--json", "-o", "x.svg"], 2, "end with .json"),
        (&["badge", "gpt2", "--style", "round"], 2, "for-the-badge"),
        (&["badge", "gpt2", "--color", "#12"], 2, "is not a color"),
        (&["badge", "gpt2", "--output", "/dev/null/x.svg"], 4, "failed to write `/dev/null"),
    ];
    for (args, code, text) in cases {
        let ran = run(&hub, args);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{args:?}");
        assert!(ran.stderr.contains(text), "{args:?}: {}", ran.stderr);
    }
}

/// A limit on the size of files has the same effect as a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_no_empty_badge() {
    let hub = support::fixtures_hub();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.svg");
    let line = format!("trap '' XFSZ; ulimit -f 0; exec \"$0\" badge gpt2 -o {}", file.display());
    let mut command = Command::new("bash");
    command.args(["-c", &line, env!("CARGO_BIN_EXE_hf-meta")]).env("HF_ENDPOINT", hub.endpoint());
    let ran = CommandOutput::new(command.env("HF_META_CACHE", "off"));
    assert!(ran.code == 4 && ran.stderr.contains("failed to write `"), "{}", ran.stderr);
    assert!(!file.exists());
}
