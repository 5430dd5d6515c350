//! A list in which many repositories try to take memory or time.
//!
//! They have a hundredth of the largest allowed size. With `HF_META_SOAK=1` they have all of it, and some never end. The
//! command has its default limits, except for the time for each repository.

use std::fmt::Write as _;
use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::rows;
use crate::command::hf_meta;
use crate::hub::{Fault, File, LocalHub, Repo};
use crate::support::{file_with_header, weights};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The repositories of each kind.
const COPIES: usize = 2;

/// A kind of hostile repository, with the status and the kind of error of its row.
type Kind = (&'static str, Repo, &'static str, Option<&'static str>);

/// Returns text of about `bytes` bytes: entries with a comma between them, made from their number.
fn entries(bytes: usize, entry: impl Fn(usize) -> String) -> (String, usize) {
    let (mut text, mut count) = (String::with_capacity(bytes + 100), 0);
    while text.len() < bytes {
        let comma = if count > 0 { "," } else { "" };
        let _ = write!(text, "{comma}{}", entry(count));
        count += 1;
    }
    (text, count)
}

/// Returns a file whose header has about `bytes` bytes, of tensors with one byte.
fn long_header(bytes: usize) -> File {
    let (text, count) = entries(bytes, |at| {
        let end = at + 1;
        format!(r#""{at:x}":{{"dtype":"U8","shape":[1],"data_offsets":[{at},{end}]}}"#)
    });
    file_with_header(&format!("{{{text}}}"), count as u64)
}

/// Returns a repository with an index of many shards, each with a tensor.
fn many_shards(shards: usize) -> Repo {
    let name = |at: usize| format!("{at:06}.safetensors");
    let (map, _) = (0..shards).fold((String::new(), ""), |(text, comma), at| {
        (text + comma + &format!(r#""{at}":"{}""#, name(at)), ",")
    });
    let index = File::from_bytes(format!(r#"{{"weight_map":{{{map}}}}}"#));
    (0..shards).fold(Repo::new("x").file(INDEX, index), |repo, at| {
        repo.file(&name(at), weights(&[&at.to_string()]))
    })
}

/// Returns a repository whose weights need `config.json`.
fn packed(config: &str) -> Repo {
    let file = File::safetensors([
        ("a.qweight", "I32", &[8, 64][..]),
        ("a.qzeros", "I32", &[1, 8]),
        ("a.scales", "F16", &[1, 64]),
    ]);
    Repo::new("x").file(SINGLE, file).file("config.json", File::from_bytes(config.to_owned()))
}

/// Returns the kinds that end by themselves. `percent` is their size.
fn kinds(percent: usize) -> Vec<Kind> {
    let single = |file| Repo::new("x").file(SINGLE, file);
    let deep = "[".repeat(10_000 * percent);
    let names = (0..1_000 * percent).map(|at| format!("folder/{at:06}.npz"));
    let listing = names.fold(Repo::new("x"), |repo, path| repo.file(&path, File::from_bytes("")));
    let (map, _) = entries(2_400_000 * percent, |at| format!(r#""{at:x}":"a.safetensors""#));
    let index = File::from_bytes(format!(r#"{{"weight_map":{{{map}}}}}"#));
    let (config, _) = entries(90_000 * percent, |at| format!(r#""{at}":[{{}}]"#));
    let plain = || single(weights(&["x"]));
    vec![
        ("header", single(long_header(980_000 * percent)), "ok", None),
        ("shards", many_shards(100 * percent), "ok", None),
        ("index", Repo::new("x").file(INDEX, index), "malformed", Some("missingShards")),
        ("listing", listing, "no_weights", Some("noWeights")),
        (
            "deep-header",
            single(file_with_header(&format!(r#"{{"x":{deep}"#), 0)),
            "malformed",
            Some("malformedHeader"),
        ),
        (
            "deep-index",
            Repo::new("x").file(INDEX, File::from_bytes(format!(r#"{{"weight_map":{deep}"#))),
            "malformed",
            Some("malformedIndex"),
        ),
        ("deep-config", packed(&format!(r#"{{"quantization_config":{deep}"#)), "ok", None),
        ("config", packed(&format!("{{{config}}}")), "ok", None),
        ("redirects", plain(), "failed", Some("network")),
        (
            "claimed",
            single(File::padded(u64::MAX.to_le_bytes().to_vec(), u64::MAX)),
            "malformed",
            Some("malformedHeader"),
        ),
        ("good", plain(), "ok", None),
    ]
}

/// Returns the kinds that only a limit ends: one of bytes, or one of time.
fn endless_kinds() -> Vec<Kind> {
    let single = |file| Repo::new("x").file(SINGLE, file);
    let plain = || single(weights(&["x"]));
    let index = Repo::new("x").file(INDEX, File::from_bytes("{"));
    vec![
        ("endless-config", packed("{}"), "ok", None),
        ("endless-index", index, "too_large", Some("tooLarge")),
        ("endless-header", plain(), "failed", Some("network")),
        ("stalled", plain(), "failed", Some("timeout")),
        ("slow", single(long_header(10_000)), "failed", Some("timeout")),
    ]
}

/// Returns the fault of a request for a repository of a kind.
fn fault(path: &str) -> Option<Fault> {
    let is_of = |kind: &str| path.contains(&format!("/{kind}/"));
    let is_file = |file: &str| path.ends_with(&format!("/{file}"));
    let endless = [("config", "config.json"), ("index", INDEX), ("header", SINGLE)];
    if endless.iter().any(|(kind, file)| is_of(&format!("endless-{kind}")) && is_file(file)) {
        return Some(Fault::ENDLESS_BODY);
    }
    let faults = [
        ("redirects", Fault::redirect(307, path)),
        ("stalled", Fault::Stall),
        ("slow", Fault::Trickle { interval: Duration::from_millis(50) }),
    ];
    faults.into_iter().find_map(|(kind, fault)| is_of(kind).then_some(fault))
}

/// Waits for the end of a process. Returns its exit status and its largest memory in MB.
fn wait(mut process: Child) -> (Option<i32>, f64) {
    let status = format!("/proc/{}/status", process.id());
    let mut peak = 0.0;
    loop {
        let ended = process.try_wait().unwrap();
        let text = fs::read_to_string(&status).unwrap_or_default();
        if let Some(line) = text.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
            peak = line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0;
        }
        if let Some(ended) = ended {
            return (ended.code(), peak);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "the long run reports its measurement")]
fn hostile_repositories_are_rows_and_take_little_memory() {
    let is_soak = std::env::var_os("HF_META_SOAK").is_some();
    // The largest index has 10,000 shards, which take some minutes to read.
    let (percent, most, timeout) = if is_soak { (100, 1_000.0, "900") } else { (1, 150.0, "300") };
    let mut kinds = kinds(percent);
    if is_soak {
        kinds.append(&mut endless_kinds());
    }
    let name = |kind: &str, copy: usize| format!("{kind}/model-{copy}");
    let repos = kinds
        .iter()
        .flat_map(|(kind, repo, ..)| (0..COPIES).map(|copy| repo.renamed(&name(kind, copy))));
    let hub = LocalHub::builder().repos(repos).without_log().start().unwrap();
    hub.inject(|request, _| fault(&request.path));
    let folder = tempfile::tempdir().unwrap();
    let (list, target) = (folder.path().join("names"), folder.path().join("census"));
    let names: Vec<_> =
        (0..COPIES).flat_map(|copy| kinds.iter().map(move |(kind, ..)| name(kind, copy))).collect();
    fs::write(&list, names.join("\n")).unwrap();
    let mut command = hf_meta(hub.endpoint());
    command.args(["-q", "--retries", "1", "--timeout", timeout, "census", "read"]);
    command.arg(&list).arg("-o").arg(&target).stdout(Stdio::null());
    let (code, peak) = wait(command.spawn().unwrap());
    let requests = hub.counts().total();
    eprintln!("{} repositories: {peak:.0} MB, {requests} requests", names.len());
    assert_eq!(code, Some(3), "some repositories fail");
    let rows = rows(&target);
    assert_eq!(rows.len(), names.len());
    for (kind, _, status, error) in &kinds {
        for copy in 0..COPIES {
            let row = &rows[&name(kind, copy)];
            assert_eq!((&*row.status, row.error_kind.as_deref()), (*status, *error), "{row:?}");
        }
    }
    assert!(peak < most, "{peak} MB");
}
