//! Targets that are full, or disappear.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{GeneratedHub, assert_true, rows};
use crate::command::{CommandOutput, hf_meta, run};
use crate::hub::{Fault, LocalHub};

/// The command, in which a file has at most some KiB. A write above that fails as on a full disk.
fn with_small_files(endpoint: &str, kilobytes: usize, args: &[&str]) -> CommandOutput {
    let meta = hf_meta(endpoint);
    let mut command = Command::new("sh");
    // The shell counts blocks of 512 bytes. The signal would end the command without an error.
    let limit = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", 2 * kilobytes);
    command.args(["-c", &limit]).arg(meta.get_program()).args(args);
    command.env_clear().envs(meta.get_envs().filter_map(|(name, value)| Some((name, value?))));
    CommandOutput::new(&mut command)
}

/// The tables of a folder and its subfolders. The names of unfinished ones end with a number.
fn tables(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let files = entries.flat_map(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() { tables(&path) } else { vec![path.display().to_string()] }
    });
    files.filter(|file| file.ends_with(".parquet")).collect()
}

/// Headers are in a temporary file first, which is full before the target. A part without headers needs the target only.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_the_census_and_the_next_run_completes_it() {
    let generated = GeneratedHub::new(100);
    let (hub, endpoint) = (&generated.hub, generated.hub.endpoint());
    let path = |name| generated.path(name);
    let (list, census, packed) = (path("repos.parquet"), path("census"), path("all.parquet"));
    fs::write(path("names"), "org/none\norg/nothing\n").unwrap();
    let temporary = std::env::temp_dir().display().to_string();
    let run_full = |kilobytes, args: &[&str], target: &str, code| {
        let args: Vec<_> = ["-q", "census"].into_iter().chain(args.iter().copied()).collect();
        let full = with_small_files(endpoint, kilobytes, &args);
        assert_eq!((full.code, &*full.stdout), (code, ""), "{args:?}: {}", full.stderr);
        let message = format!("error: failed to write `{target}");
        assert!(full.stderr.starts_with(&message), "{args:?}: {}", full.stderr);
        assert!(full.stderr.contains("File too large"), "{args:?}: {}", full.stderr);
    };
    let list_args = ["list", "-o", &list];
    run_full(4, &list_args, &format!("{list}.pages/000000.parquet"), 4);
    assert_eq!(tables(generated.folder.path()), [""; 0]);
    assert_eq!(run(hub, &["census", "list", "-o", &list]).code, 0);
    run_full(8, &["read", &list, "-o", &census], &temporary, 4);
    let few = path("few");
    run_full(4, &["read", &path("names"), "-o", &few], &format!("{few}/repos/"), 4);
    assert_eq!(tables(format!("{few}/repos").as_ref()), [""; 0]);
    for (list, target) in [(&list, &census), (&path("names"), &few)] {
        assert_eq!(run(hub, &["-q", "census", "read", list, "-o", target]).code, 0);
    }
    assert_eq!(generated.rows("few").len(), 2);
    assert_true(&generated.rows("census"), generated.truths());
    // A part is replaced as a whole, or remains.
    let before = generated.rows("few");
    run_full(4, &["count", &few], &format!("{few}/repos/"), 4);
    assert_eq!(generated.rows("few"), before);
    run_full(8, &["pack", &census, "-o", &packed], &temporary, 4);
    assert!(!fs::exists(format!("{packed}.part")).unwrap());
    assert_eq!(run(hub, &["census", "pack", &census, "-o", &packed]).code, 0);
}

#[test]
fn a_target_that_disappears_is_an_error_and_the_next_run_completes_it() {
    type Damage = fn(&str);
    let remove: Damage = |target| fs::remove_dir_all(target).unwrap();
    let replace: Damage = |target| {
        fs::remove_dir_all(target).unwrap();
        fs::write(target, "a file").unwrap();
    };
    let cases = [
        ("removed", remove, 1, "1 of 2 parts are missing from"),
        ("replaced", replace, 4, "failed to read"),
    ];
    let (hub, folder) = (LocalHub::start([]).unwrap(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let names: Vec<_> = (0..257).map(|n| format!("org/model-{n}")).collect();
    fs::write(path("names"), names.join("\n")).unwrap();
    for (name, damage, code, message) in cases {
        // The last part waits until the first one is there.
        let (damaged, target) = (AtomicBool::new(false), path(name));
        hub.inject(move |request, _| {
            if !request.path.contains("/model-256/") || damaged.load(Ordering::Relaxed) {
                return None;
            }
            if tables(format!("{target}/repos").as_ref()).is_empty() {
                return Some(Fault::Status(503, vec![]));
            }
            damage(&target);
            damaged.store(true, Ordering::Relaxed);
            None
        });
        let target = path(name);
        let args = ["-q", "--retries", "20", "census", "read", &path("names"), "-o", &target];
        let output = run(&hub, &args);
        assert_eq!((output.code, &*output.stdout), (code, ""), "{name}: {}", output.stderr);
        let message = format!("error: {message} `{target}");
        assert!(output.stderr.starts_with(&message), "{name}: {}", output.stderr);
        if name == "replaced" {
            fs::remove_file(&target).unwrap();
        }
        assert_eq!(run(&hub, &args).code, 0, "{name}");
        assert_eq!(rows(target.as_ref()).len(), names.len(), "{name}");
    }
}
