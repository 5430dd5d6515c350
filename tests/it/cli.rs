//! The command as people and scripts use it: what is on stdout, what on stderr, and the exit status.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::bad_input::{bad_files, bad_indexes};
use crate::hub::{File, LocalHub, Repo};
use crate::quantization::tensors;
use crate::support::{self, head};

/// The command in an environment of its own.
fn hf_meta(endpoint: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hf-meta"));
    command.env_clear().env("HF_ENDPOINT", endpoint).env("HF_HOME", "/nonexistent");
    command.env("HF_META_CACHE", "off");
    command.stdin(Stdio::null());
    command
}

/// What a command has left behind.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        Self {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The output of a command that had nothing to complain about.
    pub(crate) fn data(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""));
        self.stdout
    }
}

pub(crate) fn run(hub: &LocalHub, args: &[&str]) -> Ran {
    Ran::of(hf_meta(hub.endpoint()).args(args))
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
    let stdout = run(&hub, &["bigscience/bloom", "EleutherAI/gpt-neox-20b"]).data();
    insta::assert_snapshot!(without_seconds(&stdout));
}

/// Experts packed eight to an element, a mask, and what is beside them.
fn packed_experts() -> Repo {
    let weights = tensors(&[
        ("h.0.mlp.experts.0.qweight", "I32", &[1_000, 4_000], 4),
        ("h.0.mlp.experts.1.qweight", "I32", &[1_000, 4_000], 4),
        ("h.0.mlp.experts.0.scales", "F16", &[1_000], 2),
        ("h.0.attn.bias", "F32", &[1, 1, 64, 64], 4),
        ("norm.weight", "BF16", &[500], 2),
    ]);
    let config = r#"{"quantization_config":{"quant_method":"GPTQ","bits":4},
        "num_local_experts":2,"num_experts_per_tok":1}"#;
    Repo::new("org/packed")
        .file("model.safetensors", weights)
        .file("config.json", File::whole(config))
}

#[test]
fn quantized_models_are_explained() {
    let hub = LocalHub::start([packed_experts()]).unwrap();
    let table = run(&hub, &["org/packed"]).data();
    insta::assert_snapshot!("quantized", without_seconds(&table));
    insta::assert_snapshot!("explained", run(&hub, &["org/packed", "--explain"]).data());
    let json = run(&hub, &["org/packed", "--json", "--summary"]).data();
    let mut json: Value = serde_json::from_str(&json).unwrap();
    json["cost"] = Value::from("some");
    insta::assert_json_snapshot!("quantized_json", json);
}

#[test]
fn nothing_adds_up_to_nothing() {
    let hub = support::documented();
    let stdout = run(&hub, &["example/lora-without-weights"]).data();
    let table: Vec<_> = stdout.lines().skip(1).take(2).collect();
    let rows = ["dtype  parameters  bytes  share", "total           0    0 B      -"];
    assert_eq!(table, rows, "{stdout}");
}

#[test]
fn masks_are_explained() {
    let hub = support::documented();
    insta::assert_snapshot!("explained_gpt2", run(&hub, &["gpt2", "--explain"]).data());
}

#[test]
fn tensors_through_a_filter() {
    let hub = support::documented();
    let stdout = run(&hub, &["gpt2", "--tensors", "--filter", "h.11.attn.*"]).data();
    insta::assert_snapshot!(stdout);
    let all = run(&hub, &["bigscience/bloom", "--tensors"]).data();
    assert_eq!(all.lines().count(), 1 + 845);
}

#[test]
fn trees() {
    let hub = support::documented();
    let repos = ["bigscience/bloom", "EleutherAI/gpt-neox-20b", "openai/gpt-oss-20b"];
    let stdout = run(&hub, &[&repos[..], &["--tree"]].concat()).data();
    insta::assert_snapshot!(stdout);
}

/// Of the command with all that it can be built with.
#[test]
#[cfg(feature = "server")]
fn help() {
    let hub = LocalHub::start([]).unwrap();
    let calls: [&[&str]; 6] = [
        &["-h"],
        &["--help"],
        &["verify", "-h"],
        &["diff", "-h"],
        &["cache", "-h"],
        &["serve", "-h"],
    ];
    let texts =
        calls.map(|args| format!("$ hf-meta {}\n{}", args.join(" "), run(&hub, args).data()));
    insta::assert_snapshot!(texts.join("\n"));
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
    let index = run(&hub, &["org/spec", "--metadata"]);
    assert_eq!((index.code, &*index.stdout), (0, "org/spec\nnote = n\ntotal_size = 2\n"));
    assert!(index.stderr.contains("declares 2 bytes of tensors, but they have 1"));
    let file = run(&hub, &["org/spec", "--path", "spec.safetensors", "--metadata"]).data();
    assert_eq!(
        file,
        "hf://org/spec@main/spec.safetensors\nformat = pt\nmodelspec.title = A \\u{1b}[31mred\\u{1b}[0m title\n"
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
        let stdout = run(&hub, &[repo, "--json"]).data();
        let json: Value = serde_json::from_str(&stdout).unwrap();
        insta::assert_json_snapshot!(repo.replace('/', "_"), abridged(json));
    }
}

#[test]
fn json_is_one_document_a_line() {
    let hub = support::documented();
    let stdout = run(&hub, &["gpt2", "roberta-base", "--json", "--summary"]).data();
    let documents: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
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
    let cases: [(&[&str], i32); 18] = [
        (&["org/good"], 0),
        (&["-v", "verify", "org/good"], 0),
        (&["--json", "verify", "org/good"], 2),
        (&["--", "verify"], 3),
        (&["hf://verify"], 3),
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
        let ran = run(&hub, args);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stdout.is_empty(), code != 0, "{args:?}");
        assert_eq!(ran.stderr.is_empty(), code == 0, "{args:?}");
    }
    let mixed = run(&hub, &["org/empty", "org/good", "org/none"]);
    assert_eq!(mixed.code, 3);
    assert!(mixed.stdout.contains("org/good"), "the others are read all the same");
}

/// Whatever is wrong with a file: an error that names it, and nothing that could be taken for a result.
#[test]
fn nothing_of_a_broken_file_is_printed_as_data() {
    let single =
        |(n, (file, _))| Repo::new(&format!("org/file-{n}")).file("model.safetensors", file);
    let sharded = |(n, (index, _))| {
        support::sharded(&format!("org/index-{n}")).file("model.safetensors.index.json", index)
    };
    let repos: Vec<_> = (bad_files().into_iter().enumerate().map(single))
        .chain(bad_indexes().into_iter().enumerate().map(sharded))
        .collect();
    let names: Vec<_> = repos.iter().map(|repo| repo.id().to_owned()).collect();
    let hub = LocalHub::start(repos).unwrap();
    for view in [&[][..], &["--json"], &["--json", "--summary"], &["--tensors"], &["--metadata"]] {
        let args: Vec<_> = names.iter().map(String::as_str).chain(view.iter().copied()).collect();
        let Ran { code, stdout, stderr } = run(&hub, &args);
        assert_eq!((code, stdout.as_str()), (1, ""), "{view:?}");
        for name in &names {
            assert!(
                stderr.contains(&format!("error: {name}: `{name}/model.safetensors")),
                "{name}"
            );
        }
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
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
            &["org/gated", "--token", "hf_old"],
            "error: the token is not valid",
            format!("{endpoint}/settings/tokens"),
        ),
        (&["org/none"], "error: repository `org/none` not found", "check the spelling".to_owned()),
        (&["src"], "error: no safetensors weights in `src`", "write ./src".to_owned()),
        (
            &["a b"],
            "error: `a b` names nothing that can be read\n  caused by: `a b` is not the name of a repo",
            "`hf-meta --help`".to_owned(),
        ),
        (
            &["org/x", "--endpoint", "http://127.0.0.1:1", "--retries", "0"],
            "error: failed to fetch",
            "is that server reachable".to_owned(),
        ),
    ];
    for (args, message, help) in cases {
        let Ran { stdout, stderr, .. } = run(&hub, args);
        assert_eq!(stdout, "");
        assert!(stderr.starts_with(message), "{stderr}");
        assert!(
            stderr.lines().any(|line| line.starts_with("  help: ") && line.contains(&help)),
            "{stderr}"
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
        let ran = Ran::of(command.envs(variables.iter().copied()).arg("org/gated"));
        assert_eq!(ran.code, code, "{variables:?}");
    }
    let mut flag = hf_meta(hub.endpoint());
    flag.args(["org/gated", "--token", "hf_good"]).env("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
    assert_eq!(Ran::of(&mut flag).code, 0);
}

/// A proxy of the environment is asked in place of the Hub, unless the host is excepted.
#[test]
fn proxies_of_the_environment() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let nobody = "http://127.0.0.1:1";
    let proxied = || {
        let mut command = hf_meta(hub.endpoint());
        command.env("http_proxy", nobody).args(["org/model", "--retries", "0"]);
        command
    };
    assert_eq!(Ran::of(&mut proxied()).code, 3);
    assert_eq!(Ran::of(proxied().env("no_proxy", "127.0.0.1")).code, 0);
}

#[test]
fn what_was_read_is_kept_unless_it_is_not_to_be() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ran = |args: &[&str]| {
        hub.clear_log();
        let mut command = hf_meta(hub.endpoint());
        let data = Ran::of(command.env("HF_META_CACHE", folder.path()).args(args)).data();
        (data, hub.log().len())
    };
    let place = folder.path().display();
    let [model, cold] = [["org/model", "--json"], ["org/model", "--no-cache"]];
    let requests = ran(&cold).1;
    assert_eq!(ran(&["cache", "info"]).0, format!("{place}\n0 B in 0 files of at most 268.4 MB\n"));
    assert_eq!([ran(&model).1, ran(&model).1, ran(&cold).1], [requests, 1, requests]);
    assert!(ran(&["cache", "info"]).0.contains(" in 2 files of at most"));
    let cleared = ran(&["cache", "clear"]).0;
    assert!(cleared.ends_with(&format!(" in 2 files from {place}\n")), "{cleared}");
    assert_eq!(ran(&model).1, requests);
    let off = Ran::of(hf_meta(hub.endpoint()).args(["cache", "info"])).data();
    assert_eq!(off, "nothing is kept: there is no folder for it\n");
}

#[test]
fn text_from_the_network_cannot_speak_to_the_terminal() {
    let header =
        r#"{"\u001b]0;owned\u0007\u202e":{"dtype":"\u001b[2J","shape":[],"data_offsets":[0,1]}}"#;
    let repo = Repo::new("org/evil").file("model.safetensors", support::file(header, 1));
    let other = Repo::new("org/other").file("model.safetensors", support::weights(&["x"]));
    let hub = LocalHub::start([repo, other]).unwrap();
    for view in ["--tensors", "--metadata", "--tree"] {
        let Ran { stdout, stderr, .. } = run(&hub, &["org/evil", view]);
        assert!(!stderr.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{view}");
        assert!(!stdout.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{view}");
    }
    for args in [&["verify", "org/evil"][..], &["diff", "org/evil", "org/other"]] {
        let Ran { stdout, .. } = run(&hub, args);
        assert!(!stdout.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{args:?}");
        assert!(stdout.contains("\\u{1b}"), "{args:?}");
    }
    assert!(run(&hub, &["org/evil"]).stdout.contains("\\u{1b}[2J"));
    let json: Value = serde_json::from_str(&run(&hub, &["org/evil", "--json"]).stdout).unwrap();
    assert!(json["header"].get("\u{1b}]0;owned\u{7}\u{202e}").is_some(), "JSON stays exact");
}

#[test]
fn colours_are_for_terminals() {
    let hub = support::documented();
    let has_colour = |variables: &[(&str, &str)]| {
        let mut command = hf_meta(hub.endpoint());
        Ran::of(command.envs(variables.iter().copied()).arg("gpt2")).data().contains('\u{1b}')
    };
    assert!(!has_colour(&[]));
    assert!(has_colour(&[("CLICOLOR_FORCE", "1")]));
    assert!(!has_colour(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
}

#[test]
fn a_machine_without_certificates() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let none = [("SSL_CERT_FILE", "/dev/null"), ("SSL_CERT_DIR", "/nonexistent")];
    assert_eq!(Ran::of(hf_meta(hub.endpoint()).envs(none).arg("org/model")).code, 0);
}

#[test]
fn whoever_reads_may_stop() {
    let hub = support::documented();
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

#[test]
fn badges() {
    let hub = support::documented();
    let svg = run(&hub, &["badge", "bigscience/bloom", "--style", "flat-square"]).data();
    assert!(svg.starts_with("<svg") && svg.contains("<title>params: 176B</title>"), "{svg}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("badge.json");
    let asked = ["badge", "bigscience/bloom", "--json", "--show", "dtype", "--color", "green"];
    let written = Ran::of(hf_meta(hub.endpoint()).args(asked).arg("--output").arg(&file)).data();
    assert_eq!(written, "");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let expected = serde_json::json!({
        "schemaVersion": 1, "label": "BF16", "message": "176B", "color": "67ac09"
    });
    assert_eq!(json, expected);
    let cases: [(&[&str], i32, &str); 4] = [
        (&["badge", "org/none"], 3, "not found"),
        (&["badge", "gpt2", "--style", "round"], 2, "for-the-badge"),
        (&["badge", "gpt2", "--color", "#12"], 2, "neither a colour of shields.io nor"),
        (&["badge", "gpt2", "--output", "/nonexistent/x.svg"], 3, "failed to write `/nonexistent"),
    ];
    for (args, code, text) in cases {
        let ran = run(&hub, args);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{args:?}");
        assert!(ran.stderr.contains(text), "{args:?}: {}", ran.stderr);
    }
}

/// What the command finds in the cache of an environment.
#[test]
fn offline_by_flag_and_by_environment() {
    /// Environment, arguments, and the exit status.
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], i32);
    let home = tempfile::tempdir().unwrap();
    let hub = home.path().join("hub/models--org--model");
    let commit = "1".repeat(40);
    for (path, content) in [
        ("refs/main".to_owned(), commit.clone().into_bytes()),
        (
            format!("snapshots/{commit}/any.safetensors"),
            head(r#"{"x":{"dtype":"BOOL","shape":[0],"data_offsets":[0,0]}}"#),
        ),
    ] {
        std::fs::create_dir_all(hub.join(&path).parent().unwrap()).unwrap();
        std::fs::write(hub.join(&path), content).unwrap();
    }
    let [home, cache] = [home.path().to_owned(), home.path().join("hub")]
        .map(|path| path.to_str().unwrap().to_owned());
    let cases: [Case; 8] = [
        (&[("HF_HOME", &home)], &["--offline"], 0),
        (&[("HF_HOME", &home), ("HF_HUB_OFFLINE", "1")], &[], 0),
        (&[("HF_HOME", &home), ("HF_HUB_OFFLINE", "True")], &[], 0),
        (&[("HF_HUB_CACHE", &cache), ("TRANSFORMERS_OFFLINE", "yes")], &[], 0),
        (&[("HUGGINGFACE_HUB_CACHE", &cache), ("HF_HUB_OFFLINE", "on")], &[], 0),
        (
            &[("HF_HOME", &home), ("HF_HUB_OFFLINE", "0"), ("TRANSFORMERS_OFFLINE", "1")],
            &["--retries", "0"],
            3,
        ),
        (&[("HF_HOME", &home)], &["--retries", "0"], 3),
        (&[("HF_HUB_OFFLINE", "1")], &[], 3),
    ];
    for (variables, args, code) in cases {
        let mut command = hf_meta("http://127.0.0.1:1");
        let ran = Ran::of(command.envs(variables.iter().copied()).arg("org/model").args(args));
        assert_eq!(ran.code, code, "{variables:?}: {}", ran.stderr);
        assert_eq!(ran.stdout.contains(&commit), code == 0, "{variables:?}");
    }
    let missing = Ran::of(hf_meta("http://127.0.0.1:1").args(["org/none", "--offline"]));
    assert!(
        missing.stderr.contains("help: `hf download org/none` fetches it"),
        "{}",
        missing.stderr
    );
}

#[test]
fn the_other_sets_of_weights() {
    let weights = |repo: Repo, path: &str| repo.file(path, support::weights(&["x"]));
    let several = ["a.safetensors", "\u{202e}b.safetensors", "\u{1b}[2J.safetensors"];
    let pipeline = [
        "unet/diffusion_pytorch_model.safetensors",
        "vae/diffusion_pytorch_model.safetensors",
        "a.safetensors",
    ];
    let hub = LocalHub::builder()
        .repo(pipeline.iter().fold(Repo::new("org/pipeline"), |repo, path| weights(repo, path)))
        .repo(several.iter().fold(Repo::new("org/several"), |repo, path| weights(repo, path)))
        .repo(support::sharded("org/model"))
        .repo(Repo::new("org/other").file("a.gguf", File::whole("GGUF")))
        .start()
        .unwrap();
    insta::assert_snapshot!("other_sets", without_seconds(&run(&hub, &["org/pipeline"]).data()));
    let alone = run(&hub, &["org/model", "--sets"]).data();
    assert!(alone.contains("read from model.safetensors.index.json; no other weights"), "{alone}");
    assert!(!run(&hub, &["org/model"]).data().contains("other weights"));
    let choice = run(&hub, &["org/several"]);
    assert_eq!((choice.code, choice.stdout.as_str()), (1, ""));
    assert!(
        choice.stderr.contains(
            "help: give one of them, or its folder, to --path: a.safetensors, \\u{202e}b.safetensors"
        ),
        "{}",
        choice.stderr
    );
    assert!(choice.stderr.contains("holds 2 sets"), "{}", choice.stderr);
    assert!(!choice.stderr.contains(['\u{202e}', '\u{1b}']));
    let other = run(&hub, &["org/other"]);
    assert_eq!(other.code, 1);
    assert!(other.stderr.contains("is there, but GGUF (.gguf), 1 file"), "{}", other.stderr);
}
