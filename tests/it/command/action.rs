//! The GitHub Action, by its script. Needs bash and jq.

use std::path::Path;
use std::process::Command;

use crate::command::CommandOutput;
use crate::hub::{File, LocalHub, Repo};
use crate::support::{self, sharded};

/// Runs the script of the action with these inputs. Returns its output, and the file of the findings.
fn act(hub: &LocalHub, sources: &str, options: [&str; 2]) -> (CommandOutput, String) {
    let (ran, sarif, _) = act_with_summary(hub, sources, options);
    (ran, sarif)
}

/// Runs the script of the action. Also returns the summary on the page of the run.
fn act_with_summary(
    hub: &LocalHub,
    sources: &str,
    [strict, all]: [&str; 2],
) -> (CommandOutput, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_hf-meta")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.github/actions/verify/verify.sh");
    let mut command = Command::new("bash");
    command.arg(script).current_dir(folder.path()).env_clear().env("PATH", path);
    command.env("HF_ENDPOINT", hub.endpoint()).env("GITHUB_OUTPUT", folder.path().join("output"));
    command.env("GITHUB_STEP_SUMMARY", folder.path().join("summary.md"));
    command
        .env("SOURCES", sources)
        .env("STRICT", strict)
        .env("ALL", all)
        .env("SARIF_FILE", "found.sarif");
    let ran = CommandOutput::new(command.env("INSTALL", "false").env("HF_TOKEN", ""));
    let output = std::fs::read_to_string(folder.path().join("output"));
    assert_eq!(output.unwrap(), "sarif-file=found.sarif\n");
    let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
    (ran, read("found.sarif"), read("summary.md"))
}

/// Nobody owns the name of the package in a registry, so the action builds its own checkout.
#[test]
fn the_action_builds_its_own_checkout() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.github/actions/verify");
    let action = std::fs::read_to_string(format!("{folder}/action.yml")).unwrap();
    let install = action.lines().find(|line| line.contains("default: cargo install ")).unwrap();
    let (_, path) = install.split_once("$GITHUB_ACTION_PATH").unwrap();
    let manifest = format!("{folder}{}/Cargo.toml", path.trim_end_matches('"'));
    let manifest = std::fs::read_to_string(manifest).unwrap();
    assert!(manifest.contains("[[bin]]\nname = \"hf-meta\"\n"), "{manifest}");
}

#[test]
fn findings_are_annotations_and_decide_the_status() {
    let has_jq = Command::new("jq").arg("--version").output().is_ok();
    if !has_jq {
        support::program_is_missing("jq", "the GitHub Action");
        return;
    }
    let odd =
        support::file_with_header(r#" {"x":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}"#, 4);
    let odd = Repo::new("org/odd").file("model.safetensors", odd);
    let hub = LocalHub::start([sharded("org/good"), odd]).unwrap();
    let (good, sarif) = act(&hub, "org/good", ["false"; 2]);
    assert_eq!((good.code, &*good.stdout), (0, ""), "{}", good.stderr);
    assert!(sarif.contains(r#""results":[]"#), "{sarif}");
    let (odd, sarif) = act(&hub, "\norg/good\norg/odd\n", ["false"; 2]);
    assert_eq!(odd.code, 0, "{}", odd.stderr);
    let line = odd.stdout.lines().next().unwrap();
    assert!(line.starts_with("::warning file=http%3A//127.0.0.1"), "{line}");
    assert!(line.contains("org/odd/") && line.contains(",title=leadingSpace::"), "{line}");
    assert!(sarif.contains(r#""ruleId":"leadingSpace""#), "{sarif}");
    assert_eq!(act(&hub, "org/odd", ["true", "false"]).0.code, 1);
    // A path with a space and a comma is escaped once: as the command of a log, not also as a URI.
    let work_tree = tempfile::tempdir().unwrap();
    let folder = work_tree.path().join("a,ö");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("model b.safetensors"), "<html>").unwrap();
    let (local, _) = act(&hub, &format!("{}/", folder.display()), ["false"; 2]);
    let file = format!("::error file={}/a%2Cö/model b.safetensors,", work_tree.path().display());
    assert!(local.stdout.starts_with(&file), "{}", local.stdout);
    // On separate lines, sources may contain spaces.
    let spaced = work_tree.path().join("my models");
    std::fs::create_dir(&spaced).unwrap();
    std::fs::write(spaced.join("model.safetensors"), "<html>").unwrap();
    let (lines, _) = act(&hub, &format!("org/good\n  {}/\n", spaced.display()), ["false"; 2]);
    let file = format!("::error file={}/model.safetensors,", spaced.display());
    assert_eq!(lines.code, 1, "{}", lines.stderr);
    assert!(lines.stdout.starts_with(&file), "{}", lines.stdout);
    let (missing, _) = act(&hub, "org/none", ["false"; 2]);
    assert_eq!(missing.code, 3, "{}", missing.stderr);
    assert!(missing.stdout.starts_with("::error file="), "{}", missing.stdout);
    let repo = Repo::new("org/run").file("model.safetensors", support::weights(&["x"]));
    let repo = repo.file("checkpoint-5/model.safetensors", File::from_bytes("<html>"));
    let hub = LocalHub::start([repo]).unwrap();
    for (all, code) in [("false", 0), ("true", 1)] {
        let (ran, sarif) = act(&hub, "org/run@main", ["false", all]);
        assert_eq!(ran.code, code, "{}", ran.stderr);
        assert_eq!(sarif.contains("/blob/main/checkpoint-5/model.safetensors"), code == 1);
    }
}

/// The page of a run shows a table, in which texts of files are no markup.
#[test]
fn the_summary_lists_the_findings() {
    if Command::new("jq").arg("--version").output().is_err() {
        support::program_is_missing("jq", "the GitHub Action");
        return;
    }
    let header = r#" {"x":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}"#;
    let odd = Repo::new("org/odd").file("a|<b>.safetensors", support::file_with_header(header, 4));
    let hub = LocalHub::start([sharded("org/good"), odd]).unwrap();
    let (.., good) = act_with_summary(&hub, "org/good", ["false"; 2]);
    assert_eq!(good, "### hf-meta verify: passed\n\nNo findings in 1 source(s).\n");
    let (.., odd) = act_with_summary(&hub, "org/good org/odd", ["true", "false"]);
    let lines: Vec<_> = odd.lines().collect();
    assert_eq!((lines.len(), lines[0]), (5, "### hf-meta verify: failed"), "{odd}");
    assert!(lines[4].starts_with("| warning | leadingSpace | http://127.0.0.1:"), "{odd}");
    assert!(lines[4].contains(r"of \`a\|\<b\>.safetensors\` begins"), "{odd}");
    let (.., missing) = act_with_summary(&hub, "org/none", ["false"; 2]);
    assert!(
        missing.starts_with("### hf-meta verify: not everything could be checked\n"),
        "{missing}"
    );
    assert!(missing.contains("| error | repoNotFound |"), "{missing}");
}
