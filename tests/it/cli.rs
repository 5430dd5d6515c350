//! The command as people and scripts use it: what is on stdout, what on stderr, and the exit status.

use assert_cmd::Command;
use assert_cmd::assert::Assert;
use serde_json::Value;

use crate::hub::{File, LocalHub, Repo};
use crate::support::{self, head};

/// The command in an environment of its own.
fn hf_meta(endpoint: &str) -> Command {
    let mut command = Command::cargo_bin("hf-meta").unwrap();
    command.env_clear().env("HF_ENDPOINT", endpoint).env("HF_HOME", "/nonexistent");
    command
}

fn run(hub: &LocalHub, args: &[&str]) -> Assert {
    hf_meta(hub.endpoint()).args(args).assert()
}

fn stdout(assert: &Assert) -> &str {
    std::str::from_utf8(&assert.get_output().stdout).unwrap()
}

fn stderr(assert: &Assert) -> &str {
    std::str::from_utf8(&assert.get_output().stderr).unwrap()
}

/// Without the duration, which is no two times the same.
fn without_seconds(text: &str) -> String {
    let lines = text.lines().map(|line| match line.rsplit_once(", ") {
        Some((line, seconds)) if seconds.ends_with(" s") => format!("{line}, … s"),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn tables() {
    let hub = support::documented();
    let assert = run(&hub, &["bigscience/bloom", "EleutherAI/gpt-neox-20b"]).code(0).stderr("");
    insta::assert_snapshot!(without_seconds(stdout(&assert)));
}

#[test]
fn tensors_through_a_filter() {
    let hub = support::documented();
    let assert = run(&hub, &["gpt2", "--tensors", "--filter", "h.11.attn.*"]).code(0).stderr("");
    insta::assert_snapshot!(stdout(&assert));
    let all = run(&hub, &["bigscience/bloom", "--tensors"]).code(0).stderr("");
    assert_eq!(stdout(&all).lines().count(), 1 + 845);
}

#[test]
fn metadata_of_index_and_files() {
    let header =
        r#"{"__metadata__":{"format":"pt","modelspec.title":"A \u001b[31mred\u001b[0m title"}}"#;
    let index = r#"{"metadata":{"total_size":2,"note":"n"},"weight_map":{"x":"a.safetensors"}}"#;
    let repo = Repo::new("org/spec")
        .file("model.safetensors.index.json", File::whole(index))
        .file("a.safetensors", support::weights(&["x"]))
        .file("spec.safetensors", File::whole(head(header)));
    let hub = LocalHub::start([repo]).unwrap();
    let index = run(&hub, &["org/spec", "--metadata"]).code(0);
    assert_eq!(stdout(&index), "org/spec\nnote = n\ntotal_size = 2\n");
    assert!(stderr(&index).contains("declares 2 bytes of tensors, but they have 1"));
    let file = run(&hub, &["org/spec", "--path", "spec.safetensors", "--metadata"]).code(0);
    assert_eq!(
        stdout(&file),
        "org/spec/spec.safetensors\nformat = pt\nmodelspec.title = A \\u{1b}[31mred\\u{1b}[0m title\n"
    );
}

/// Of every map of names only the first entry, so that the shape can be read.
fn abridged(mut value: Value) -> Value {
    let shorten = |map: &mut Value| {
        let map = map.as_object_mut().unwrap();
        let first = map.keys().find(|key| *key != "__metadata__").unwrap().clone();
        map.retain(|key, _| *key == first || key == "__metadata__");
    };
    if value["sharded"] == true {
        shorten(&mut value["index"]["weight_map"]);
        shorten(&mut value["headers"]);
        value["headers"].as_object_mut().unwrap().values_mut().for_each(shorten);
        value["filepaths"].as_array_mut().unwrap().truncate(2);
    } else {
        shorten(&mut value["header"]);
    }
    value["cost"]["seconds"] = Value::from("some");
    value
}

#[test]
fn json_has_the_shape_of_huggingface_js() {
    let hub = support::documented();
    for repo in ["bigscience/bloom", "gpt2"] {
        let assert = run(&hub, &[repo, "--json"]).code(0).stderr("");
        let json: Value = serde_json::from_str(stdout(&assert)).unwrap();
        insta::assert_json_snapshot!(repo.replace('/', "_"), abridged(json));
    }
}

#[test]
fn json_is_one_document_a_line() {
    let hub = support::documented();
    let assert = run(&hub, &["gpt2", "roberta-base", "--json", "--summary"]).code(0);
    let documents: Vec<Value> =
        stdout(&assert).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(documents.len(), 2);
    assert_eq!(documents[0]["parameterTotal"], 137_022_720);
    assert_eq!(documents[1]["parameterCount"]["I64"], 514);
    assert!(documents.iter().all(|json| json.get("header").is_none()));
}

#[test]
fn exit_statuses() {
    let hub = LocalHub::builder()
        .repo(support::sharded("org/good"))
        .repo(Repo::new("org/empty"))
        .repo(Repo::new("org/bad").file("model.safetensors", File::whole("")))
        .repo(support::sharded("org/gated").gated())
        .start()
        .unwrap();
    let cases: [(&[&str], i32); 14] = [
        (&["org/good"], 0),
        (&["org/empty"], 1),
        (&["org/bad"], 1),
        (&["org/good", "--path", "c.safetensors"], 1),
        (&["./nowhere/model.safetensors"], 1),
        (&["org/none"], 3),
        (&["org/gated"], 3),
        (&["org/good", "--revision", "nope"], 3),
        (&["a/b/c"], 2),
        (&["./nowhere", "--revision", "main"], 2),
        (&["org/good", "--endpoint", "nope"], 2),
        (&["org/good", "--filter", "*"], 2),
        (&["org/good", "--json", "--tensors"], 2),
        (&[], 2),
    ];
    for (args, code) in cases {
        let assert = run(&hub, args).code(code);
        assert_eq!(stdout(&assert).is_empty(), code != 0, "{args:?}");
        assert_eq!(stderr(&assert).is_empty(), code == 0, "{args:?}");
    }
    let mixed = run(&hub, &["org/empty", "org/good", "org/none"]).code(3);
    assert!(stdout(&mixed).contains("org/good"), "the others are read all the same");
}

#[test]
fn errors_say_what_to_do_next() {
    let hub = LocalHub::builder()
        .repo(support::sharded("org/gated").gated())
        .repo(Repo::new("src").file("x.bin", File::whole("")))
        .start()
        .unwrap();
    let endpoint = hub.endpoint();
    let cases: [(&[&str], &str, String); 6] = [
        (
            &["org/gated"],
            "error: access to `org/gated`",
            format!("accept its conditions at {endpoint}/org/gated,"),
        ),
        (
            &["org/gated", "--token", "x"],
            "error: the token is not valid",
            format!("{endpoint}/settings/tokens"),
        ),
        (&["org/none"], "error: repository `org/none` not found", "check the spelling".to_owned()),
        (&["src"], "error: no safetensors weights in `src`", "write ./src".to_owned()),
        (&["a b"], "error: `a b` is not the name of a repo", "`hf-meta --help`".to_owned()),
        (
            &["org/x", "--endpoint", "http://127.0.0.1:1"],
            "error: failed to fetch",
            "is http://127.0.0.1:1 reachable".to_owned(),
        ),
    ];
    for (args, message, help) in cases {
        let assert = run(&hub, args).stdout("");
        assert!(stderr(&assert).starts_with(message), "{}", stderr(&assert));
        assert!(
            stderr(&assert).contains(&format!("  help: {help}")) || stderr(&assert).contains(&help)
        );
    }
}

#[test]
fn what_the_environment_says() {
    let hub = LocalHub::builder().repo(support::sharded("org/gated").gated()).token("hf_good");
    let hub = hub.start().unwrap();
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("token"), "hf_good\n").unwrap();
    std::fs::write(home.path().join("other"), "hf_good").unwrap();
    let other = home.path().join("other");
    let cases: [(&[(&str, &str)], i32); 7] = [
        (&[], 3),
        (&[("HF_TOKEN", "hf_good")], 0),
        (&[("HF_TOKEN", " hf_good\n")], 0),
        (&[("HF_HOME", home.path().to_str().unwrap())], 0),
        (&[("HF_TOKEN_PATH", other.to_str().unwrap())], 0),
        (&[("HF_TOKEN", "hf_good"), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")], 3),
        (&[("HF_TOKEN", "hf_wrong"), ("HF_HOME", home.path().to_str().unwrap())], 3),
    ];
    for (variables, code) in cases {
        let mut command = hf_meta(hub.endpoint());
        command.envs(variables.iter().copied()).arg("org/gated").assert().code(code);
    }
    let flag = ["org/gated", "--token", "hf_good"];
    hf_meta(hub.endpoint()).env("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1").args(flag).assert().code(0);
}

/// A proxy of the environment is asked in place of the Hub, unless the host is excepted.
#[test]
fn proxies_of_the_environment() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let nobody = "http://127.0.0.1:1";
    let proxied = || {
        let mut command = hf_meta(hub.endpoint());
        command.env("http_proxy", nobody).arg("org/model");
        command
    };
    proxied().assert().code(3);
    proxied().env("no_proxy", "127.0.0.1").assert().code(0);
}

#[test]
fn text_from_the_network_cannot_speak_to_the_terminal() {
    let header =
        r#"{"\u001b]0;owned\u0007\u202e":{"dtype":"\u001b[2J","shape":[],"data_offsets":[0,0]}}"#;
    let repo = Repo::new("org/evil").file("model.safetensors", File::whole(head(header)));
    let hub = LocalHub::start([repo]).unwrap();
    for view in ["--tensors", "--metadata"] {
        let assert = run(&hub, &["org/evil", view]).code(0);
        assert!(!stdout(&assert).contains(['\u{1b}', '\u{7}', '\u{202e}']), "{view}");
    }
    let counts = run(&hub, &["org/evil"]).code(0);
    assert!(stdout(&counts).contains("\\u{1b}[2J"));
    let json = run(&hub, &["org/evil", "--json"]).code(0);
    let json: Value = serde_json::from_str(stdout(&json)).unwrap();
    assert!(json["header"].get("\u{1b}]0;owned\u{7}\u{202e}").is_some(), "JSON stays exact");
}

#[test]
fn colours_are_for_terminals() {
    let hub = support::documented();
    assert!(!stdout(&run(&hub, &["gpt2"])).contains('\u{1b}'));
    let forced = hf_meta(hub.endpoint()).env("CLICOLOR_FORCE", "1").arg("gpt2").assert();
    assert!(stdout(&forced).contains('\u{1b}'));
    let variables = [("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")];
    let none = hf_meta(hub.endpoint()).envs(variables).arg("gpt2").assert();
    assert!(!stdout(&none).contains('\u{1b}'));
}

#[test]
fn whoever_reads_may_stop() {
    let hub = support::documented();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("hf-meta"))
        .args(["bigscience/bloom", "--tensors", "--endpoint", hub.endpoint()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()),
        (Some(0), "")
    );
}
