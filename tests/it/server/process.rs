//! `hf-meta serve` as a process, and the cache after a process was killed.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use hf_meta::{Client, DiskCache};
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
        let mut server = Server::start(&hub, &[]);
        assert!(
            text(format!("{}/badge/org/model.svg", server.address)).await.contains("params: 2")
        );
        let id = server.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        assert_eq!(server.child.wait().unwrap().code(), Some(0), "{signal}");
    }
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
        &["--trusted-proxy", "x"],
        &["--ttl", "-1"],
        &["--endpoint", "x"],
        &["--webhook-secret", ""],
        &["--max-connections", "0"],
        &["--max-concurrent-lookups", "0"],
        &["--max-requests-per-lookup", "0"],
        &["--inspector", "src"],
    ] {
        let output = command(&hub).arg("serve").args(args).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty());
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
