//! `hf-meta census` as people use it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use super::{GeneratedHub, assert_true, without_cost};
use crate::cli::{hf_meta, run};
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
        hf_meta_census::model_rows(packed.as_ref()).unwrap().map(Result::unwrap).collect();
    assert!(rows.is_sorted_by_key(|row| row.repo.clone()));
    assert_eq!(
        without_cost(rows.into_iter().map(|row| (row.repo.clone(), row)).collect()),
        without_cost(generated.rows("census"))
    );
    let same = run(hub, &["census", "diff", &census, &packed]);
    assert_eq!((same.code, same.stdout.lines().count()), (0, 1));
    generated.models.push();
    let names = generated.path("names.txt");
    let all: Vec<_> = generated.truths().map(|truth| truth.repo).collect();
    fs::write(&names, all[1..].join("\n")).unwrap();
    let other = generated.path("other");
    assert_eq!(run(hub, &["-q", "census", "read", &names, "-o", &other]).code, 0);
    let changes = run(hub, &["census", "diff", &packed, &other]);
    assert_eq!(changes.code, 1);
    assert!(changes.stdout.contains(&format!("removed\t{}\t", all[0])), "{}", changes.stdout);
    assert!(changes.stdout.contains("\tcommit\t"), "{}", changes.stdout);
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
    let cases: [(&[&str], i32, &str); 15] = [
        (&["list", "-o", &path(".")], 4, "failed to write"),
        (&["list", "-o", &path("folder")], 4, "it is not a regular file"),
        (&["list", "--since", &path("list"), "-o", &path("./list")], 2, "would overwrite"),
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
    fs::write(&target, "old").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
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
    let generated = GeneratedHub::new(700);
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
        let request = 100 + kill * 631 % 1_300;
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
        if fs::exists(format!("{target}/models")).unwrap() {
            assert!(generated.rows("killed").len() <= 700);
        }
    }
    assert!(read().status().unwrap().success());
    assert_eq!(without_cost(generated.rows("killed")), without_cost(generated.rows("whole")));
}
