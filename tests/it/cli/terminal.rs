//! Output to terminals and pipes.

use std::process::Stdio;

use serde_json::Value;

use super::{CommandOutput, hf_meta, run};
use crate::hub::{LocalHub, Repo};
use crate::support;

#[test]
fn text_from_the_network_is_escaped() {
    let header =
        r#"{"\u001b]0;owned\u0007\u202e":{"dtype":"\u001b[2J","shape":[],"data_offsets":[0,1]}}"#;
    let repo =
        Repo::new("org/evil").file("model.safetensors", support::file_with_header(header, 1));
    let other = Repo::new("org/other").file("model.safetensors", support::weights(&["x"]));
    let hub = LocalHub::start([repo, other]).unwrap();
    for view in ["--tensors", "--metadata", "--tree"] {
        let CommandOutput { stdout, stderr, .. } = run(&hub, &["org/evil", view]);
        assert!(!stderr.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{view}");
        assert!(!stdout.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{view}");
    }
    for args in [&["verify", "org/evil"][..], &["diff", "org/evil", "org/other"]] {
        let CommandOutput { stdout, .. } = run(&hub, args);
        assert!(!stdout.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{args:?}");
        assert!(stdout.contains("\\u{1b}"), "{args:?}");
    }
    assert!(run(&hub, &["org/evil"]).stdout.contains("\\u{1b}[2J"));
    let json: Value = serde_json::from_str(&run(&hub, &["org/evil", "--json"]).stdout).unwrap();
    assert!(json["header"].get("\u{1b}]0;owned\u{7}\u{202e}").is_some(), "JSON stays exact");
}

#[test]
fn only_terminals_get_colors() {
    let hub = support::fixtures_hub();
    let has_color = |variables: &[(&str, &str)]| {
        let mut command = hf_meta(hub.endpoint());
        CommandOutput::new(command.envs(variables.iter().copied()).arg("gpt2"))
            .data()
            .contains('\u{1b}')
    };
    assert!(!has_color(&[]));
    assert!(has_color(&[("CLICOLOR_FORCE", "1")]));
    assert!(!has_color(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let hub = support::fixtures_hub();
    let mut command = hf_meta(hub.endpoint());
    command.args(["bigscience/bloom", "--tensors"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()),
        (Some(0), "")
    );
}
