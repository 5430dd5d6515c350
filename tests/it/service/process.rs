//! `hf-meta serve` as a process, and the cache after a process was killed.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use hf_meta::{Client, DiskCache};
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;

use crate::hub::{Fault, LocalHub, Repo};
use crate::support;

/// Returns the command with an empty environment.
pub(super) fn command(hub: &LocalHub) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hf-meta"));
    command.env_clear().env("HF_ENDPOINT", hub.endpoint()).env("HF_META_CACHE", "off");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// A server process, which is killed on drop.
pub(super) struct Server {
    child: Child,
    pub(super) address: String,
    /// Kept open so that the process can write to it.
    _stdout: Lines<BufReader<ChildStdout>>,
}

impl Server {
    pub(super) fn start(hub: &LocalHub, args: &[&str]) -> Self {
        Self::start_as(command(hub), args)
    }

    /// Sends a signal.
    #[cfg(unix)]
    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
    }

    /// Waits for the end of the process. Returns the lines on stderr, which must be a pipe.
    #[cfg(unix)]
    fn log(&mut self) -> Vec<String> {
        let stderr = BufReader::new(self.child.stderr.take().unwrap());
        let lines = stderr.lines().map(Result::unwrap).collect();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        lines
    }

    pub(super) fn start_as(mut command: Command, args: &[&str]) -> Self {
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(args);
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = stdout.next().unwrap().unwrap();
        let address = line.strip_prefix("listening on ").unwrap().to_owned();
        Self { child, address, _stdout: stdout }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn text(url: String) -> String {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    http.get(url).send().await.unwrap().text().await.unwrap()
}

#[tokio::test]
#[cfg(unix)]
async fn signals_of_a_service_manager_shut_the_server_down() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    for signal in ["TERM", "INT"] {
        let mut server = Server::start(&hub, &["--drain-delay", "0"]);
        assert!(
            text(format!("{}/badge/org/model.svg", server.address)).await.contains("params: 2")
        );
        server.signal(signal);
        assert_eq!(server.child.wait().unwrap().code(), Some(0), "{signal}");
    }
}

#[tokio::test]
#[cfg(unix)]
async fn a_drain_is_the_default_and_the_start_and_the_end_are_logged() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let mut command = command(&hub);
    command.stderr(Stdio::piped());
    let mut server = Server::start_as(command, &["--log-format", "json"]);
    let ready = format!("{}/readyz", server.address);
    assert_eq!(text(ready.clone()).await, "ok");
    server.signal("TERM");
    while text(ready.clone()).await != "shutting down" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let started = Instant::now();
    server.signal("TERM");
    let log = server.log();
    assert!(started.elapsed() < Duration::from_secs(4), "a second signal ends the drain");
    let log: Vec<Value> = log.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let messages: Vec<_> = log.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(messages, ["the service has started", "shutting down", "stopped"]);
    assert_eq!((&log[0]["hub"], &log[0]["cache"]), (&json!(hub.endpoint()), &json!("off")));
    assert_eq!(log[1]["signal"], "SIGTERM");
    for line in log {
        assert_eq!(line["level"], "info");
        let time = line["timestamp"].as_str().unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    }
}

#[tokio::test]
#[cfg(unix)]
async fn an_outage_of_the_hub_is_logged_once_and_so_is_its_end() {
    let hub = LocalHub::start(["org/a", "org/b", "org/c"].map(support::sharded)).unwrap();
    let mut command = command(&hub);
    command.stderr(Stdio::piped());
    let options = ["--retries", "0", "--drain-delay", "0", "--lookup-timeout", "60"];
    let mut server = Server::start_as(command, &[&options[..], &["--log-format", "time"]].concat());
    let badge = async |name: &str| text(format!("{}/badge/org/{name}.svg", server.address)).await;
    hub.inject(|_, _| Some(Fault::Status(500, Vec::new())));
    assert!(badge("a").await.contains("unavailable") && badge("b").await.contains("unavailable"));
    hub.inject(|_, _| None);
    assert!(badge("c").await.contains("params: 2") && badge("none").await.contains("not found"));
    server.signal("INT");
    let log = server.log();
    let warnings: Vec<_> = log.iter().filter_map(|line| line.split_once(" warning: ")).collect();
    let [(time, down), (_, up)] = warnings[..] else { panic!("{log:?}") };
    assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    assert!(down.starts_with("the Hub is unavailable") && down.contains("500"), "{down}");
    assert_eq!(up, "the Hub is available again");
}

#[test]
#[cfg(unix)]
fn misspelled_variables_and_an_unreachable_cache_are_warnings_at_the_start() {
    let hub = LocalHub::start([]).unwrap();
    let mut command = command(&hub);
    command.stderr(Stdio::piped()).env("HF_META_TTTL", "5").env("HF_META_COLOUR_OF_BADGES", "red");
    command.env("HF_META_CACHE", "redis://:s3cr3t@127.0.0.1:9");
    let mut server = Server::start_as(command, &[]);
    server.signal("INT");
    let log = server.log().join("\n");
    for line in [
        "warning: HF_META_TTTL is not a setting (similar: HF_META_TTL)",
        "warning: HF_META_COLOUR_OF_BADGES is not a setting",
        "warning: the shared cache is unreachable; continuing without it",
        "cache: redis (unreachable)",
    ] {
        assert!(log.contains(line), "{log}");
    }
    assert!(!log.contains("s3cr3t"), "{log}");
}

#[test]
fn errors_about_variables_name_the_variable() {
    let hub = LocalHub::start([]).unwrap();
    for (variable, value) in [
        ("HF_META_TTL", "soon"),
        ("HF_META_LISTEN", "nowhere"),
        ("HF_META_CACHE", "ftp://x"),
        ("HF_META_MAX_CONNECTIONS", "0"),
        ("HF_META_INSPECTOR", "src"),
        ("HF_META_LOG_FORMAT", "xml"),
        ("HF_ENDPOINT", "x"),
    ] {
        let mut command = command(&hub);
        let output = command.env(variable, value).arg("serve").stderr(Stdio::piped()).output();
        let output = output.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{variable}");
        assert!(error.contains(variable), "{variable}: {error}");
    }
    let mut command = command(&hub);
    command.env("HF_META_TTL", "5").args(["serve", "--ttl=soon"]).stderr(Stdio::piped());
    let error = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(error.contains("--ttl") && !error.contains("HF_META_TTL"), "{error}");
}

/// The token of `hf auth login` belongs to the owner of the machine and must not serve strangers.
#[tokio::test]
async fn only_a_token_for_the_server_is_used() {
    let hub = LocalHub::builder().repo(support::sharded("org/private").private()).token("hf_good");
    let hub = hub.start().unwrap();
    for (variable, args, message) in [
        ("HF_TOKEN", &[][..], "not found"),
        ("HF_TOKEN", &["--token", "hf_good"], "params: 2"),
        ("HF_META_TOKEN", &[], "params: 2"),
    ] {
        let mut command = command(&hub);
        command.env(variable, "hf_good");
        let server = Server::start_as(command, args);
        let badge = text(format!("{}/badge/org/private.svg", server.address)).await;
        assert!(badge.contains(message), "{badge}");
    }
}

/// `hf-meta.env` has a line for each variable, which may be left blank.
#[tokio::test]
async fn blank_variables_are_ignored_and_tildes_are_expanded() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let home = tempfile::tempdir().unwrap();
    let mut command = command(&hub);
    for variable in [
        "HF_META_ALLOWED_OWNERS",
        "HF_META_TRUSTED_PROXIES",
        "HF_META_TTL",
        "PORT",
        "HF_META_TOKEN",
    ] {
        command.env(variable, " ");
    }
    command.env("HF_META_CACHE", "~/headers").env("HOME", home.path());
    let server = Server::start_as(command, &[]);
    let badge = text(format!("{}/badge/org/model.svg", server.address)).await;
    assert!(badge.contains("params: 2"), "{badge}");
    assert!(home.path().join("headers").is_dir());
}

/// Platforms set `PORT` in every container.
#[test]
fn an_address_on_the_command_line_replaces_the_port_of_the_platform() {
    let hub = LocalHub::start([]).unwrap();
    let mut with_port = command(&hub);
    with_port.env("PORT", "7860");
    assert!(Server::start_as(with_port, &[]).address.starts_with("http://127.0.0.1:"));
    let help = command(&hub).env("PORT", "7860").args(["serve", "-h"]).output().unwrap().stdout;
    let help = String::from_utf8(help).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("[env: HF_META_LISTEN=] [default: 0.0.0.0:7860]"), "{help}");
    let output = command(&hub).env("PORT", "none").arg("serve").stderr(Stdio::piped()).output();
    let error = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(error.contains("PORT is not a port number"), "{error}");
}

#[test]
fn the_environment_file_lists_every_variable_with_its_default() {
    let hub = LocalHub::start([Repo::new("org/x")]).unwrap();
    let help = command(&hub).args(["serve", "--help"]).output().unwrap().stdout;
    let help = String::from_utf8(help).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let file = include_str!("../../../examples/deploy/hf-meta.env");
    let variables: Vec<_> = help.split("[env: ").skip(1).collect();
    assert!(variables.len() > 10, "{help}");
    for variable in variables {
        let (name, rest) = variable.split_once(']').unwrap();
        let start = format!("{}=", name.trim_end_matches('='));
        let lines = file.lines().map(|line| line.trim_start_matches('#'));
        let values: Vec<_> = lines.filter_map(|line| line.strip_prefix(&*start)).collect();
        let [value] = values[..] else { panic!("{start} is in {} lines", values.len()) };
        if let Some(default) = rest.strip_prefix(" [default: ") {
            assert_eq!(Some(value), default.split(']').next(), "{start}");
        }
    }
}

#[tokio::test]
async fn the_number_of_retries_is_configurable() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    hub.inject(|_, _| Some(Fault::Status(500, Vec::new())));
    let server = Server::start(&hub, &["--retries", "0", "--lookup-timeout", "60"]);
    assert!(text(format!("{}/badge/org/model.svg", server.address)).await.contains("unavailable"));
    assert!(hub.log().len() <= 2, "one request for each of the two names that weights have");
}

#[test]
fn invalid_options_are_usage_errors() {
    let hub = LocalHub::start([Repo::new("org/x")]).unwrap();
    for args in [
        &["--listen", "nowhere"][..],
        &["--cache", "ftp://x"],
        &["--cache", "redis://"],
        &["--trusted-proxy", "x"],
        &["--ttl", "-1"],
        &["--endpoint", "x"],
        &["--webhook-secret", ""],
        &["--max-connections", "0"],
        &["--max-concurrent-lookups", "0"],
        &["--max-requests-per-lookup", "0"],
        &["--inspector", "src"],
        &["--public-url", "badges"],
    ] {
        let output = command(&hub).arg("serve").args(args).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!error.is_empty());
        // Texts of parsers, which do not say what is expected.
        for text in ["non-zero type", "relative URL", "IP address syntax", "invalid digit"] {
            assert!(!error.contains(text), "{args:?}: {error}");
        }
    }
}

/// Returns a repository with a large header.
fn large(n: usize) -> Repo {
    let names: Vec<_> =
        (0..2_000 + n).map(|tensor| format!("m{n}.layer.{tensor}.weight")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    Repo::new(&format!("org/m{n}")).file("model.safetensors", support::weights(&names))
}

/// Runs a command and kills it after a number of requests, unless it has ended before.
async fn kill_after(hub: &LocalHub, mut command: Command, requests: usize) {
    let (sender, mut arrivals) = unbounded_channel();
    hub.inject(move |_, _| {
        let _ = sender.send(());
        None
    });
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = tokio::process::Command::from(command).spawn().unwrap();
    let enough = async {
        for _ in 0..requests {
            arrivals.recv().await;
        }
    };
    let has_ended = tokio::select! {
        _ = child.wait() => true,
        () = enough => false,
    };
    if !has_ended {
        child.kill().await.unwrap();
    }
}

/// Each process is killed after another number of requests. Afterwards the cache opens and returns
/// correct headers. Forty processes; a hundred with `HF_META_SOAK`.
#[tokio::test]
async fn the_cache_survives_killed_processes() {
    const REPOS: usize = 6;
    let kills = if std::env::var_os("HF_META_SOAK").is_some() { 100 } else { 40 };
    let hub = LocalHub::start((0..REPOS).map(large)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::new(folder.path());
    let client =
        Client::builder().endpoint(hub.endpoint()).header_cache(cache.clone()).build().unwrap();
    let names: Vec<_> = (0..REPOS).map(|n| format!("org/m{n}")).collect();
    let mut found_in_cache = 0;
    for round in 0..kills {
        if round % 10 == 0 {
            cache.clear().unwrap();
        }
        let mut command = command(&hub);
        command.env("HF_META_CACHE", folder.path()).args(["--json", "--summary"]).args(&names);
        // Between the first request and the last; what is kept takes one, the rest five each.
        kill_after(&hub, command, 1 + round * 7 % (REPOS * 5)).await;
        for (n, name) in names.iter().enumerate().filter(|(n, _)| n % 3 == round % 3) {
            let parsed = client.model(name).parse_safetensors_metadata().await.unwrap();
            assert_eq!(parsed.parameter_count().total(), 2_000 + n as u64, "round {round}, {name}");
            found_in_cache += usize::from(parsed.report().fetch.requests == 1);
        }
    }
    assert!(cache.usage().unwrap().entries >= REPOS as u64);
    assert!(found_in_cache > kills / 2, "{found_in_cache}");
}
