//! What is told of a call to whoever listens: every attempt, with what it came to and without secrets.

mod capture;

use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use futures::future::{Either, join_all, select};
use hf_meta::{Client, Source};
use tokio::net::TcpSocket;

pub(crate) use self::capture::{Capture, Told};
use crate::hub::{Fault, Host, LocalHub, LoggedRequest, Repo};
use crate::support;

const FILE: &str = "model.safetensors";

fn hub() -> LocalHub {
    LocalHub::start([Repo::new("org/model").file(FILE, support::weights(&["w"]))]).unwrap()
}

fn is_for_the_prefix(request: &LoggedRequest) -> bool {
    request.host == Host::Cdn && request.range.as_deref() == Some("bytes=0-7")
}

/// The attempts that were told of: file, number, range, status and bytes.
fn attempts(capture: &Capture) -> Vec<[String; 5]> {
    let fields = ["file", "attempt", "range", "status", "bytes"];
    let attempts = capture.all("attempt").into_iter().filter(|told| told.is_span);
    attempts.map(|told| fields.map(|field| told.field(field).to_owned())).collect()
}

#[tokio::test]
async fn every_attempt_is_told_with_what_it_came_to() {
    let (hub, capture) = (hub(), Capture::default());
    hub.inject(|request, before| {
        let faults = [Fault::Status(503, vec![]), Fault::Truncated { to: 3 }];
        faults.into_iter().nth(before).filter(|_| is_for_the_prefix(request))
    });
    let model = support::client(&hub).model("org/model").path(FILE);
    let parsed = capture.of(model.parse_safetensors_metadata()).await.unwrap();
    let (last, read) = (7 + parsed.files().map(|(_, header)| header.length()).sum::<u64>(), "206");
    let (header, length) = (format!("8-{last}"), (last - 7).to_string());
    let expected = [
        [FILE, "1", "0-7", "503", "0"],
        [FILE, "2", "0-7", read, "0"],
        [FILE, "3", "0-7", read, "8"],
        [FILE, "1", &header, read, &length],
    ];
    assert_eq!(attempts(&capture), expected);
    for told in capture.all("attempt") {
        assert_eq!(told.field("source"), "hf://org/model@main/model.safetensors");
        assert_eq!(told.field("repo"), "org/model");
        assert!(!told.field("elapsed").is_empty());
    }
    check_events(&capture, hub.log().len());
}

/// Each redirect, how each attempt ended, and what is tried again: under the attempt or the file that it is of.
fn check_events(capture: &Capture, requests: usize) {
    let counts = ["redirected", "failed", "retrying", "read"].map(|what| {
        let told = capture.all(what);
        assert!(told.iter().all(|told| told.field("file") == FILE), "{told:#?}");
        told.len()
    });
    assert_eq!(counts, [requests - 4, 2, 2, 2], "each request, by what came of it");
    let bytes =
        |what| capture.all(what).iter().map(|told| told.field("bytes").to_owned()).collect();
    let (failed, read): (Vec<_>, Vec<_>) = (bytes("failed"), bytes("read"));
    assert_eq!((failed, &*read[0]), (vec!["0".to_owned(), "0".to_owned()], "8"));
    assert!(capture.all("failed")[0].field("error").contains("status 503"));
}

/// The index is not waited for where the single file is there.
#[tokio::test]
async fn an_attempt_that_is_given_up_is_told_to_its_end() {
    let (hub, capture) = (hub(), Capture::default());
    hub.inject(|request, _| request.path.ends_with(".index.json").then_some(Fault::Stall));
    let model = support::client(&hub).model("org/model");
    capture.of(model.parse_safetensors_metadata()).await.unwrap();
    let attempts = capture.all("attempt");
    let dropped = attempts.iter().find(|told| told.field("file").ends_with(".index.json")).unwrap();
    assert_eq!((dropped.field("status"), dropped.field("bytes")), ("", "0"));
    assert!(!dropped.field("elapsed").is_empty());
}

fn check_no_secret(told: &[Told], secrets: &[&str]) {
    for text in told.iter().flat_map(Told::texts) {
        let found = secrets.iter().find(|secret| text.contains(**secret));
        assert_eq!(found, None, "in {text}");
    }
}

#[tokio::test]
async fn no_field_holds_a_secret() {
    let repo = Repo::new("org/model").gated().file(FILE, support::weights(&["w"]));
    let hub = LocalHub::builder().repo(repo).token("hf_s3cr3t").start().unwrap();
    hub.inject(|request, before| {
        let faults = [
            Fault::Status(403, vec![("x-error-message", "no".to_owned())]),
            Fault::WrongContentRange(crate::hub::ContentRangeFault::Shifted),
            Fault::Redirect(302, "http://u:s3cr3t@[::1/?Signature=s3cr3t".to_owned()),
        ];
        faults.into_iter().nth(before).filter(|_| is_for_the_prefix(request))
    });
    let client = Client::builder().endpoint(hub.endpoint()).token("hf_s3cr3t").build().unwrap();
    let (capture, model) = (Capture::default(), client.model("org/model").path(FILE));
    for is_right in [false, false, true] {
        let parsed = capture.of(model.parse_safetensors_metadata()).await;
        assert_eq!(parsed.is_ok(), is_right, "{parsed:?}");
    }
    let file = hub.cdn_origin().replacen("http://", "http://user:s3cr3t@", 1);
    let pasted: Source = format!("{file}/x.safetensors?Signature=s3cr3t").parse().unwrap();
    capture.of(client.source(pasted).parse_safetensors_metadata()).await.unwrap_err();
    assert_eq!(capture.all("call").len(), 4);
    assert_eq!(capture.all("failed").len(), 4);
    check_no_secret(&capture.told(), &["s3cr3t", "Signature", "Expires", "user:"]);
}

const LONG: &str = r#""resolvers";r=0;t=100"#;
const HANG: Duration = Duration::from_secs(60);

/// Eight requests that are held back for a hundred seconds: one is told of to everybody, all to those who ask.
#[tokio::test]
async fn a_wait_for_the_server_is_told() {
    let (hub, capture) = (hub(), Capture::default());
    // Of the Hub alone: a call that was let through would otherwise wait for the CDN, too.
    hub.inject(|request, _| {
        (request.host == Host::Hub).then(|| Fault::Header("ratelimit", LONG.to_owned()))
    });
    let client = support::client(&hub);
    let model = client.model("org/model").path(FILE);
    let calls = join_all((0..8).map(|_| capture.of(model.parse_safetensors_metadata())));
    let told =
        || [capture.all("rate limited; waiting"), capture.all("request held back by a rate limit")];
    let all_wait = async {
        while told().map(|told| told.len()).iter().sum::<usize>() < 8 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let all_wait = pin!(tokio::time::timeout(HANG, all_wait));
    match select(calls, all_wait).await {
        Either::Right((waited, _)) => waited.expect("nothing is said of the wait"),
        Either::Left((results, _)) => panic!("nobody waited: {results:?}"),
    }
    let [warned, held] = told();
    assert_eq!((warned.len(), &*warned[0].level), (1, "WARN"));
    assert!(held.iter().all(|told| told.level == "DEBUG"), "{held:#?}");
    assert!(
        warned
            .iter()
            .chain(&held)
            .all(|told| told.field("server").starts_with("http://127.0.0.1:"))
    );
    assert!(warned[0].field("wait").starts_with("100."), "{}", warned[0].field("wait"));
}

/// The command shows a line for each event, which says all by itself.
#[test]
fn the_command_shows_lines() {
    let hub = hub();
    for (flags, events) in [
        (vec![], vec![]),
        (vec!["-v"], vec!["INFO retrying"]),
        (vec!["-vv"], vec!["DEBUG redirected", "DEBUG failed", "INFO retrying", "DEBUG read"]),
    ] {
        hub.inject(|request, before| {
            (is_for_the_prefix(request) && before == 0).then(|| Fault::Status(503, vec![]))
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_hf-meta"));
        command.env_clear().env("HF_ENDPOINT", hub.endpoint());
        command.args(["--no-cache", "org/model", "--path", FILE]);
        let output = command.args(&flags).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        for line in stderr.lines() {
            let known = events.iter().any(|event| line.trim_start().starts_with(event));
            assert!(known && line.contains(" url=http://127.0.0.1:"), "{flags:?}: {line}");
        }
        for event in events {
            assert!(stderr.contains(event), "{flags:?}: {stderr}");
        }
    }
}

#[test]
fn the_password_of_a_proxy_is_not_shown() {
    // A port that is taken, and nobody listens at.
    let nobody = TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let proxy = format!("http://user:s3cr3t@{}", nobody.local_addr().unwrap());
    for scheme in ["http", "https"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hf-meta"));
        command.env_clear().env(format!("{scheme}_proxy"), &proxy);
        command.args(["-vv", "--retries", "1", &format!("{scheme}://hub.invalid/x.safetensors")]);
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(
            stderr.contains("DEBUG failed") && stderr.contains("could not connect"),
            "{stderr}"
        );
        assert!(!stderr.contains("s3cr3t") && !stderr.contains("user"), "{stderr}");
    }
}
