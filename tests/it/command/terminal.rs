//! Output to terminals and pipes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use serde_json::Value;

use super::{CommandOutput, hf_meta, run};
use crate::hub::{Fault, LocalHub, Repo};
use crate::support;

#[test]
fn text_from_the_network_is_escaped() {
    let header =
        r#"{"\u001b]0;owned\u0007\u202e":{"dtype":"\u001b[2J","shape":[],"data_offsets":[0,1]}}"#;
    let repo =
        Repo::new("org/evil").file("model.safetensors", support::file_with_header(header, 1));
    let other = Repo::new("org/other").file("model.safetensors", support::weights(&["x"]));
    let hub = LocalHub::start([repo, other]).unwrap();
    for view in ["--tensors", "--metadata", "--tree"] {
        let CommandOutput { stdout, stderr, .. } = run(&hub, &["org/evil", view]);
        assert!(!stderr.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{view}");
        assert!(!stdout.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{view}");
    }
    for args in [&["verify", "org/evil"][..], &["diff", "org/evil", "org/other"]] {
        let CommandOutput { stdout, .. } = run(&hub, args);
        assert!(!stdout.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{args:?}");
        assert!(stdout.contains("\\u{1b}"), "{args:?}");
    }
    assert!(run(&hub, &["org/evil"]).stdout.contains("\\u{1b}[2J"));
    let json: Value = serde_json::from_str(&run(&hub, &["org/evil", "--json"]).stdout).unwrap();
    assert!(json["header"].get("\u{1b}]0;owned\u{7}\u{202e}").is_some(), "JSON stays exact");
}

#[test]
fn only_terminals_get_colors() {
    let hub = support::fixtures_hub();
    let has_color = |variables: &[(&str, &str)]| {
        let mut command = hf_meta(hub.endpoint());
        CommandOutput::new(command.envs(variables.iter().copied()).arg("gpt2"))
            .data()
            .contains('\u{1b}')
    };
    assert!(!has_color(&[]));
    assert!(has_color(&[("CLICOLOR_FORCE", "1")]));
    assert!(!has_color(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let hub = support::fixtures_hub();
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

/// While the reader of stdout pauses in the output of one repository, another one is read completely: its second
/// shard is not available before its first one was read.
#[test]
fn a_paused_reader_of_stdout_does_not_stop_the_network() {
    let hub = support::fixtures_hub_with(support::sharded("org/two"));
    let (sender, receiver) = mpsc::channel();
    let is_paused = Arc::new(AtomicBool::new(false));
    let (paused, attempts) = (Arc::clone(&is_paused), AtomicUsize::new(0));
    hub.inject(move |request, _| {
        let refused = Some(Fault::Status(503, vec![]));
        let is_header = request.range.as_deref().is_some_and(|range| range != "bytes=0-7");
        match request.path.rsplit('/').next()? {
            "a.safetensors" if !paused.load(Ordering::Acquire) => refused,
            "a.safetensors" => {
                let first = usize::from(is_header);
                attempts.fetch_max(first, Ordering::AcqRel);
                None
            }
            "b.safetensors" if attempts.load(Ordering::Acquire) == 0 => refused,
            "b.safetensors" if attempts.fetch_add(1, Ordering::AcqRel) < 3 => refused,
            "b.safetensors" if is_header => {
                sender.send(()).unwrap();
                None
            }
            _ => None,
        }
    });
    let mut command = hf_meta(hub.endpoint());
    command.args(["bigscience/bloom", "org/two", "--json", "--retries", "255"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    // The document is longer than the buffer of a pipe, so the command waits for this test now.
    is_paused.store(true, Ordering::Release);
    let read = receiver.recv_timeout(Duration::from_secs(60));
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(read, Ok(()), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), rest.lines().count()), (Some(0), 2));
}

#[test]
fn an_empty_line_separates_reports_but_does_not_end_them() {
    let hub = support::fixtures_hub();
    for view in [&["--sets"][..], &["--tree"], &["--explain"], &["--metadata"]] {
        let print = |repos: &[&str]| run(&hub, &[repos, view].concat()).data();
        let one = print(&["gpt2"]);
        assert!(!one.contains("\n\n") && one.ends_with('\n'), "{view:?}: {one}");
        let two = print(&["gpt2", "roberta-base"]);
        assert!(two.starts_with("gpt2\n") && two.contains("\n\nroberta-base\n"), "{view:?}: {two}");
        assert!(two.ends_with('\n') && !two.ends_with("\n\n"), "{view:?}: {two}");
    }
    let two = run(&hub, &["verify", "gpt2", "roberta-base"]).data();
    assert!(two.starts_with("gpt2\n") && two.contains("\n\nroberta-base\n"), "{two}");
}

#[test]
fn tensors_are_tab_separated_in_a_pipe() {
    let hub = support::fixtures_hub();
    let stdout = run(&hub, &["gpt2", "-t"]).data();
    let rows: Vec<Vec<_>> = stdout.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows[0], ["name", "dtype", "shape", "bytes", "shard"]);
    assert!(rows[1..].iter().all(|row| row.len() == 5 && row[3].parse::<u64>().is_ok()));
    assert_eq!(rows.len(), 1 + 160);
    let several = run(&hub, &["gpt2", "roberta-base", "-t"]).data();
    let rows: Vec<Vec<_>> = several.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows[0], ["repository", "name", "dtype", "shape", "bytes", "shard"]);
    assert!(rows[1..].iter().all(|row| row.len() == 6 && row[0] != "repository"));
    assert_eq!((rows[1][0], rows.last().unwrap()[0]), ("gpt2", "roberta-base"));
}

#[test]
fn a_filter_without_a_match_is_reported() {
    let hub = support::fixtures_hub();
    let ran = run(&hub, &["gpt2", "-t", "--filter", "nothing.*"]);
    assert_eq!((ran.code, ran.stdout.lines().count()), (1, 1));
    assert_eq!(ran.stderr, "warning: gpt2: no tensor matches `nothing.*`\n");
    let part = run(&hub, &["gpt2", "-t", "--filter", "c_attn"]).stderr;
    assert!(part.ends_with(" matches `c_attn`; use `*c_attn*` for a part of a name\n"), "{part}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_of_local_output() {
    let hub = support::fixtures_hub();
    let calls: [&[&str]; 5] = [
        &["gpt2"],
        &["gpt2", "--json"],
        &["verify", "gpt2"],
        &["diff", "gpt2", "gpt2"],
        &["badge", "gpt2"],
    ];
    for args in calls {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = hf_meta(hub.endpoint());
        command.args(args).stdout(full).stderr(Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{args:?}: {stderr}");
        let expected = "error: failed to write to stdout\n  caused by: No space left on device";
        assert!(stderr.starts_with(expected), "{args:?}: {stderr}");
    }
}

/// The name of a repository that does not fit a small terminal.
const LONG_NAME: &str = "organization/a-model-whose-name-is-longer-than-sixty-columns-of-a-screen";

/// Runs the command in a terminal until the screen contains a text, then presses Ctrl-C. Returns the output.
///
/// `script` of util-linux provides the terminal. Returns `None` if it is missing.
#[cfg(target_os = "linux")]
fn screen_until(
    hub: &LocalHub,
    args: &str,
    columns: usize,
    variables: &[(&str, &str)],
    text: &str,
) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_hf-meta");
    let line = format!("stty rows 24 cols {columns}; exec {program} {args}");
    let mut child = in_terminal(hub, &line, variables)?;
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut screen = Vec::new();
    read_until(&mut stdout, &mut screen, text);
    stdin.write_all(b"\x03").unwrap();
    stdout.read_to_end(&mut screen).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 2), "ended by SIGINT");
    Some(String::from_utf8(screen).unwrap())
}

/// Runs a line of a shell in a terminal. Returns `None` if `script` is missing.
#[cfg(target_os = "linux")]
fn in_terminal(hub: &LocalHub, line: &str, variables: &[(&str, &str)]) -> Option<Child> {
    let mut command = Command::new("script");
    command.args(["-qefc", line, "/dev/null"]);
    command.env_clear().env("HF_ENDPOINT", hub.endpoint()).env("HF_HOME", "/nonexistent");
    command.env("TERM", "xterm").env("HF_META_CACHE", "off").env("PATH", "/usr/bin:/bin");
    command.envs(variables.iter().copied());
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    if spawned.is_err() {
        support::program_is_missing("`script`", "the progress line in a terminal");
    }
    spawned.ok()
}

/// Reads a screen until it contains a text.
#[cfg(target_os = "linux")]
fn read_until(stdout: &mut ChildStdout, screen: &mut Vec<u8>, text: &str) {
    while !String::from_utf8_lossy(screen).contains(text) {
        let mut byte = [0];
        stdout.read_exact(&mut byte).unwrap();
        screen.extend(byte);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_spinner_disappears_on_ctrl_c() {
    let repos = ["org/model", LONG_NAME].map(support::sharded);
    let hub = LocalHub::start(repos).unwrap();
    hub.inject(|_, _| Some(Fault::Stall));
    let no_color = [("NO_COLOR", "1")];
    for (repo, columns, variables) in [
        ("org/model", 80, &[][..]),
        ("org/model", 80, &no_color),
        (LONG_NAME, 60, &[]),
        (LONG_NAME, 60, &no_color),
    ] {
        let text = &repo[..8];
        let Some(screen) = screen_until(&hub, repo, columns, variables, text) else { return };
        let (drawn, last_line) = screen.rsplit_once("\r\u{1b}[2K").unwrap();
        assert!(!last_line.contains(text), "{screen:?}");
        // The terminal prints `^C`. If the progress filled the line, the cursor would have left it.
        let line = drawn.rsplit("\u{1b}[2K").next().unwrap();
        assert!(line.trim_end_matches("^C").chars().count() < columns - 1, "{screen:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_list_says_what_is_kept() {
    let hub = LocalHub::start(["org/a", "org/b"].map(support::sharded)).unwrap();
    hub.inject(|request, _| request.path.contains("/b/").then_some(Fault::Stall));
    let cache = tempfile::tempdir().unwrap();
    let cached = [("HF_META_CACHE", cache.path().to_str().unwrap())];
    for (args, variables, kept) in [
        ("org/a org/b", &[][..], "nothing was printed"),
        ("diff org/a org/b", &[], "nothing was printed"),
        ("org/a org/b", &cached, "a second run reads them from the cache"),
        ("org/a org/b --format csv", &[], "those printed so far are complete"),
    ] {
        let screen = screen_until(&hub, args, 120, variables, "1 of 2 repositories, ");
        let Some(screen) = screen else { return };
        let last = format!("interrupted after 1 of 2 repositories; {kept}\r\n");
        assert!(screen.contains(&last), "{screen:?}");
    }
}

/// The reader of a pipe may print what it reads to the same terminal at any time.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_has_no_progress_line() {
    let hub = LocalHub::start(["org/a", "org/b"].map(support::sharded)).unwrap();
    hub.inject(|request, _| request.path.contains("/b/").then_some(Fault::Stall));
    let program = env!("CARGO_BIN_EXE_hf-meta");
    for (output, first, is_shown) in
        [("| cat", "org/a,", false), ("> /dev/null", "1 of 2 repositories, ", true)]
    {
        let line = format!("{program} org/a org/b --format csv {output}");
        let Some(mut child) = in_terminal(&hub, &line, &[]) else { return };
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut screen = Vec::new();
        read_until(&mut stdout, &mut screen, first);
        // Time for a progress line that must not appear.
        std::thread::sleep(Duration::from_millis(500));
        stdin.write_all(b"\x03").unwrap();
        stdout.read_to_end(&mut screen).unwrap();
        child.wait().unwrap();
        let screen = String::from_utf8(screen).unwrap();
        assert_eq!(screen.contains("1 of 2 repositories, "), is_shown, "{screen:?}");
        assert_eq!(screen.contains("org/a,"), !is_shown, "{screen:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_error_is_separated_from_the_page_before_it() {
    let hub = LocalHub::start(["org/a", "org/b"].map(support::sharded)).unwrap();
    let line = format!("{} verify org/a org/none org/none org/b", env!("CARGO_BIN_EXE_hf-meta"));
    let Some(child) = in_terminal(&hub, &line, &[("NO_COLOR", "1")]) else { return };
    let screen = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(screen.matches("\n\r\nerror: org/none: ").count(), 1, "{screen}");
    assert!(screen.contains("\n\r\norg/b\r\n"), "{screen}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_spinner_describes_a_wait() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    hub.inject(|_, _| Some(Fault::Status(429, vec![("retry-after", "100".to_owned())])));
    let limited = "org/model  waiting for the rate limit, 1 min ";
    if let Some(screen) = screen_until(&hub, "org/model", 80, &[], limited) {
        assert!(screen.contains("rate limit reached; waiting 1 min "), "{screen:?}");
    }
}

/// Each row of CSV is printed as soon as it is known, although another repository is never read.
#[test]
fn rows_for_other_programs_are_not_held_back() {
    let hub = LocalHub::start(["org/a", "org/b"].map(support::sharded)).unwrap();
    hub.inject(|request, _| request.path.contains("/b/").then_some(Fault::Stall));
    let mut command = hf_meta(hub.endpoint());
    command.args(["org/a", "org/b", "--format", "csv", "--retries", "255"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        lines.take(2).for_each(|line| sender.send(line).unwrap_or_default());
    });
    let rows = [(); 2].map(|()| receiver.recv_timeout(Duration::from_secs(60)));
    child.kill().unwrap();
    child.wait().unwrap();
    let rows = rows.map(Result::unwrap);
    assert!(rows[0].starts_with("repository,") && rows[1].starts_with("org/a,"), "{rows:?}");
}

#[test]
fn log_lines_look_like_errors() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let failures = AtomicUsize::new(0);
    hub.inject(move |_, _| {
        let is_first = failures.fetch_add(1, Ordering::Relaxed) == 0;
        is_first.then(|| Fault::Status(503, vec![]))
    });
    let CommandOutput { code, stderr, .. } = run(&hub, &["org/model", "-v"]);
    assert!(code == 0 && stderr.starts_with("info: retrying (url: http://"), "{stderr}");
    let (_, wait) = stderr.split_once("wait: ").unwrap();
    let wait = wait.split(',').next().unwrap();
    let (_, decimals) = wait.split_once('.').unwrap();
    assert!(decimals.trim_end_matches(char::is_alphabetic).len() == 1, "{stderr}");
}

#[test]
fn a_port_in_use_is_named() {
    let hub = LocalHub::start([]).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let CommandOutput { code, stderr, .. } = run(&hub, &["serve", "--listen", &address]);
    let expected = format!("error: failed to listen on {address}\n");
    assert!(code == 4 && stderr.starts_with(&expected), "{code} {stderr}");
}
