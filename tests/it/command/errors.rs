//! Error messages and exit statuses.

use super::{CommandOutput, run};
use crate::call::bad_input::{bad_files, bad_indexes};
use crate::hub::{Fault, File, LocalHub, Repo};
use crate::support;

#[test]
fn each_kind_of_error_has_its_exit_status() {
    let hub = LocalHub::builder()
        .repo(support::sharded("org/good"))
        .repo(Repo::new("org/empty"))
        .repo(Repo::new("org/bad").file("model.safetensors", File::from_bytes("")))
        .repo(support::sharded("org/gated").gated())
        .start()
        .unwrap();
    let cases: [(&[&str], i32); 17] = [
        (&["org/good"], 0),
        (&["-v", "verify", "org/good"], 0),
        (&["--json", "verify", "org/good"], 2),
        (&["--", "verify"], 3),
        (&["--", "census"], 3),
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

#[test]
fn a_response_without_headers_of_a_hub_is_no_answer_about_a_repository() {
    let hub = LocalHub::start([support::sharded("org/good")]).unwrap();
    for status in [401, 403, 404, 410] {
        hub.inject(move |_, _| Some(Fault::ForeignStatus(status)));
        for args in [&["org/good"][..], &["verify", "org/good"], &["org/good", "--plan", "hub"]] {
            let ran = run(&hub, args);
            assert_eq!(ran.code, 3, "{status} {args:?}: {}", ran.stderr);
            let words = ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
            let help = "help: the server does not look like a Hub; check HF_ENDPOINT";
            assert!(words.contains(help), "{status} {args:?}: {words}");
        }
    }
}

/// An option of one view that is given with another view, or with none, would be ignored.
#[test]
fn ineffective_options_are_rejected() {
    let hub = LocalHub::start([support::sharded("org/good")]).unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["--filter", "*"], "xm"),
        (&["--summary"], "txm"),
        (&["--sets"], "txm"),
        (&["--json"], "tx"),
        (&["--tree"], "jtxm"),
    ];
    for (option, views) in cases {
        let views = views.chars().map(|view| format!("-{view}"));
        for view in views {
            let ran = run(&hub, &[&["org/good", &*view], option].concat());
            assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{option:?} {view}");
        }
    }
    for option in ["--filter=*", "--summary"] {
        assert_eq!(run(&hub, &["org/good", option]).code, 2, "{option}");
        assert_eq!(run(&hub, &["org/good", option, "--format", "csv"]).code, 2, "{option}");
    }
    assert_eq!(run(&hub, &["org/good", "--summary", "--tree"]).code, 2);
    assert_eq!(run(&hub, &["org/good", "--json", "--summary", "--filter=*"]).code, 2);
    let verified = run(&hub, &["verify", "org/good", "--plan", "hub"]);
    assert_eq!((verified.code, verified.stdout.as_str()), (2, ""), "{}", verified.stderr);
    assert_eq!(run(&hub, &["org/good", "-t", "--filter", "x"]).data().lines().count(), 2);
}

/// A folder in place of a file cannot be read, not even by root.
#[test]
fn an_unreadable_local_file_has_its_own_exit_status() {
    let hub = LocalHub::start([]).unwrap();
    let [single, sharded] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let index = r#"{"weight_map":{"a":"x.safetensors"}}"#;
    std::fs::write(sharded.path().join("model.safetensors.index.json"), index).unwrap();
    std::fs::create_dir(sharded.path().join("x.safetensors")).unwrap();
    std::fs::create_dir(single.path().join("model.safetensors")).unwrap();
    for folder in [&single, &sharded] {
        let path = folder.path().to_str().unwrap();
        for args in [&[path][..], &["verify", path]] {
            let ran = run(&hub, args);
            assert_eq!(ran.code, 4, "{args:?}: {}{}", ran.stdout, ran.stderr);
        }
    }
}

/// A folder may have any name. The name of a file must be UTF-8, as in a repository.
#[cfg(target_os = "linux")]
#[test]
fn names_that_are_not_utf8_are_reported() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let hub = LocalHub::start([]).unwrap();
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join(OsStr::from_bytes(b"model\xff"));
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join(OsStr::from_bytes(b"m\xff.safetensors"));
    std::fs::write(&file, support::file_start("{}")).unwrap();
    let inspect = |path| CommandOutput::new(super::hf_meta(hub.endpoint()).arg(path));
    let CommandOutput { code, stderr, .. } = inspect(&folder);
    let warning = "warning: skipped files whose names are not UTF-8 (files: 1)\n";
    assert!(code == 1 && stderr.starts_with(warning), "{stderr}");
    let CommandOutput { code, stderr, .. } = inspect(&file);
    assert!(code == 4 && stderr.contains("the file name is not UTF-8"), "{code}: {stderr}");
    std::fs::write(folder.join("model.safetensors"), support::file_start("{}")).unwrap();
    assert_eq!(inspect(&folder).code, 0);
}

/// The error names the invalid file, and stdout has no data: only JSON has a line with the error.
#[test]
fn an_invalid_file_prints_no_data() {
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
        let CommandOutput { code, stdout, stderr } = run(&hub, &args);
        let lines = if view.contains(&"--json") { names.len() } else { 0 };
        assert_eq!((code, stdout.lines().count()), (1, lines), "{view:?}");
        assert!(stdout.lines().all(|line| line.contains(r#","error":{"code":"malformed"#)));
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
fn errors_explain_what_to_do_next() {
    let hub = LocalHub::builder()
        .repo(support::sharded("org/gated").gated())
        .repo(Repo::new("src").file("x.npz", File::from_bytes("")))
        .start()
        .unwrap();
    let endpoint = hub.endpoint();
    let cases: [(&[&str], &str, String); 7] = [
        (
            &["org/gated"],
            "error: repository `org/gated` is gated",
            format!("no token was sent; accept the conditions at {endpoint}/org/gated,"),
        ),
        (
            &["org/gated", "--token", "hf_old"],
            "error: the Hub rejected the token",
            format!("{endpoint}/settings/tokens"),
        ),
        (&["org/none"], "error: repository `org/none` not found", "check the spelling".to_owned()),
        (
            &["gpt2/model.safetensors"],
            "error: `gpt2/model.safetensors` not found",
            "for a file on the Hub, use REPO --path FILE".to_owned(),
        ),
        (&["src"], "error: no supported weights in `src`", "use ./src".to_owned()),
        (
            &["a b"],
            "error: `a b` is not a repository, URL or path\n  caused by: `a b` is not a repository name",
            "`hf-meta --help`".to_owned(),
        ),
        (
            &["org/x", "--endpoint", "http://127.0.0.1:1", "--retries", "0"],
            "error: failed to fetch",
            "check that this machine can reach the server; set https_proxy to use a proxy, --endpoint or HF_ENDPOINT to use another Hub, or --offline to read cached data".to_owned(),
        ),
    ];
    for (args, message, help) in cases {
        let CommandOutput { stdout, stderr, .. } = run(&hub, args);
        assert_eq!(stdout, "");
        assert!(stderr.starts_with(message), "{stderr}");
        assert!(
            stderr.lines().any(|line| line.starts_with("  help: ") && line.contains(&help)),
            "{stderr}"
        );
    }
}

#[test]
fn many_failures_have_one_line_each_and_one_hint() {
    let hub = LocalHub::start([support::sharded("org/good")]).unwrap();
    let names = ["org/good", "org/a", "org/b", "org/c"];
    let CommandOutput { stderr, .. } = run(&hub, &names);
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), 5, "{stderr}");
    for (line, name) in [(0, "org/a"), (2, "org/b"), (3, "org/c")] {
        let expected = format!("error: {name}: repository `{name}` not found or not accessible: ");
        assert!(lines[line].starts_with(&expected), "{stderr}");
    }
    assert!(lines[1].starts_with("  help: check the spelling"), "{stderr}");
    assert_eq!(lines[4], "3 of 4 could not be read");
}

/// Invalid files cannot be counted, but they can be verified.
#[test]
fn a_list_counts_unreadable_and_invalid_repositories() {
    let invalid = Repo::new("org/invalid").file("model.safetensors", File::from_bytes("{}"));
    let hub = LocalHub::start([support::sharded("org/good"), invalid]).unwrap();
    let repos = ["org/good", "org/invalid", "org/none"];
    let cases = [
        (&["--format", "csv"][..], &["2 of 3 could not be read"][..]),
        (&["verify"], &["1 of 3 could not be read", "1 of 3 failed a check"]),
    ];
    for (command, expected) in cases {
        let CommandOutput { stderr, .. } = run(&hub, &[command, &repos].concat());
        let lines: Vec<_> = stderr.lines().filter(|line| line.contains(" of 3 ")).collect();
        assert_eq!(lines, expected, "{stderr}");
    }
}

#[test]
fn an_index_that_contradicts_its_shards_is_to_be_verified() {
    let folder = tempfile::tempdir().unwrap();
    let index =
        r#"{"metadata":{"total_size":2},"weight_map":{"x":"a.safetensors","y":"a.safetensors"}}"#;
    std::fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
    let header = r#"{"x":{"dtype":"BOOL","shape":[0],"data_offsets":[0,0]}}"#;
    std::fs::write(folder.path().join("a.safetensors"), support::file_start(header)).unwrap();
    let hub = LocalHub::start([]).unwrap();
    let path = folder.path().to_str().unwrap();
    let ran = run(&hub, &[path]);
    let help = format!("  help: run `hf-meta verify {path}` to list everything that is wrong\n");
    assert!(ran.code == 1 && ran.stderr.ends_with(&help), "{}", ran.stderr);
}

#[test]
fn differences_and_trouble_have_different_codes() {
    let invalid = Repo::new("org/invalid").file("model.safetensors", File::from_bytes("{}"));
    let other = Repo::new("org/other").file("model.safetensors", support::weights(&["x"]));
    let hub = LocalHub::start([support::sharded("org/a"), other, invalid]).unwrap();
    for (repo, code) in [("org/a", 0), ("org/other", 1), ("org/invalid", 2), ("org/none", 3)] {
        assert_eq!(run(&hub, &["diff", "org/a", repo]).code, code, "{repo}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn results_and_status_do_not_depend_on_stderr() {
    let hub = support::fixtures_hub();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = super::hf_meta(hub.endpoint());
    let ran = command.args(["org/none", "GPT2", "--format", "csv"]).stderr(full).output().unwrap();
    let rows = String::from_utf8(ran.stdout).unwrap();
    assert!(rows.contains("org/none,,") && rows.lines().count() == 3, "{rows}");
    assert_eq!(ran.status.code(), Some(3));
}

/// The author of a repository cannot mend a login page, an incomplete download or a rate limit.
#[test]
fn an_unknown_quantization_lists_the_existing_ones() {
    let hub = support::fixtures_hub();
    for path in ["q3_k_s", "Q4KM"] {
        let missing = run(&hub, &["example/Llama-3.2-1B-GGUF", "--path", path]);
        let expected = format!(
            "error: `example/Llama-3.2-1B-GGUF/{path}` not found\n  \
             caused by: no weights with quantization `{path}`\n  \
             help: set --path to one of them: BF16, Q2_K, Q4_K_M, Q8_0\n"
        );
        assert_eq!((missing.code, missing.stderr), (1, expected));
    }
}

#[test]
fn the_hint_fits_the_cause() {
    let index = support::index(&[("x", "a.safetensors")]);
    let hub = LocalHub::builder()
        .repo(support::sharded("org/portal"))
        .repo(support::sharded("org/limited"))
        .repo(Repo::new("org/hole").file("model.safetensors.index.json", index));
    let hub = hub.start().unwrap();
    hub.inject(|request, _| match request.path.split('/').nth(2) {
        Some("portal") => Some(Fault::HtmlPage { is_chunked: false }),
        Some("limited") => {
            Some(Fault::Status(429, vec![("ratelimit", r#""resolvers";r=0;t=3600"#.to_owned())]))
        }
        _ => None,
    });
    let folder = tempfile::tempdir().unwrap();
    let incomplete = folder.path().join("x.safetensors");
    std::fs::write(&incomplete, 1_000_u64.to_le_bytes()).unwrap();
    // A text that is longer than any known pickle.
    let large = folder.path().join("x.bin");
    std::fs::write(&large, b"\x80\x02X\0\0\0\x10").unwrap();
    std::fs::OpenOptions::new().write(true).open(&large).unwrap().set_len(1 << 30).unwrap();
    let cases = [
        (large.to_str().unwrap(), "convert the checkpoint to safetensors"),
        ("org/portal", "the response came from a login page or a proxy"),
        ("org/limited", "authenticated requests have a higher rate limit"),
        ("org/hole", "run `hf-meta verify org/hole` to list everything that is missing"),
        (incomplete.to_str().unwrap(), "the files are incomplete or invalid; download them again"),
        ("org/none", "check the spelling"),
        ("verfy", "did you mean the command `hf-meta verify`?"),
    ];
    for (source, hint) in cases {
        let stderr = run(&hub, &[source]).stderr;
        assert!(stderr.contains(&format!("help: {hint}")), "{source}: {stderr}");
        for wrong in ["author", "--timeout", "--path", "username"] {
            assert!(!stderr.contains(wrong), "{source}: {stderr}");
        }
    }
}
