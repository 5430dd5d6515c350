//! The recipes of the page about continuous integration, and the hook of pre-commit.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::command::CommandOutput;
use crate::hub::{File, LocalHub, Repo};
use crate::support::{self, weights};

const PAGE: &str = include_str!("../../../src/docs/ci.md");
const HOOKS: &str = include_str!("../../../.pre-commit-hooks.yaml");

/// Runs a recipe in a folder, with the command of this build.
fn run(hub: &LocalHub, folder: &Path, recipe: &str, env: &[(&str, &str)]) -> CommandOutput {
    let binary = Path::new(env!("CARGO_BIN_EXE_hf-meta")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command
        .args(["-o", "pipefail", "-c", recipe])
        .current_dir(folder)
        .env_clear()
        .env("PATH", path);
    CommandOutput::new(command.env("HF_ENDPOINT", hub.endpoint()).envs(env.iter().copied()))
}

/// Returns the recipe after a heading.
fn recipe(heading: &str) -> &'static str {
    assert_eq!(PAGE.matches("```bash\n").count(), 3, "a new recipe needs a test");
    let (_, rest) = PAGE.split_once(&format!("\n# {heading}\n")).unwrap();
    let (_, recipe) = rest.split_once("```bash\n").unwrap();
    recipe.split("```").next().unwrap()
}

/// Writes a model with a broken component, or a sound one, to a folder.
fn write_model(folder: &Path, is_sound: bool) {
    std::fs::create_dir_all(folder.join("vae")).unwrap();
    let header = r#"{"x":{"dtype":"BOOL","shape":[0],"data_offsets":[0,0]}}"#;
    std::fs::write(folder.join("model.safetensors"), support::file_start(header)).unwrap();
    let vae: &[u8] =
        if is_sound { &support::file_start(header) } else { b"version https://git-lfs" };
    std::fs::write(folder.join("vae/diffusion_pytorch_model.safetensors"), vae).unwrap();
}

#[test]
fn a_folder_is_checked_before_the_upload() {
    let (folder, hub) = (tempfile::tempdir().unwrap(), LocalHub::start([]).unwrap());
    for (is_sound, code) in [(true, 0), (false, 1)] {
        write_model(&folder.path().join("my model"), is_sound);
        let ran = run(&hub, folder.path(), recipe("Before the upload"), &[("MODEL", "my model")]);
        assert_eq!(ran.code, code, "{}{}", ran.stdout, ran.stderr);
        let file = "error: `vae/diffusion_pytorch_model.safetensors` is not a valid";
        assert_eq!(ran.stdout.contains(file), !is_sound, "{}", ran.stdout);
        // The hook gets the names of the files in the commit.
        let hook = format!("{} 'my model/vae/diffusion_pytorch_model.safetensors'", field("entry"));
        let ran = run(&hub, folder.path(), &hook, &[]);
        assert_eq!(ran.code, code, "{}{}", ran.stdout, ran.stderr);
    }
    assert!(hub.log().is_empty());
}

/// Returns a field of the hook.
fn field(name: &str) -> &'static str {
    let line = HOOKS.lines().find_map(|line| line.strip_prefix(&format!("  {name}: ")));
    line.unwrap()
}

#[test]
fn the_hook_runs_for_weights_and_their_configurations_only() {
    let is_match = |name: &str| {
        let mut grep = Command::new("bash");
        grep.args(["-c", r#"grep -qE -- "$1" <<<"$2""#, "-", field("files"), name]);
        grep.status().unwrap().success()
    };
    for name in [
        "model.safetensors",
        "a/b.gguf",
        "pytorch_model.bin",
        "x.pt",
        "x.pth",
        "x.ckpt",
        "config.json",
        "a/config.json",
        "adapter_config.json",
        "model_index.json",
        "x/modules.json",
        "model.safetensors.index.json",
        "model.safetensors.index.fp16.json",
    ] {
        assert!(is_match(name), "{name}");
    }
    for name in [
        "tsconfig.json",
        "src/app.config.json.ts",
        "my-modules.json",
        "index.json",
        "x.safetensors.txt",
        "xpt",
    ] {
        assert!(!is_match(name), "{name}");
    }
}

#[test]
fn a_pull_request_is_checked() {
    let (good, bad) = ("1".repeat(40), "2".repeat(40));
    let repo = Repo::new("org/name")
        .commit(&bad)
        .file("vae/model.safetensors", File::from_bytes("<html>"))
        .file("model.safetensors", weights(&["x"]))
        .commit(&good)
        .file("model.safetensors", weights(&["x"]))
        .revision("refs/pr/4", &bad);
    let (folder, hub) = (tempfile::tempdir().unwrap(), LocalHub::start([repo]).unwrap());
    let env = [("REPO", "org/name"), ("NUMBER", "4")];
    let ran = run(&hub, folder.path(), recipe("On a pull request"), &env);
    assert_eq!((ran.code, &*ran.stdout), (1, ""), "{}", ran.stderr);
    let sarif = std::fs::read_to_string(folder.path().join("hf-meta.sarif")).unwrap();
    let sarif: Value = serde_json::from_str(&sarif).unwrap();
    let [result] = &sarif["runs"][0]["results"].as_array().unwrap()[..] else { panic!("{sarif}") };
    let uri = &result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
    let file = "/org/name/blob/refs%2Fpr%2F4/vae/model.safetensors";
    assert_eq!(uri, &format!("{}{file}", hub.endpoint()));
}

#[test]
fn an_organization_is_checked_every_night() {
    for program in ["curl", "jq"] {
        if Command::new(program).arg("--version").output().is_err() {
            return support::program_is_missing(program, "the nightly recipe");
        }
    }
    let good = || Repo::new("org/good").file("model.safetensors", weights(&["x"]));
    let bad = good_and_bad();
    let other = Repo::new("other/bad").file("model.safetensors", File::from_bytes("<html>"));
    for (repos, code, printed) in [
        (vec![good(), other.clone()], 0, ""),
        (vec![good(), bad, Repo::new("org/empty")], 1, "org/bad\norg/empty\n"),
    ] {
        let (folder, hub) = (tempfile::tempdir().unwrap(), LocalHub::start(repos).unwrap());
        let recipe = recipe("Every night, for an organization");
        let ran = run(&hub, folder.path(), recipe, &[("ORGANIZATION", "org")]);
        let mut lines: Vec<_> = ran.stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!((ran.code, lines), (code, printed.lines().collect()), "{}", ran.stderr);
    }
}

/// Returns a repository whose main set is sound, and whose checkpoint is not.
fn good_and_bad() -> Repo {
    Repo::new("org/bad")
        .file("model.safetensors", weights(&["x"]))
        .file("checkpoint-5/model.safetensors", File::from_bytes("<html>"))
}
