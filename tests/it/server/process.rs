//! `hf-meta serve` as a process, and what is left of a process that is killed.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use hf_meta::{Client, DiskCache};
use tokio::sync::mpsc::unbounded_channel;

use crate::hub::{Fault, LocalHub, Repo};
use crate::support;

/// The command in an environment of its own.
pub(super) fn command(hub: &LocalHub) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hf-meta"));
    command.env_clear().env("HF_ENDPOINT", hub.endpoint()).env("HF_META_CACHE", "off");
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// A server in a process of its own, which ends with this.
pub(super) struct Server {
    child: Child,
    pub(super) address: String,
    /// What is still to be read, so that the process can go on writing.
    _stdout: Lines<BufReader<ChildStdout>>,
}

impl Server {
    pub(super) fn start(hub: &LocalHub, args: &[&str]) -> Self {
        Self::start_as(command(hub), args)
    }

    fn start_as(mut command: Command, args: &[&str]) -> Self {
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
async fn a_service_manager_ends_it() {
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

/// The token of `hf auth login` is the owner's, and not for everybody who reaches the server.
#[tokio::test]
async fn only_a_token_that_was_given_to_it_is_used() {
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

/// The file of settings names each of them once, those that are not set with their defaults.
#[test]
fn the_file_of_settings_is_complete() {
    let hub = LocalHub::start([Repo::new("org/x")]).unwrap();
    let help = command(&hub).args(["serve", "-h"]).output().unwrap().stdout;
    let help = String::from_utf8(help).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let file = include_str!("../../../examples/deploy/hf-meta.env");
    let settings: Vec<_> = help.split("[env: ").skip(1).collect();
    assert!(settings.len() > 10, "{help}");
    for setting in settings {
        let (name, rest) = setting.split_once(']').unwrap();
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
async fn a_request_is_made_again_as_often_as_is_asked_for() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    hub.inject(|_, _| Some(Fault::Status(500, Vec::new())));
    let server = Server::start(&hub, &["--retries", "0", "--lookup-wait", "60"]);
    assert!(text(format!("{}/badge/org/model.svg", server.address)).await.contains("unavailable"));
    assert!(hub.log().len() <= 2, "one request for each of the two names that weights have");
}

#[test]
fn what_is_wrong_with_the_settings() {
    let hub = LocalHub::start([Repo::new("org/x")]).unwrap();
    for args in [
        &["--listen", "nowhere"][..],
        &["--cache", "ftp://x"],
        &["--trusted-proxy", "x"],
        &["--ttl", "-1"],
        &["--endpoint", "x"],
    ] {
        let output = command(&hub).arg("serve").args(args).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty());
    }
}

/// A repo with a header that takes a while to write.
fn large(n: usize) -> Repo {
    let names: Vec<_> =
        (0..2_000 + n).map(|tensor| format!("m{n}.layer.{tensor}.weight")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    Repo::new(&format!("org/m{n}")).file("model.safetensors", support::weights(&names))
}

/// Runs a command until it has made so many requests, and kills it then; it may have ended before.
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

/// Killed at another point each time, by what it has asked for so far: the cache opens, and whatever it
/// gives is right.
#[tokio::test]
async fn a_hundred_processes_are_killed_while_they_write() {
    const REPOS: usize = 6;
    let hub = LocalHub::start((0..REPOS).map(large)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::new(folder.path());
    let client =
        Client::builder().endpoint(hub.endpoint()).header_cache(cache.clone()).build().unwrap();
    let names: Vec<_> = (0..REPOS).map(|n| format!("org/m{n}")).collect();
    let mut found_in_cache = 0;
    for round in 0..100 {
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
    assert!(found_in_cache > 50, "{found_in_cache}");
}
