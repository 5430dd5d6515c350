//! The overview of several repositories, lists of repositories, and the files for packages.

use std::io::Write;
use std::process::{Command, Stdio};

use super::{CommandOutput, hf_meta, run};
use crate::hub::LocalHub;
use crate::support::{self, sharded};

const REPOS: [&str; 3] = ["gpt2", "openai/gpt-oss-20b", "bigscience/bloom"];

#[test]
fn several_repositories_have_one_row_each() {
    let hub = support::fixtures_hub();
    let table = run(&hub, &REPOS).data();
    let sorted = run(&hub, &[&REPOS[..], &["--sort", "parameters"]].concat()).data();
    let markdown = run(&hub, &[&REPOS[..], &["--format", "md", "--sort", "name"]].concat()).data();
    let plain = run(&hub, &[&REPOS[..], &["--format", "tsv"]].concat()).data();
    insta::assert_snapshot!([table, sorted, markdown, plain].join("\n"));
    let only = run(&hub, &["gpt2", "--sort", "bytes"]).data();
    assert!(only.starts_with("repository") && only.lines().count() == 2, "{only}");
    let json = run(&hub, &["gpt2", "--format", "json"]).data();
    assert!(json.starts_with(r#"{"source":"gpt2""#) && !json.contains("\"header\""), "{json}");
}

#[test]
fn a_failed_repository_has_a_row_with_the_error_code() {
    let hub = support::fixtures_hub();
    let args = ["org/none", "gpt2", "--format", "csv", "--sort", "bytes"];
    let CommandOutput { code, stdout, stderr } = run(&hub, &args);
    let lines: Vec<_> = stdout.lines().collect();
    assert!(lines[1].starts_with("gpt2,137022720,true,,F32,32,548090880,,"), "{stdout}");
    assert_eq!((lines[2], lines.len(), code), ("org/none,,,,,,,,,,,,,,,,repoNotFound", 3, 3));
    assert!(stderr.starts_with("error: org/none: repository"), "{stderr}");
    let table = run(&hub, &["org/none", "gpt2"]).stdout;
    assert!(!table.contains("org/none") && table.contains("137M"), "{table}");
}

/// Runs the command with this text on stdin.
fn with_stdin(hub: &LocalHub, args: &[&str], text: &str) -> CommandOutput {
    let mut command = hf_meta(hub.endpoint());
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    CommandOutput {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn repositories_are_read_from_lists() {
    let hub = LocalHub::start([sharded("org/a"), sharded("org/b")]).unwrap();
    let expected = run(&hub, &["org/a", "org/b"]).data();
    assert_eq!(with_stdin(&hub, &["-"], "org/a\n# no\n\norg/b\n").data(), expected);
    assert_eq!(with_stdin(&hub, &["org/a", "--from", "-"], "org/b").data(), expected);
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("models.csv");
    std::fs::write(&csv, "likes,id\n1,org/a\n2,\"org/b\"\n").unwrap();
    let csv = csv.to_str().unwrap();
    assert_eq!(run(&hub, &["--from", csv, "--column", "id"]).data(), expected);
    assert_eq!(run(&hub, &["--from", csv]).data(), expected);
    // Its own table is a list, too.
    let table = run(&hub, &["org/a", "org/b", "--format", "csv"]).data();
    std::fs::write(csv, table).unwrap();
    assert_eq!(run(&hub, &["--from", csv]).data(), expected);
    let [tsv, semicolons] = ["models.tsv", "semicolons.csv"].map(|name| folder.path().join(name));
    std::fs::write(&tsv, "likes\tid\n1\torg/a\n2\torg/b\n").unwrap();
    std::fs::write(&semicolons, "likes;id\n1;org/a\n2;org/b\n").unwrap();
    for list in [&tsv, &semicolons] {
        assert_eq!(run(&hub, &["--from", list.to_str().unwrap()]).data(), expected);
    }
    std::fs::write(csv, "likes,id\n1,org/a\n2,\"org/b\"\n").unwrap();
    assert_eq!(run(&hub, &["verify", "--from", csv, "--column", "id"]).code, 0);
    for (args, code, message) in [
        (&["--from", csv, "--column", "name"][..], 2, "has no column `name`, only `likes`, `id`"),
        (&["--from", "/nonexistent"], 4, "failed to read `/nonexistent`"),
        (&["-"], 2, "the list contains no repositories"),
        (&["--column", "id", "gpt2"], 2, "--from"),
        (&["gpt2", "-t", "--sort", "active"], 2, "can only be sorted by"),
        (&["gpt2", "--format", "json", "--sort", "name"], 2, "cannot be combined with JSON output"),
        (&["gpt2", "--format", "csv", "--sets"], 2, "`--sets` cannot be combined"),
        (&["gpt2", "--weights", "gguf"], 1, "`gpt2/*.gguf` not found"),
    ] {
        let ran = run(&hub, args);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn errors_of_lists_have_line_numbers() {
    let hub = LocalHub::start([sharded("org/a")]).unwrap();
    let list = "# models\norg/a\n\norg/a b\norg/none\n";
    let csv = "likes,id\n1,org/a\n2,\"org/a b\"\n3,org/none\n";
    let folder = tempfile::tempdir().unwrap();
    let [list_file, csv_file] = ["list.txt", "list.csv"].map(|name| folder.path().join(name));
    std::fs::write(&list_file, list).unwrap();
    std::fs::write(&csv_file, csv).unwrap();
    let [list_file, csv_file] = [&list_file, &csv_file].map(|file| file.to_str().unwrap());
    let errors = |lines: [u32; 2]| {
        [
            format!("error: line {}: `org/a b` is not a repository, URL or path: ", lines[0]),
            format!("error: line {}: org/none: repository `org/none` not found", lines[1]),
        ]
    };
    for (ran, expected) in [
        (with_stdin(&hub, &["-"], list), errors([4, 5])),
        (run(&hub, &["--from", list_file]), errors([4, 5])),
        (run(&hub, &["verify", "--from", list_file]), errors([4, 5])),
        (run(&hub, &["--from", csv_file]), errors([3, 4])),
        (with_stdin(&hub, &["--from", "-", "--column", "id"], csv), errors([3, 4])),
    ] {
        for error in expected {
            assert!(ran.stderr.contains(&error), "{error}\n{}", ran.stderr);
        }
    }
    let one = with_stdin(&hub, &["-"], "\norg/none\n").stderr;
    assert!(one.starts_with("error: line 2: repository `org/none` not found"), "{one}");
    let argument = run(&hub, &["org/none"]).stderr;
    assert!(!argument.contains("line "), "{argument}");
}

#[test]
fn tensors_are_sorted_and_trees_cut() {
    let hub = support::fixtures_hub();
    let tensors = run(&hub, &["gpt2", "-t", "--sort", "bytes"]).data();
    let bytes = tensors.lines().skip(1).map(|row| row.split('\t').nth(3).unwrap().parse::<u64>());
    let bytes: Vec<_> = bytes.map(Result::unwrap).collect();
    assert!(bytes.len() == 160 && bytes.is_sorted_by(|a, b| a >= b));
    let tree = |depth| run(&hub, &["bigscience/bloom", "--tree", "--depth", depth]).data();
    let [one, two, all] = ["1", "2", "9"].map(tree);
    assert!(
        one.contains("h.[0-69] [+840]") && one.contains("increase --depth to see more"),
        "{one}"
    );
    assert!(two.contains("├─ mlp [+") && two.lines().count() > one.lines().count(), "{two}");
    assert_eq!(all, run(&hub, &["bigscience/bloom", "--tree"]).data());
}

#[test]
fn colors_and_warnings_can_be_turned_off_and_on() {
    let hub = support::fixtures_hub();
    assert!(run(&hub, &["gpt2", "--color", "always"]).data().contains("\u{1b}["));
    assert!(!run(&hub, &["gpt2", "--color", "never"]).data().contains("\u{1b}["));
    assert!(!run(&hub, &["gpt2", "--color", "always", "--no-color"]).data().contains("\u{1b}["));
    let before =
        |color| run(&hub, &["--color", color, "verify", "gpt2"]).data().contains("\u{1b}[");
    assert!(before("always") && !before("never"));
    let both = ["--color", "always", "verify", "gpt2", "--color", "never"];
    assert!(!run(&hub, &both).data().contains("\u{1b}["));
    let odd = LocalHub::start([crate::hub::Repo::new("org/odd").file(
        "model.safetensors",
        support::file_with_header(r#"{"x":{"dtype":"Q9","shape":[2],"data_offsets":[0,4]}}"#, 4),
    )]);
    let odd = odd.unwrap();
    assert!(run(&odd, &["org/odd"]).stderr.contains("warning: "));
    let quiet = run(&odd, &["org/odd", "--quiet"]);
    assert_eq!((quiet.code, &*quiet.stderr), (0, ""));
    let failed = run(&odd, &["org/none", "-q"]);
    assert!(failed.stderr.starts_with("error: "), "{}", failed.stderr);
}

/// A scalar has bytes, but is not a parameter.
#[test]
fn bits_per_parameter_exclude_scalars() {
    let header = r#"{"x":{"dtype":"F32","shape":[8],"data_offsets":[0,32]},
                     "s":{"dtype":"F32","shape":[],"data_offsets":[32,36]}}"#;
    let repo = crate::hub::Repo::new("org/small");
    let repo = repo.file("model.safetensors", support::file_with_header(header, 36));
    let hub = LocalHub::start([repo]).unwrap();
    let text = run(&hub, &["org/small"]).data();
    assert!(text.contains("8 parameters, 32 bits each"), "{text}");
    let row = run(&hub, &["org/small", "--format", "csv"]).data();
    assert!(row.contains("org/small,8,true,,F32,32,36,"), "{row}");
}

#[test]
fn the_version_names_features_and_counting_rules() {
    let hub = LocalHub::start([]).unwrap();
    let version = run(&hub, &["--version"]).data();
    assert!(version.starts_with(concat!("hf-meta ", env!("CARGO_PKG_VERSION"), "\nfeatures: cli")));
    assert!(version.ends_with("\ncounting rules: hf-meta 1\n"), "{version}");
    let (_, commit) = version.split_once("\ncommit: ").unwrap();
    let commit = commit.lines().next().unwrap();
    let is_hash = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_clone = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.git").exists();
    assert_eq!(is_hash, is_clone || option_env!("HF_META_COMMIT").is_some(), "{version}");
    assert_eq!(run(&hub, &["-V"]).data(), concat!("hf-meta ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn completions_and_manual_pages_are_complete() {
    let hub = LocalHub::start([]).unwrap();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(&hub, &["completions", shell]).data();
        assert!(script.contains("HF_META_COMPLETE"), "{shell}");
    }
    let script = run(&hub, &["completions", "bash"]).data();
    let mut bash = Command::new("bash");
    bash.args(["-n", "/dev/stdin"]).stdin(Stdio::piped());
    let mut child = bash.spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let page = run(&hub, &["man"]).data();
    assert!(page.contains(".TH hf-meta 1") && page.contains("\\-\\-plan"), "{page}");
    let folder = tempfile::tempdir().unwrap();
    run(&hub, &["man", "-o", folder.path().to_str().unwrap()]).data();
    let pages: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|page| page.unwrap().file_name()).collect();
    assert!(!pages.iter().any(|page| page.to_string_lossy().contains("help")), "{pages:?}");
    for name in ["hf-meta.1", "hf-meta-verify.1", "hf-meta-diff.1", "hf-meta-cache-info.1"] {
        assert!(folder.path().join(name).is_file(), "{name}");
    }
    // Examples keep their columns.
    let written = std::fs::read_to_string(folder.path().join("hf-meta.1")).unwrap();
    assert!(written.contains(".SH EXTRA\n.nf\nExamples:\n") && page.contains("\n.nf\n"), "{page}");
}
