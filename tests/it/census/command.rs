//! `hf-meta census` as people use it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use hf_meta_census::{CensusRow, CensusRun, StoredHeader, TensorRow};
use parquet::file::reader::{FileReader as _, SerializedFileReader};

use super::{GeneratedHub, assert_true};
use crate::command::{hf_meta, run};
use crate::hub::{Fault, LocalHub};
use crate::support;

#[tokio::test(flavor = "multi_thread")]
async fn the_command_lists_reads_packs_and_compares() {
    let generated = GeneratedHub::new(300);
    let hub = &generated.hub;
    let (list, census, packed) =
        (generated.path("repos.parquet"), generated.path("census"), generated.path("all.parquet"));
    let listed = run(hub, &["census", "list", "-o", &list]).data();
    assert!(listed.starts_with("wrote 300 models to "), "{listed}");
    let overview = run(hub, &["-q", "--from", &list, "--format", "csv"]);
    assert_eq!(overview.stdout.lines().count(), 301, "{}", overview.stderr);
    let read = run(hub, &["-q", "census", "read", &list, "-o", &census]).data();
    assert!(read.starts_with("status ") && read.contains("\nok "), "{read}");
    assert_true(&generated.rows("census"), generated.truths());
    assert!(
        run(hub, &["census", "pack", &census, "-o", &packed])
            .data()
            .starts_with("wrote 300 rows to ")
    );
    let rows: Vec<_> =
        hf_meta_census::rows::<CensusRow>(packed.as_ref()).unwrap().map(Result::unwrap).collect();
    assert!(rows.is_sorted_by_key(|row| row.repo.clone()));
    assert_eq!(
        rows.into_iter().map(|row| (row.repo.clone(), row)).collect::<BTreeMap<_, _>>(),
        generated.rows("census")
    );
    let same = run(hub, &["census", "diff", &census, &packed]);
    assert_eq!((same.code, &*same.stdout), (0, "no differences\n"));
    generated.models.push();
    let names = generated.path("names.txt");
    let all: Vec<_> = generated.truths().map(|truth| truth.repo).collect();
    fs::write(&names, all[1..].join("\n")).unwrap();
    let other = generated.path("other");
    assert_eq!(run(hub, &["-q", "census", "read", &names, "-o", &other]).code, 0);
    let changes = |format| {
        let changes = run(hub, &["census", "diff", &packed, &other, "--format", format]);
        assert_eq!(changes.code, 1, "{}", changes.stderr);
        changes.stdout
    };
    let tsv = changes("tsv");
    assert!(tsv.contains(&format!("removed\t{}\t\t\t\n", all[0])), "{tsv}");
    assert!(tsv.contains("\tcommit\t") && tsv.contains("\tlayout_digest\t"), "{tsv}");
    let json = changes("json");
    assert_eq!(json.lines().count(), tsv.lines().count() - 1);
    let line = json.lines().find(|line| line.contains("\"column\":\"created_at\"")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert!(line["before"].is_i64() && line["after"].is_null(), "{line}");
    assert!(changes("table").starts_with("change "));
}

/// A publication has the rows of the census, and its files and tensors add up to the totals of the rows.
#[tokio::test(flavor = "multi_thread")]
async fn a_publication_has_all_tables() {
    let generated = GeneratedHub::new(300);
    let hub = &generated.hub;
    let (list, census, folder) =
        (generated.path("repos.parquet"), generated.path("census"), generated.path("published"));
    generated.list("repos.parquet").await;
    assert_eq!(run(hub, &["-q", "census", "read", &list, "-o", &census]).code, 0);
    let args = ["census", "publish", &census, "-o", &folder, "--tensors", "--license", "cc0-1.0"];
    let published = run(hub, &args);
    assert!(published.stdout.starts_with("wrote 300 rows to "), "{}", published.stderr);
    let file = |name: &str| std::path::PathBuf::from(format!("{folder}/{name}"));
    let rows =
        hf_meta_census::rows::<CensusRow>(&file("repos.parquet")).unwrap().map(Result::unwrap);
    let rows: BTreeMap<_, _> = rows.map(|row| (row.repo.clone(), row)).collect();
    assert_eq!(rows, generated.rows("census"));
    let runs =
        hf_meta_census::rows::<CensusRun>(&file("runs.parquet")).unwrap().map(Result::unwrap);
    let runs: Vec<_> = runs.collect();
    assert!(runs.len() == 1 && runs[0].repos == 300 && runs[0].tool.starts_with("hf-meta "));
    let files =
        hf_meta_census::rows::<StoredHeader>(&file("files.parquet")).unwrap().map(Result::unwrap);
    assert!(files.is_sorted_by_key(|file| (file.repo, file.path)));
    let all =
        hf_meta_census::rows::<TensorRow>(&file("tensors.parquet")).unwrap().map(Result::unwrap);
    let all: Vec<_> = all.collect();
    assert!(all.is_sorted_by_key(|tensor| (&tensor.repo, &tensor.path)));
    let mut tensors = BTreeMap::<_, i64>::new();
    for tensor in &all {
        *tensors.entry(&tensor.repo).or_default() += 1;
    }
    for table in ["repos", "files", "tensors"] {
        let table = File::open(file(&format!("{table}.parquet"))).unwrap();
        let reader = SerializedFileReader::new(table).unwrap();
        let group = reader.metadata().row_group(0);
        assert_eq!(group.sorting_columns().unwrap()[0].column_idx, 0);
        assert!(group.column(0).bloom_filter_offset().is_some());
    }
    for row in rows.values().filter(|row| row.status == "ok") {
        assert_eq!(tensors.get(&row.repo).copied(), row.tensors, "{row:?}");
    }
    let text = |name: &str| fs::read_to_string(file(name)).unwrap();
    assert!(text("README.md").contains("license: \"cc0-1.0\"\nconfigs:\n- config_name: repos"));
    assert!(text("SCHEMA.md").contains("| `parameter_total` | int64? | Number of parameters |"));
    let key = "| `files` | ";
    let line = text("README.md").lines().find_map(|line| line.strip_prefix(key).map(str::to_owned));
    assert!(line.unwrap().contains(" | `repo`, `path` | The bytes that the counts"));
    // Files of others are kept.
    // A second publication keeps what people wrote into the card.
    let card = fs::read_to_string(file("README.md")).unwrap();
    let edited = card.replacen("---\n", "---\ntags:\n- census\n", 1) + "\n# Our notes\n\nWords.\n";
    fs::write(file("README.md"), edited.replace("| 300 |", "| 299 |")).unwrap();
    assert_eq!(run(hub, &args[..5]).code, 0);
    let kept = fs::read_to_string(file("README.md")).unwrap();
    assert!(kept.starts_with("---\ntags:\n- census\npretty_name: "), "{kept}");
    assert!(kept.ends_with("\n# Our notes\n\nWords.\n"), "{kept}");
    assert!(kept.contains("license: \"cc0-1.0\"\n"), "{kept}");
    assert!(kept.contains("| 300 |") && !kept.contains("| 299 |"), "{kept}");
    assert!(!kept.contains("tensors.parquet"), "{kept}");
    let other = generated.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(format!("{other}/README.md"), "notes").unwrap();
    let refused = run(hub, &["census", "publish", &census, "-o", &other]);
    assert!(refused.code == 4 && refused.stderr.contains("README.md"), "{}", refused.stderr);
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
    let named = generated.path("x.parquet");
    assert_eq!(run(hub, &["census", "publish", &census, "-o", &named]).code, 2);
    // A part is missing.
    let part = fs::read_dir(format!("{census}/repos")).unwrap().next().unwrap().unwrap();
    fs::remove_file(part.path()).unwrap();
    assert_eq!(run(hub, &["census", "publish", &census, "-o", &folder]).code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_limited_and_replaces_only_lists() {
    let generated = GeneratedHub::new(50);
    let hub = &generated.hub;
    let (list, other) = (generated.path("repos.parquet"), generated.path("notes"));
    let all = run(hub, &["census", "list", "-o", &list]).data();
    assert!(all.starts_with("wrote 50 models"), "{all}");
    let some = run(hub, &["census", "list", "-o", &list, "--limit", "7"]).data();
    assert!(some.starts_with("wrote 7 models"), "{some}");
    let names = run(hub, &["-q", "--from", &list, "--format", "csv"]).stdout;
    assert_eq!(names.lines().count(), 8);
    fs::write(&other, "notes").unwrap();
    let refused = run(hub, &["census", "list", "-o", &other]);
    assert!(refused.code == 2 && refused.stderr.contains("would replace"), "{}", refused.stderr);
    let csv = run(hub, &["census", "list", "-o", &generated.path("l.csv")]).stderr;
    assert!(csv.contains("the output is Parquet, so its name cannot end with .csv"), "{csv}");
    let census = generated.path("census");
    assert_eq!(run(hub, &["-q", "census", "read", &list, "-o", &census]).code, 0);
    let packed = hf_meta(hub.endpoint()).args(["census", "pack", &census, "-o", "-"]).output();
    let file = generated.path("packed");
    fs::write(&file, packed.unwrap().stdout).unwrap();
    assert_eq!(hf_meta_census::rows::<CensusRow>(file.as_ref()).unwrap().count(), 7);
}

/// A census with changed counts differs from the Hub.
#[tokio::test(flavor = "multi_thread")]
async fn a_sample_is_compared_with_the_hub() {
    let generated = GeneratedHub::new(120);
    let hub = &generated.hub;
    let (list, census) = (generated.path("repos.parquet"), generated.path("census"));
    generated.list("repos.parquet").await;
    assert_eq!(run(hub, &["-q", "census", "read", &list, "-o", &census]).code, 0);
    let verify = |args: &[&str]| run(hub, &[&["census", "verify", &census], args].concat());
    let same = verify(&["--sample", "1000"]);
    let counted = generated.rows("census").values().filter(|row| row.path.is_some()).count();
    let message = format!("no differences in {counted} repositories\n");
    assert_eq!((same.code, &*same.stdout), (0, &*message), "{}", same.stderr);
    hub.clear_log();
    let repos = |seed: &str| {
        hub.clear_log();
        assert_eq!(verify(&["--sample", "5", "--seed", seed]).code, 0);
        hub.log().iter().map(|request| super::repo(&request.path)).collect::<BTreeSet<_>>()
    };
    let (first, second) = (repos("1"), repos("2"));
    assert!(first.len() == 5 && first == repos("1") && first != second, "{first:?} {second:?}");
    // A file has disappeared.
    let is_single = |row: &CensusRow| row.path.as_deref() == Some("model.safetensors");
    let repo = generated.rows("census").into_values().find(is_single).unwrap().repo;
    let weights = format!("/{repo}/resolve/");
    hub.inject(move |request, _| {
        let is_weights = request.path.contains(&weights) && request.path.ends_with(".safetensors");
        is_weights.then(|| Fault::Status(404, vec![("x-error-code", "EntryNotFound".to_owned())]))
    });
    let other = verify(&["--sample", "1000", "--format", "tsv"]);
    assert_eq!(other.code, 1, "{}", other.stderr);
    let line = format!("changed\t{repo}\tstatus\tok\tgone\n");
    assert!(other.stdout.contains(&line), "{}", other.stdout);
    // The Hub fails.
    hub.inject(|_, _| Some(Fault::Status(500, vec![])));
    assert_eq!(verify(&["--retries", "0"]).code, 3);
}

/// `script` of util-linux gives the command a terminal.
#[cfg(target_os = "linux")]
#[test]
fn the_progress_shows_the_wait_for_a_rate_limit() {
    let (hub, folder) = (LocalHub::start([]).unwrap(), tempfile::tempdir().unwrap());
    hub.inject(|_, _| Some(Fault::Status(429, vec![("retry-after", "100".to_owned())])));
    let names = folder.path().join("names");
    fs::write(&names, "org/model").unwrap();
    let meta = hf_meta(hub.endpoint());
    let program = meta.get_program().display();
    let (names, target) = (names.display(), folder.path().join("census"));
    let target = target.display();
    let line = format!("stty cols 200; exec {program} census read {names} -o {target}");
    let mut command = Command::new("script");
    command.args(["-qefc", &line, "/dev/null"]).env_clear();
    command.envs(meta.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("TERM", "xterm").env("PATH", "/usr/bin:/bin");
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        support::program_is_missing("`script`", "the progress of a census in a terminal");
        return;
    };
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut screen, mut byte) = (Vec::new(), [0]);
    while !String::from_utf8_lossy(&screen).contains(", paused by the Hub's rate limit for ") {
        stdout.read_exact(&mut byte).unwrap();
        screen.extend(byte);
    }
    stdin.write_all(b"\x03").unwrap();
    stdout.read_to_end(&mut screen).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 2), "ended by SIGINT");
    assert_eq!(hub.log().len(), 2, "one request for each usual name");
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_errors_are_one_sentence() {
    let generated = GeneratedHub::new(3);
    let hub = &generated.hub;
    let path = |name| generated.path(name);
    fs::write(path("empty"), "# nothing\n").unwrap();
    fs::write(path("names"), "org1/model-1\n").unwrap();
    fs::write(path("others"), "org2/model-2\n").unwrap();
    fs::write(path("table.csv"), "likes\n1\n").unwrap();
    fs::write(path("broken"), "PAR1 and no more").unwrap();
    assert_eq!(run(hub, &["-q", "census", "read", &path("names"), "-o", &path("census")]).code, 0);
    let no_table = format!("failed to read the table `{}`", path("broken"));
    fs::write(path("list"), "").unwrap();
    fs::create_dir(path("folder")).unwrap();
    assert_eq!(run(hub, &["census", "list", "-o", &path("damaged")]).code, 0);
    let mut damaged = fs::read(path("damaged")).unwrap();
    damaged[4..64].fill(0xff);
    fs::write(path("damaged"), damaged).unwrap();
    let no_list = format!("failed to read the table `{}`", path("damaged"));
    let cases: [(&[&str], i32, &str); 16] = [
        (&["list", "-o", &path(".")], 4, "failed to write"),
        (&["list", "-o", &path("folder")], 4, "it is not a regular file"),
        (&["list", "--since", &path("list"), "-o", &path("./list")], 2, "would overwrite"),
        (&["list", "--since", "2026-13-01", "-o", &path("x")], 2, "neither a date"),
        (&["list", "--offline", "-o", &path("x")], 2, "cannot read `"),
        (&["read", &path("missing"), "-o", &path("x")], 4, "failed to read"),
        (&["read", &path("empty"), "-o", &path("x")], 2, "contains no repositories"),
        (&["read", &path("table.csv"), "-o", &path("x")], 2, "has no column `repo`"),
        (&["read", &path("broken"), "-o", &path("x")], 4, &no_table),
        (&["read", &path("damaged"), "-o", &path("x")], 4, &no_list),
        (&["diff", &path("broken"), &path("census")], 4, &no_table),
        (&["read", &path("others"), "-o", &path("census")], 2, "census of a different list"),
        (&["read", &path("names"), "-o", &path("names/below")], 4, "failed to create"),
        (&["count", &path("none")], 2, "contains no census"),
        (&["diff", &path("none"), &path("census")], 2, "contains no census"),
        (&["count", &path("census"), "--jobs", "3"], 2, "unexpected argument '--jobs'"),
    ];
    for (args, code, message) in cases {
        let args: Vec<_> = ["-q", "census"].into_iter().chain(args.iter().copied()).collect();
        let output = run(hub, &args);
        assert_eq!(output.code, code, "{args:?}: {}", output.stderr);
        assert!(output.stderr.contains(message), "{args:?}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{args:?}");
    }
    assert!(!fs::exists(path("folder.pages")).unwrap(), "it was refused before the first request");
}

/// A link to the list on another disk stays one.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_written_through_a_link() {
    let generated = GeneratedHub::new(3);
    let (link, target) = (generated.path("link"), generated.path("target"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert_eq!(run(&generated.hub, &["-q", "census", "list", "-o", &target]).code, 0);
    assert_eq!(run(&generated.hub, &["-q", "census", "list", "-o", &link]).code, 0);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read(&target).unwrap().starts_with(b"PAR1"));
    let since_the_future = ["--since", "2999-12-31", "-o", &target];
    let output = run(&generated.hub, &[&["census", "list"][..], &since_the_future].concat());
    assert!(output.stdout.starts_with("wrote 0 models to "), "{}{}", output.stdout, output.stderr);
}

/// The command is killed at some request; 20 times with `HF_META_SOAK`.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_census_is_completed_by_the_next_run() {
    let kills = if std::env::var_os("HF_META_SOAK").is_some() { 20 } else { 3 };
    let generated = GeneratedHub::new(400);
    let manifest = generated.list("repos.parquet").await;
    generated.read(&manifest, "whole").await;
    let (list, target) = (generated.path("repos.parquet"), generated.path("killed"));
    let read = || {
        let mut command = hf_meta(generated.hub.endpoint());
        command.args(["-q", "census", "read", &list, "-o", &target]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    for kill in 0..kills {
        let (sender, killed) = mpsc::channel();
        let request = 100 + kill * 631 % 800;
        let requests = std::sync::atomic::AtomicUsize::new(0);
        generated.hub.inject(move |_, _| {
            if requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == request {
                let _ = sender.send(());
            }
            None
        });
        let mut process = read().spawn().unwrap();
        // A run that ends before the request has dropped nothing: the sender remains with the Hub.
        while process.try_wait().unwrap().is_none() {
            if killed.recv_timeout(std::time::Duration::from_millis(20)).is_ok() {
                process.kill().unwrap();
            }
        }
        process.wait().unwrap();
        // A part that is there is whole.
        if fs::exists(format!("{target}/repos")).unwrap() {
            assert!(generated.rows("killed").len() <= 400);
        }
    }
    assert!(read().status().unwrap().success());
    assert_eq!(generated.rows("killed"), generated.rows("whole"));
}
