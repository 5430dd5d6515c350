//! Findings in a folder of the disk, which point at its files.
//!
//! Add a test here if the address of a finding decides, or which files of a folder are read.

use serde_json::{Value, json};

use crate::support;

/// Returns the results of a local folder, and checks that their files exist and that their rules are described.
fn located_findings(work_tree: &std::path::Path, args: &[&str]) -> Vec<(String, String)> {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hf-meta"));
    command.env_clear().current_dir(work_tree).args(["verify", "--sarif"]).args(args);
    let log: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let run = &log["runs"][0];
    for rule in run["tool"]["driver"]["rules"].as_array().unwrap() {
        let description = rule["shortDescription"]["text"].as_str().unwrap();
        assert!(description.ends_with('.') && description.trim() == description, "{rule}");
        let page = rule["helpUri"].as_str().unwrap().rsplit('/').next().unwrap();
        let (page, heading) = page.split_once('#').unwrap_or((page, ""));
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/docs");
        let page = std::fs::read_to_string(format!("{folder}/{page}")).unwrap();
        assert!(page.to_lowercase().contains(&format!("# {heading}")), "{rule}");
    }
    let results = run["results"].as_array().unwrap().iter().map(|result| {
        let location = &result["locations"][0]["physicalLocation"]["artifactLocation"];
        let path = location["description"]["text"].as_str().unwrap();
        assert!(work_tree.join(path).is_file(), "{result}");
        let [kind, uri] = [&result["ruleId"], &location["uri"]].map(|text| text.as_str().unwrap());
        (kind.to_owned(), uri.to_owned())
    });
    results.collect()
}

#[test]
fn findings_point_at_files_that_exist() {
    let work_tree = tempfile::tempdir().unwrap();
    let folder = work_tree.path().join("a ö%");
    std::fs::create_dir_all(folder.join("shards")).unwrap();
    let file = |name: &str, dtype: &str, shape: &[u64], bytes: usize| {
        let header =
            json!({ name: { "dtype": dtype, "shape": shape, "data_offsets": [0, bytes] } });
        [support::file_start(&header.to_string()), vec![0; bytes]].concat()
    };
    let config = json!({ "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4 });
    let index = json!({ "weight_map": { "x": "model-00001-of-00002.safetensors",
        "y": "model-00002-of-00002.safetensors", "z": "model-00001-of-00002.safetensors" } });
    for (name, content) in [
        ("model.safetensors", file("model.embed_tokens.weight", "BF16", &[64, 64], 64 * 64 * 2)),
        ("config.json", config.to_string().into_bytes()),
        ("shards/model.safetensors.index.json", index.to_string().into_bytes()),
        ("shards/model-00001-of-00002.safetensors", file("x", "U8", &[1], 1)),
    ] {
        std::fs::write(folder.join(name), content).unwrap();
    }
    let found = located_findings(work_tree.path(), &["./a ö%"]);
    let weights = |kind: &str| (kind.to_owned(), "a%20%C3%B6%25/model.safetensors".to_owned());
    assert!(found.contains(&weights("shapeMismatch")), "{found:?}");
    for args in [&["./a ö%", "--path", "shards"][..], &["./a ö%/shards"]] {
        let found = located_findings(work_tree.path(), args);
        for (kind, file) in [
            ("missingShard", "model.safetensors.index.json"),
            ("missingTensor", "model-00001-of-00002.safetensors"),
        ] {
            let location = (kind.to_owned(), format!("a%20%C3%B6%25/shards/{file}"));
            assert!(found.contains(&location), "{found:?}");
        }
    }
}

/// A work tree contains packages and path files of Python, whose names end with `.pth` and `.bin` like weights.
#[test]
fn python_environments_are_not_checked() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    let header = r#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    write("model/model.safetensors", &[support::file_start(header), vec![0]].concat());
    write("env/pyvenv.cfg", b"home = /usr/bin");
    write("env/lib/site-packages/torch/data.bin", b"not weights");
    write("lib/site-packages/distutils-precedence.pth", b"import os; var = 'X'\n");
    write("lib/site-packages/easy.pth", b"./package\n/opt/other\n");
    let check = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hf-meta"));
        command.env_clear().current_dir(folder.path()).arg("verify").args(args);
        crate::command::CommandOutput::new(&mut command)
    };
    let ran = check(&["--all", "./"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stdout.contains("1 file and 1 tensor of model/model.safetensors"),
        "{}",
        ran.stdout
    );
    // A pointer, a page and damaged weights are checked, unlike path files. A chosen environment is searched.
    for (name, content) in [
        ("a.pth", &b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"[..]),
        ("b.pth", b"<!DOCTYPE html>"),
        ("c.pth", b"\x80\x02\x00"),
    ] {
        write(&format!("broken/{name}"), content);
        assert_eq!(check(&["--all", "./"]).code, 1, "{name}");
        std::fs::remove_file(folder.path().join("broken").join(name)).unwrap();
    }
    assert_eq!(check(&["--all", "./env"]).code, 1);
}

/// Annotations of a code host need paths of the work tree.
#[test]
fn local_files_have_relative_addresses() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.safetensors"), [0; 4]).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hf-meta"));
    command.env_clear().current_dir(folder.path()).args(["verify", "./", "--sarif"]);
    let log: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    let result = &log["runs"][0]["results"][0];
    let location = &result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
    assert_eq!(
        (location, &result["level"]),
        (&"model.safetensors".into(), &"error".into()),
        "{log}"
    );
}
