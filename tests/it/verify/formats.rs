//! The formats of reports for other programs: SARIF and JUnit.
//!
//! Add a test here if a program reads the report.

use serde_json::Value;

use super::hub_with_defects;
use crate::command::run;
use crate::hub::{File, LocalHub, Repo};
use crate::support;

/// Every finding is a result of SARIF, at the address of its file, and so is a repository that cannot be read.
#[test]
fn the_command_prints_sarif() {
    let hub = hub_with_defects();
    let ran = run(&hub, &["verify", "org/planted", "org/none", "--sarif"]);
    assert_eq!(ran.code, 3);
    let log: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let results = log["runs"][0]["results"].as_array().unwrap();
    let json = run(&hub, &["verify", "org/planted", "--json"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    let findings = json["findings"].as_array().unwrap();
    assert_eq!(results.len(), findings.len() + 1);
    for (result, finding) in results.iter().zip(findings) {
        assert_eq!(result["ruleId"], finding["kind"]);
        assert_eq!(result["level"], finding["severity"]);
        assert_eq!(result["message"]["text"], finding["message"]);
    }
    let uri = |result: &Value| {
        let location = &result["locations"][0]["physicalLocation"]["artifactLocation"];
        location["uri"].as_str().unwrap().to_owned()
    };
    let files = format!("{}/org/planted/blob/main/", hub.endpoint());
    assert!(results.iter().any(|result| uri(result).starts_with(&files)), "{}", ran.stdout);
    let last = results.last().unwrap();
    assert_eq!((&last["ruleId"], &last["level"]), (&"repoNotFound".into(), &"error".into()));
    assert_eq!(uri(last), format!("{}/org/none/tree/main", hub.endpoint()));
    // Code hosts show only results with a region.
    let region =
        |result: &Value| result["locations"][0]["physicalLocation"]["region"]["startLine"].as_u64();
    assert!(results.iter().all(|result| region(result) == Some(1)), "{}", ran.stdout);
    let invocation = |log: &Value| log["runs"][0]["invocations"][0].clone();
    assert_eq!(invocation(&log)["executionSuccessful"], false);
    let notes = invocation(&log)["toolExecutionNotifications"].as_array().unwrap().clone();
    let [note, failure] = &notes[..] else { panic!("{}", ran.stdout) };
    assert_eq!(note["properties"]["configCheck"], json["sets"][0]["configCheck"]);
    assert_eq!(
        (&failure["level"], &failure["descriptor"]["id"]),
        (&"error".into(), &"repoNotFound".into())
    );
    assert_eq!(failure["message"], last["message"]);
    let read = run(&hub, &["verify", "org/planted", "--sarif"]).stdout;
    let read: Value = serde_json::from_str(&read).unwrap();
    assert_eq!(invocation(&read)["executionSuccessful"], true, "findings leave the run successful");
    let missing = run(&hub, &["verify", "./does-not-exist", "--sarif"]);
    let missing: Value = serde_json::from_str(&missing.stdout).unwrap();
    assert_eq!(invocation(&missing)["executionSuccessful"], false, "nothing was read");
    let text = notes[0]["message"]["text"].as_str().unwrap();
    assert!(text.starts_with("config.json was not compared: "), "{text}");
    let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    assert!(results.iter().all(|result| rules.iter().any(|rule| rule["id"] == result["ruleId"])));
}

/// CI systems show a test case per weight set. Text of files is escaped.
#[test]
fn the_command_prints_junit() {
    let header = r#" {"x":{"dtype":"Q8","shape":[4],"data_offsets":[0,4]}}"#;
    let odd = Repo::new("org/odd").file("a<&>\".safetensors", support::file_with_header(header, 4));
    let good = Repo::new("org/good").file("model.safetensors", support::weights(&["x"]));
    let hub = LocalHub::start([odd, good]).unwrap();
    let ran = run(&hub, &["verify", "--junit", "org/good", "org/odd", "org/none"]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert_eq!(lines[1], r#"<testsuites name="hf-meta verify" tests="3" failures="1" errors="1">"#);
    for line in [
        r#"<testsuite name="org/good" tests="1" failures="0" errors="0">"#,
        r#"<testcase classname="org/odd" name="a&lt;&amp;&gt;&quot;.safetensors">"#,
        r#"<failure type="unknownDtype" message="dtype `Q8` is unknown, so the sizes of its tensors (1) were not checked"/>"#,
        r"<system-out>the header of `a&lt;&amp;&gt;&quot;.safetensors` begins with whitespace instead of `{`; some readers reject it",
        r#"<testsuite name="org/none" tests="1" failures="0" errors="1">"#,
    ] {
        assert!(lines.contains(&line), "{line}\n{}", ran.stdout);
    }
    assert!(ran.stdout.contains(r#"<error type="repoNotFound" message="repository `org/none`"#));
    // The findings of a component are in its test case.
    let pipeline = Repo::new("org/pipe")
        .file(
            "model_index.json",
            File::from_bytes(
                r#"{"unet":["diffusers","UNet2DModel"],"vae":["diffusers","AutoencoderKL"]}"#,
            ),
        )
        .file("unet/diffusion_pytorch_model.safetensors", support::weights(&["x"]))
        .file("unet/config.json", File::from_bytes("{}"))
        .file("vae/diffusion_pytorch_model.safetensors", support::weights(&["x"]));
    let other = LocalHub::start([pipeline]).unwrap();
    let found = run(&other, &["verify", "--junit", "org/pipe"]).stdout;
    let (unet, vae) = found.split_once("name=\"vae/").unwrap();
    assert!(!unet.contains("vae/config.json"), "{found}");
    assert!(vae.contains("`vae/config.json` is missing"), "{found}");
    let strict = run(&hub, &["verify", "--junit", "--strict", "org/odd"]).stdout;
    assert!(strict.contains(r#"<failure type="leadingSpace""#), "{strict}");
    assert!(strict.contains(r#" tests="1" failures="1" errors="0""#), "{strict}");
}
