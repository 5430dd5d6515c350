//! `hf-meta get`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::{every_dtype, sharded, write_file};
use crate::command::{CommandOutput, hf_meta, run};
use crate::hub::{Fault, File, Host, LocalHub, Repo};

/// The names of all files in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn part_of(folder: &tempfile::TempDir) -> (PathBuf, String) {
    let path = folder.path().join("part.safetensors");
    let text = path.display().to_string();
    (path, text)
}

#[test]
fn a_part_of_a_model_opens_in_the_safetensors_crate() {
    let (repo, first, second) = sharded();
    let other = Repo::new("org/dtypes").file("model.safetensors", File::from_bytes(every_dtype()));
    let hub = LocalHub::start([repo, other]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (path, text) = part_of(&folder);
    let printed = run(&hub, &["get", "org/model", "b", "large[1:3]", "-o", &text]).data();
    let line = printed.trim_end();
    assert!(
        line.starts_with(&format!("{text}: 2 tensors, 4.0 kB; ")) && line.ends_with(" s"),
        "{line}"
    );
    let file = fs::read(&path).unwrap();
    let part = SafeTensors::deserialize(&file).unwrap();
    let [first, second] = [&first, &second].map(|file| SafeTensors::deserialize(file).unwrap());
    assert_eq!(part.tensor("b").unwrap().data(), first.tensor("b").unwrap().data());
    let rows = part.tensor("large").unwrap();
    assert_eq!(rows.shape(), [2, 1_000]);
    assert_eq!(rows.data(), &second.tensor("large").unwrap().data()[2_000..6_000]);
    assert_eq!(part.len(), 2);
    assert_eq!(names(folder.path()), ["part.safetensors"]);
    // The same bytes to a pipe.
    let mut command = hf_meta(hub.endpoint());
    let piped = command.args(["get", "org/model", "b", "large[1:3]", "-o", "-"]).output().unwrap();
    assert_eq!((piped.status.code(), piped.stdout == file), (Some(0), true));
    let all = run(&hub, &["get", "org/dtypes", "*", "--force", "-o", &text]);
    assert_eq!(all.code, 0, "{}", all.stderr);
    let file = fs::read(&path).unwrap();
    let (part, whole) = (SafeTensors::deserialize(&file).unwrap(), every_dtype());
    let whole = SafeTensors::deserialize(&whole).unwrap();
    for (name, tensor) in whole.iter() {
        assert_eq!(part.tensor(name).unwrap().data(), tensor.data(), "{name}");
    }
    assert_eq!(part.len(), 22);
}

#[test]
fn an_existing_file_is_kept_unless_it_is_replaced() {
    let (repo, ..) = sharded();
    let hub = LocalHub::start([repo]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (path, text) = part_of(&folder);
    fs::write(&path, "mine").unwrap();
    let kept = run(&hub, &["get", "org/model", "b", "-o", &text]);
    assert_eq!((kept.code, fs::read(&path).unwrap()), (4, b"mine".to_vec()));
    assert!(kept.stderr.contains("it exists; `--force` replaces it"), "{}", kept.stderr);
    assert_eq!(hub.log().len(), 0, "nothing was requested");
    let replaced = run(&hub, &["get", "org/model", "b", "-o", &text, "--force"]);
    assert_eq!(replaced.code, 0, "{}", replaced.stderr);
    assert!(SafeTensors::deserialize(&fs::read(&path).unwrap()).is_ok());
    let missing = folder.path().join("none/part.safetensors").display().to_string();
    let folder_text = folder.path().display().to_string();
    for target in [&*missing, &*folder_text, "/dev/null", "/"] {
        let failed = run(&hub, &["get", "org/model", "b", "-o", target, "--force"]);
        assert_eq!(failed.code, 4, "{target}: {}", failed.stderr);
        assert!(failed.stderr.starts_with("error: failed to write"), "{}", failed.stderr);
    }
    assert_eq!(names(folder.path()), ["part.safetensors"]);
}

#[test]
fn a_plan_is_printed_as_a_table_or_as_json() {
    let (repo, ..) = sharded();
    let hub = LocalHub::start([repo]).unwrap();
    let json = run(&hub, &["get", "org/model", "b", "large[1:3]", "--plan-only", "--json"]).data();
    let json: Value = serde_json::from_str(&json).unwrap();
    let large = &json["ranges"][1];
    assert_eq!(
        (&large["file"], &large["tensors"]),
        (&"2.safetensors".into(), &serde_json::json!(["large"]))
    );
    assert_eq!(large["end"].as_u64().unwrap() - large["start"].as_u64().unwrap(), 4_000);
    assert_eq!(json["tensors"][1]["shape"], serde_json::json!([2, 1_000]));
    assert_eq!((&json["source"], json["tensorBytes"].as_u64()), (&"org/model".into(), Some(4_007)));
    assert_eq!(json["commit"].as_str().map(str::len), Some(40));
    let table = run(&hub, &["get", "org/model", "b", "large[1:3]", "--plan-only"]).data();
    assert!(
        table.ends_with("2 tensors, 4.0 kB, in 2 ranges of 2 files; 4.0 kB to read\n"),
        "{table}"
    );
}

#[test]
fn unusable_arguments_have_their_exit_code() {
    let (repo, ..) = sharded();
    let hub = LocalHub::start([repo]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (_, text) = part_of(&folder);
    let cases: [(&[&str], i32, &str); 7] = [
        (&["get", "org/model", "x", "-o", &text], 1, "no tensor matches `x`"),
        (&["get", "org/model", "large[::2]", "-o", &text], 1, "a slice with a step"),
        (&["get", "org/none", "x", "-o", &text], 3, "not found"),
        (&["get", "org/model", "b"], 2, "--output"),
        (&["get", "org/model", "-o", &text], 2, "<TENSOR>"),
        (&["get", "org/model", "b", "--json", "-o", &text], 2, "--plan-only"),
        (&["get", "org/model", "b", "--max-memory", "x", "-o", &text], 2, "expected a size"),
    ];
    for (args, code, message) in cases {
        let failed = run(&hub, args);
        assert_eq!((failed.code, &*failed.stdout), (code, ""), "{args:?}: {}", failed.stderr);
        assert!(failed.stderr.contains(message), "{args:?}: {}", failed.stderr);
    }
    assert_eq!(names(folder.path()), [""; 0]);
}

/// Fails all responses with data, but not those with headers.
fn fail_data(hub: &LocalHub, fault: Fault) {
    hub.inject(move |request, _| {
        let start = request.range.as_deref()?.strip_prefix("bytes=")?.split('-').next()?;
        let is_data = request.host == Host::Cdn && start.parse::<u64>().is_ok_and(|at| at > 8);
        is_data.then(|| fault.clone())
    });
}

#[test]
fn nothing_is_left_of_a_read_that_fails() {
    let (repo, ..) = sharded();
    let hub = LocalHub::start([repo]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (path, text) = part_of(&folder);
    fs::write(&path, "mine").unwrap();
    fail_data(&hub, Fault::Truncated { length: 3 });
    let args = ["get", "org/model", "*", "--retries", "0", "--force", "-o", &text];
    let failed = run(&hub, &args);
    assert_eq!(failed.code, 3, "{}", failed.stderr);
    assert_eq!(
        (names(folder.path()), fs::read(&path).unwrap()),
        (vec!["part.safetensors".to_owned()], b"mine".to_vec())
    );
}

#[cfg(unix)]
#[test]
fn nothing_is_left_on_a_full_disk() {
    let (repo, ..) = sharded();
    let hub = LocalHub::start([repo]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (_, text) = part_of(&folder);
    let meta = hf_meta(hub.endpoint());
    let mut command = Command::new("sh");
    // A write beyond 512 kB fails as on a full disk.
    command.args(["-c", "trap '' XFSZ; ulimit -f 1000; exec \"$0\" \"$@\""]);
    command.arg(meta.get_program()).args(["get", "org/model", "*", "-o", &text]);
    command.env_clear().envs(meta.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let failed = CommandOutput::new(&mut command);
    assert_eq!(failed.code, 4, "{}", failed.stderr);
    assert!(failed.stderr.starts_with("error: failed to write"), "{}", failed.stderr);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[cfg(unix)]
#[test]
fn nothing_is_left_after_a_signal() {
    use std::os::unix::process::ExitStatusExt;

    let file = write_file(&[("w", Dtype::F32, &[1_000, 100])]);
    let repo = Repo::new("org/model").file("model.safetensors", File::from_bytes(file));
    let hub = LocalHub::start([repo]).unwrap();
    // While the header is read, and while the data are.
    for (name, number, is_early) in
        [("INT", 2, true), ("TERM", 15, true), ("INT", 2, false), ("TERM", 15, false)]
    {
        if is_early {
            hub.inject(|request, _| (request.host == Host::Cdn).then_some(Fault::Stall));
        } else {
            fail_data(&hub, Fault::StallInBody { after: 1_000 });
        }
        let folder = tempfile::tempdir().unwrap();
        let (_, text) = part_of(&folder);
        hub.clear_log();
        let mut command = hf_meta(hub.endpoint());
        command.args(["get", "org/model", "w", "-o", &text]).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let is_data =
            |range: &String| !range.starts_with("bytes=0-") && !range.starts_with("bytes=8-");
        let mut waited = 0;
        while !hub.log().iter().any(|request| {
            request.host == Host::Cdn && (is_early || request.range.as_ref().is_some_and(is_data))
        }) {
            std::thread::sleep(Duration::from_millis(1));
            waited += 1;
            assert!(waited < 60_000);
        }
        let unfinished = names(folder.path());
        assert!(unfinished.len() == 1 && unfinished[0].contains(".part"), "{unfinished:?}");
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().signal(), Some(number));
        assert_eq!(names(folder.path()), [""; 0]);
    }
}

/// As in `hf-meta get … -o - | head -c 100`.
#[test]
fn a_closed_pipe_ends_the_command_without_an_error() {
    let (repo, ..) = sharded();
    let hub = LocalHub::start([repo]).unwrap();
    let mut command = hf_meta(hub.endpoint());
    command
        .args(["get", "org/model", "*", "-o", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}

/// Tensors of PyTorch files are ranges behind the local headers of the archive.
#[test]
fn tensors_of_a_pytorch_file_are_written() {
    let fixture = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pytorch");
        File::from_bytes(fs::read(folder.join(name)).unwrap())
    };
    let repo = |name: &str, file: &str| Repo::new(name).file("pytorch_model.bin", fixture(file));
    let repos = [repo("org/tied", "tied.bin"), repo("org/old", "legacy-slices.bin")];
    let repos = repos.into_iter().chain([repo("org/columns", "columns.bin")]);
    let hub = LocalHub::start(repos).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (path, text) = part_of(&folder);
    for (repo, tensors, start) in [
        ("org/tied", &["h.weight", "wte.weight"][..], [187, 76, 210, 62]),
        ("org/old", &["v"], [215, 43, 164, 189]),
    ] {
        let mut arguments = vec!["get", repo];
        arguments.extend(tensors);
        arguments.extend(["-o", &text, "--force"]);
        let written = run(&hub, &arguments);
        assert_eq!(written.code, 0, "{}", written.stderr);
        let file = fs::read(&path).unwrap();
        let part = SafeTensors::deserialize(&file).unwrap();
        assert_eq!(part.len(), tensors.len());
        assert_eq!(&part.tensor(tensors[0]).unwrap().data()[..4], &start);
    }
    let refused = run(&hub, &["get", "org/columns", "odd", "-o", &text, "--force"]);
    assert_eq!(refused.code, 1);
    let reason = "cannot be read by range: its elements are not in their order";
    assert!(refused.stderr.contains(reason), "{}", refused.stderr);
    for (repo, tensors) in [("org/tied", 2), ("org/old", 3), ("org/columns", 0)] {
        let checked = run(&hub, &["verify", repo, "--values", "--json"]);
        let report: Value = serde_json::from_str(&checked.stdout).unwrap();
        assert_eq!(report["values"]["tensors"], tensors, "{repo}: {}", checked.stdout);
    }
}

/// A safetensors file has no dtype for blocks of GGML, so the error says who can read them.
#[test]
fn quantized_tensors_of_gguf_are_refused_with_advice() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/gguf/all-types.gguf");
    let repo =
        Repo::new("org/blocks").file("m.gguf", File::padded(fs::read(file).unwrap(), 274_808));
    let hub = LocalHub::start([repo]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (path, text) = part_of(&folder);
    let refused = run(&hub, &["get", "org/blocks", "*", "-o", &text]);
    assert_eq!((refused.code, path.exists()), (1, false), "{}", refused.stderr);
    let advice = "`read_tensors` of the Python package returns its bytes";
    assert!(refused.stderr.contains(advice), "{}", refused.stderr);
    let planned = run(&hub, &["get", "org/blocks", "*", "--plan-only", "--json"]).data();
    let plan: Value = serde_json::from_str(&planned).unwrap();
    assert!(plan["ranges"].as_array().is_some_and(|ranges| !ranges.is_empty()), "{planned}");
}
