//! Names, paths and files as people type, paste and complete them.

use std::path::Path;

use serde_json::Value;

use super::{CommandOutput, hf_meta, run};
use crate::hub::{Fault, LocalHub, Repo};
use crate::support::{self, index, weights};

const GGUF: &str = "example/Llama-3.2-1B-GGUF";

/// Returns the first path that a call has read.
fn read_path(hub: &LocalHub, args: &[&str]) -> String {
    let json = run(hub, &[args, &["--json", "--summary"]].concat()).data();
    let json: Value = serde_json::from_str(&json).unwrap();
    json["filepaths"][0].as_str().unwrap().to_owned()
}

#[test]
fn a_folder_completed_by_a_shell_is_local() {
    let hub = support::fixtures_hub();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gpt2/model.safetensors");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    std::fs::write(file, support::file_start("{}")).unwrap();
    let tensors = |source: &str, folder: &Path| {
        let mut command = hf_meta(hub.endpoint());
        command.current_dir(folder).args([source, "--tensors"]);
        CommandOutput::new(&mut command).stdout.lines().count() - 1
    };
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(tensors("gpt2/", folder.path()), 0);
    assert_eq!(tensors("gpt2", folder.path()), 160, "a name is never a folder");
    let mut missing = hf_meta(hub.endpoint());
    missing.current_dir(empty.path()).arg("gpt2/");
    let missing = CommandOutput::new(&mut missing);
    assert_eq!(missing.code, 1, "a folder that is missing is not read from the Hub");
    assert!(missing.stderr.starts_with("error: `gpt2/` not found"), "{}", missing.stderr);
}

/// Programs join results with their lists by this name.
#[test]
fn a_source_is_named_as_it_was_given() {
    let hub = support::fixtures_hub();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("a/gpt2")).unwrap();
    std::fs::write(folder.path().join("a/gpt2/model.safetensors"), support::file_start("{}"))
        .unwrap();
    let page = format!("{}/gpt2/tree/main", hub.endpoint());
    let tag = format!("{GGUF}:q8_0");
    let home = folder.path().to_str().unwrap();
    for source in [
        "gpt2",
        "gpt2@main",
        &page,
        &tag,
        "hf://gpt2@main",
        "a/gpt2/",
        "./a/gpt2",
        "~/a/gpt2",
        "org/none",
        "a/b/c/d",
    ] {
        let run = |args: &[&str]| {
            let mut command = hf_meta(hub.endpoint());
            command.current_dir(folder.path()).env("HOME", home).args(args).arg(source);
            CommandOutput::new(&mut command).stdout
        };
        let json: Value = serde_json::from_str(&run(&["--json", "--summary"])).unwrap();
        assert_eq!(json["source"], source);
        let csv = run(&["--format", "csv"]);
        assert!(csv.lines().nth(1).unwrap().starts_with(&format!("{source},")), "{csv}");
        let verified: Value = serde_json::from_str(&run(&["verify", "--json"])).unwrap();
        assert_eq!(verified["source"], source);
    }
    let secret = format!("{}/gpt2/resolve/main/model.safetensors?sig=s3cr3t", hub.endpoint());
    assert!(!run(&hub, &[&secret, "--json", "--summary"]).stdout.contains("s3cr3t"));
}

/// A bare name is a repository, even if a folder has the same name. The output says so.
#[test]
fn a_local_folder_with_the_name_of_a_repository_is_a_hint() {
    let hub = support::fixtures_hub();
    let folder = tempfile::tempdir().unwrap();
    for name in ["models/x", "gpt2"] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    let inspect = |args: &[&str]| {
        let mut command = hf_meta(hub.endpoint());
        CommandOutput::new(command.current_dir(folder.path()).args(args))
    };
    let missing = inspect(&["models/x"]);
    let help = "help: to read the local file or folder with that name, use ./models/x\n";
    assert!(missing.code == 3 && missing.stderr.ends_with(help), "{}", missing.stderr);
    hub.inject(|request, _| {
        request.path.contains("/models/x").then_some(Fault::Status(500, vec![]))
    });
    let failed = inspect(&["models/x", "--retries", "0"]);
    assert!(failed.stderr.ends_with(help), "{}", failed.stderr);
    let read = inspect(&["gpt2", "--format", "csv"]);
    assert_eq!(read.stderr, "note: gpt2 is the repository; for the local gpt2, use ./gpt2\n");
    assert_eq!((read.code, inspect(&["gpt2", "-q"]).stderr.as_str()), (0, ""));
    assert_eq!(inspect(&["./gpt2"]).code, 1);
}

#[test]
fn lists_are_added_up() {
    let hub = support::fixtures_hub();
    let folder = tempfile::tempdir().unwrap();
    let lists =
        [("a.txt", "gpt2\n"), ("b.csv", "id,likes\nbigscience/bloom,1\n")].map(|(name, text)| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        });
    let csv = run(&hub, &["--from", &lists[0], "--from", &lists[1], "--format", "csv"]).data();
    let names: Vec<_> = csv.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(names, ["gpt2", "bigscience/bloom"]);
}

/// Links of the Hub's viewer, names with a quantization, and files without their extension.
#[test]
fn a_quantization_is_selected_in_every_spelling() {
    let hub = support::fixtures_hub();
    let link = format!("{}/{GGUF}?show_file_info=Llama-3.2-1B-Q8_0.gguf", hub.endpoint());
    let tag = format!("{GGUF}:q8_0");
    for args in [&[&*link][..], &[&tag], &[GGUF, "--path", "Llama-3.2-1B-Q8_0"]] {
        assert_eq!(read_path(&hub, args), "Llama-3.2-1B-Q8_0.gguf", "{args:?}");
    }
    let split = run(&hub, &[GGUF, "--path", "BF16/Llama-3.2-1B-BF16"]).data();
    let pattern = "BF16/Llama-3.2-1B-BF16-*-of-00002.gguf";
    assert!(split.contains(&format!("read from {pattern}; select another")), "{split}");
    assert!(!split.contains("-00001-of-"), "{split}");
    let unknown = run(&hub, &[&format!("{GGUF}:Q9_9")]).stderr;
    assert!(
        unknown.ends_with("help: set --path to one of them: BF16, Q2_K, Q4_K_M, Q8_0\n"),
        "{unknown}"
    );
    let other = run(&hub, &[GGUF, "--weights", "safetensors"]);
    assert_eq!(other.code, 1);
    assert!(other.stderr.contains("help: omit --weights, or set it to gguf"), "{}", other.stderr);
}

#[test]
fn one_shard_is_not_taken_for_the_model() {
    let shard = "model-00001-of-00004.safetensors";
    let repo = Repo::new("org/large").file(shard, weights(&["x"]));
    let hub = LocalHub::start([repo]).unwrap();
    let url = format!("{}/org/large/resolve/main/{shard}", hub.endpoint());
    for args in [&[&*url][..], &["org/large", "--path", shard], &["verify", &url]] {
        let ran = run(&hub, args);
        let output = ran.stdout + &ran.stderr;
        let finding = format!("`{shard}` is only shard 1 of 4; the others were not read");
        assert!(ran.code == 0 && output.contains(&finding), "{args:?}: {output}");
    }
}

#[test]
fn findings_are_printed_with_their_severity() {
    let hub = support::fixtures_hub();
    let renamed = run(&hub, &["GPT2"]);
    assert!(
        renamed.stderr.starts_with("note: GPT2: the repository's current name"),
        "{}",
        renamed.stderr
    );
}

#[test]
fn a_file_in_another_format_is_described() {
    let hub = LocalHub::start([]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let other = "only safetensors, GGUF and PyTorch files and their indexes can be read";
    let cases: [(&[u8], _, _); 3] = [
        (b"{\"architectures\": []}", "JSON", other),
        (b"root:x:0:0:root:/root:/bin/sh\n", "text", other),
        (b"<html><body>", "an HTML or XML page", other),
    ];
    for (bytes, format, help) in cases {
        let file = folder.path().join("x.safetensors");
        std::fs::write(&file, bytes).unwrap();
        let ran = run(&hub, &[file.to_str().unwrap()]);
        let cause = format!("the file looks like {format}");
        assert!(ran.stderr.contains(&cause) && ran.stderr.contains(help), "{}", ran.stderr);
    }
    let file = folder.path().join("x.safetensors");
    let pickle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/pytorch/tied.bin");
    std::fs::copy(pickle, &file).unwrap();
    let ran = run(&hub, &[file.to_str().unwrap()]);
    assert!(ran.code == 0 && ran.stderr.contains("contains pytorch, although"), "{}", ran.stderr);
}

#[test]
fn the_words_of_other_programs_lead_to_the_right_option() {
    let hub = support::fixtures_hub();
    for (name, help) in [
        ("version", "did you mean the option `--version`?"),
        ("tree", "did you mean the option `--tree`?"),
        ("info", "to inspect a repository, omit the command: `hf-meta REPO`"),
    ] {
        let ran = run(&hub, &[name, "gpt2"]);
        let hints: Vec<_> =
            ran.stderr.lines().filter(|line| line.starts_with("  help: ")).collect();
        assert_eq!(hints, [format!("  help: {help}")], "{name}");
    }
    let row = run(&hub, &["gpt2,3"]).stderr;
    assert!(row.contains("set --column to the column that contains the names"), "{row}");
}

#[test]
fn a_flag_can_be_repeated() {
    let hub = support::fixtures_hub();
    let once = run(&hub, &["gpt2", "--tensors"]).data();
    assert_eq!(
        run(&hub, &["gpt2", "--tensors", "-t", "-q", "-q", "--jobs", "1", "--jobs", "2"]).data(),
        once
    );
}

#[test]
fn the_short_help_fits_a_screen_and_is_printed_without_arguments() {
    let hub = LocalHub::start([]).unwrap();
    let helps =
        ["verify", "diff", "badge", "cache", "census", "serve"].map(|name| vec![name, "-h"]);
    for args in [vec!["-h"]].into_iter().chain(helps) {
        let help = run(&hub, &args).data();
        assert!(help.lines().count() <= 60, "{help}");
    }
    let help = run(&hub, &["-h"]).data();
    let alone = run(&hub, &[]);
    assert_eq!((alone.code, alone.stderr), (2, help));
}

#[test]
fn the_first_missing_shard_is_named() {
    let shard = |repo: Repo, n| repo.file(&format!("m-0000{n}-of-00003.gguf"), weights(&["x"]));
    let repo = [1, 3].into_iter().fold(Repo::new("org/hole"), shard);
    let hub = LocalHub::start([repo]).unwrap();
    let ran = run(&hub, &["org/hole"]);
    let message =
        "found 2 of 3 shards and no index; the first missing one is `m-00002-of-00003.gguf`";
    assert!(ran.stderr.contains(message), "{}", ran.stderr);
}

/// `diff` has two sources, and one `--path` would not do.
#[test]
fn the_hints_of_diff_do_not_mention_options_that_it_lacks() {
    let repo = Repo::new("org/two").file("a.safetensors", weights(&["x"]));
    let hub = LocalHub::start([repo.file("b.safetensors", weights(&["x"]))]).unwrap();
    let ran = run(&hub, &["diff", "org/two", "org/two"]);
    assert!(
        ran.stderr.contains(
            "help: use hf://org/two/PATH with one of them: a.safetensors, b.safetensors\n"
        ),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("--path"), "{}", ran.stderr);
    assert_eq!(
        run(&hub, &["diff", "hf://org/two/a.safetensors", "hf://org/two/b.safetensors"]).code,
        0
    );
}

#[test]
fn a_filter_applies_to_the_tree_and_to_json() {
    let hub = support::fixtures_hub();
    let tree = run(&hub, &["gpt2", "--tree", "--filter", "h.11.attn.*"]).data();
    assert!(tree.contains("h.11.attn") && !tree.contains("wte"), "{tree}");
    let total = tree.lines().find(|line| line.starts_with("total")).unwrap();
    assert_eq!(total.split_whitespace().nth(1), Some("5"), "{tree}");
    let json = run(&hub, &["gpt2", "--json", "--filter", "h.11.attn.*"]).data();
    let json: Value = serde_json::from_str(&json).unwrap();
    let header = json["header"].as_object().unwrap();
    let names = header.keys().filter(|name| *name != "__metadata__");
    assert!(names.clone().all(|name| name.starts_with("h.11.attn.")), "{header:?}");
    assert_eq!(json["matched"]["tensors"], names.count());
    assert_eq!(json["parameterTotal"], 137_022_720, "the count is that of the model");
    let index = &["bigscience/bloom", "--json", "--filter", "word_embeddings.*"];
    let json: Value = serde_json::from_str(&run(&hub, index).data()).unwrap();
    assert_eq!(json["index"]["weight_map"].as_object().unwrap().len(), 1);
    assert_eq!(json["matched"]["tensors"], 1);
}

/// Code hosts find the files of annotations only by their paths in the repository.
#[test]
fn findings_name_shards_by_their_path_in_the_repository() {
    let shard = |n| format!("diffusion_pytorch_model-0000{n}-of-00002.safetensors");
    let index = index(&[("x", &shard(1)), ("y", &shard(2))]);
    let repo = Repo::new("org/pipeline")
        .file("transformer/diffusion_pytorch_model.safetensors.index.json", index)
        .file(&format!("transformer/{}", shard(1)), weights(&["x", "z"]));
    let hub = LocalHub::start([repo]).unwrap();
    for args in [&["org/pipeline"][..], &["org/pipeline", "--path", "transformer"]] {
        let sarif = run(&hub, &[&["verify", "--sarif"], args].concat()).stdout;
        // The missing shard is a defect of the index.
        let index = "diffusion_pytorch_model.safetensors.index.json";
        for (file, is_there) in [(&*shard(1), true), (&*shard(2), false), (index, true)] {
            let uri = format!("/org/pipeline/blob/main/transformer/{file}\"");
            assert_eq!(sarif.contains(&uri), is_there, "{uri}: {sarif}");
        }
        assert!(sarif.contains(&format!("`transformer/{}`", shard(2))), "{sarif}");
        assert!(!sarif.contains("transformer/transformer"), "{sarif}");
    }
    let json = run(&hub, &["verify", "--json", "org/pipeline"]).stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    let checked = [
        "transformer/diffusion_pytorch_model.safetensors.index.json".to_owned(),
        format!("transformer/{}", shard(1)),
    ];
    assert_eq!(json["filepaths"], serde_json::json!(checked));
}

#[test]
fn the_parameters_of_shards_without_an_index_are_verified() {
    let hub = support::fixtures_hub();
    let json = run(&hub, &["verify", "--json", "example/shards-without-index"]).data();
    let json: Value = serde_json::from_str(&json).unwrap();
    let counted = run(&hub, &["example/shards-without-index", "--json", "--summary"]).data();
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert_eq!(json["parameters"]["counted"], counted["parameterTotal"]);
}

/// A wait that would exceed the timeout does not begin, so nothing is requested after it.
#[test]
fn a_timeout_includes_waits_for_rate_limits() {
    let hub = LocalHub::start([support::sharded("org/limited")]).unwrap();
    hub.inject(|_, _| Some(Fault::Status(429, vec![("retry-after", "290".to_owned())])));
    let ran = run(&hub, &["org/limited", "--timeout", "5"]);
    assert_eq!((ran.code, &*ran.stdout), (3, ""), "{}", ran.stderr);
    assert!(hub.log().len() <= 2, "one request for each of the two names that weights have");
}

/// An index on a machine without its shards is not a defect of the repository.
#[test]
fn shards_that_were_not_downloaded_are_unreadable() {
    let cache = tempfile::tempdir().unwrap();
    let commit = "1111111111111111111111111111111111111111";
    let home = cache.path().join("models--org--part");
    let snapshot = home.join("snapshots").join(commit);
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir(home.join("refs")).unwrap();
    std::fs::write(home.join("refs/main"), commit).unwrap();
    let index = r#"{"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}"#;
    std::fs::write(snapshot.join("model.safetensors.index.json"), index).unwrap();
    std::fs::write(snapshot.join("config.json"), "{}").unwrap();
    let mut command = hf_meta("http://127.0.0.1:1");
    command.env("HF_HUB_CACHE", cache.path()).args(["verify", "--offline", "--json", "org/part"]);
    let ran = CommandOutput::new(&mut command);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, &json["complete"]), (3, &Value::from(false)), "{json}");
    let kinds: Vec<_> =
        json["findings"].as_array().unwrap().iter().map(|found| &found["kind"]).collect();
    assert_eq!(kinds, ["unreadable", "unreadable"], "{json}");
}

/// The help of a file that looks like a table of names.
#[test]
fn a_csv_list_on_stdin_gets_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list");
    std::fs::write(&list, "id,likes\ngpt2,3\n").unwrap();
    let hub = support::fixtures_hub();
    let mut command = hf_meta(hub.endpoint());
    command.arg("-").stdin(std::fs::File::open(&list).unwrap());
    let ran = CommandOutput::new(&mut command);
    assert!(ran.code == 2 && ran.stderr.contains("--column"), "{}", ran.stderr);
}
