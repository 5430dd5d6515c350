//! Log events and spans of a call: every attempt with its result, and no secrets.

mod capture;

use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use futures::future::{Either, join_all, select};
use hf_meta::{Client, Source};
use tokio::net::TcpSocket;

pub(crate) use self::capture::{Capture, Recorded};
use crate::hub::{Fault, Host, LocalHub, LoggedRequest, Repo};
use crate::support;

const FILE: &str = "model.safetensors";

fn hub() -> LocalHub {
    LocalHub::start([Repo::new("org/model").file(FILE, support::weights(&["w"]))]).unwrap()
}

fn is_first_range(request: &LoggedRequest) -> bool {
    request.host == Host::Cdn && request.range.as_deref() == Some("bytes=0-7")
}

/// Returns the events at the ends of attempts: file, number, range, status and bytes.
fn attempts(capture: &Capture) -> Vec<[String; 5]> {
    let fields = ["file", "attempt", "range", "status", "bytes"];
    ends(capture)
        .into_iter()
        .map(|recorded| fields.map(|field| recorded.field(field).to_owned()))
        .collect()
}

/// Returns the events at the ends of attempts, in their order.
fn ends(capture: &Capture) -> Vec<Recorded> {
    let recorded = capture.recorded().into_iter();
    recorded.filter(|recorded| matches!(&*recorded.name, "read" | "failed")).collect()
}

#[tokio::test]
async fn every_attempt_has_an_event_with_its_result() {
    let (hub, capture) = (hub(), Capture::default());
    hub.inject(|request, before| {
        let faults = [Fault::Status(503, vec![]), Fault::Truncated { length: 3 }];
        if is_first_range(request) { faults.into_iter().nth(before) } else { None }
    });
    let model = support::client(&hub).model("org/model").path(FILE);
    let parsed = capture.record(model.parse_safetensors_metadata()).await.unwrap();
    let (last, read) = (7 + parsed.files().map(|(_, header)| header.length()).sum::<u64>(), "206");
    let (header, length) = (format!("8-{last}"), (last - 7).to_string());
    let expected = [
        [FILE, "1", "0-7", "503", "0"],
        [FILE, "2", "0-7", read, "0"],
        [FILE, "3", "0-7", read, "8"],
        [FILE, "1", &header, read, &length],
    ];
    assert_eq!(attempts(&capture), expected);
    for recorded in ends(&capture) {
        assert_eq!(recorded.field("source"), "hf://org/model@main/model.safetensors");
        assert_eq!(recorded.field("repo"), "org/model");
        assert!(!recorded.field("elapsed").is_empty());
    }
    check_events(&capture, hub.log().len());
}

/// Checks the events of redirects, attempts and retries, each inside the span of its file.
fn check_events(capture: &Capture, requests: usize) {
    let counts = ["redirected", "failed", "retrying", "read"].map(|what| {
        let recorded = capture.all(what);
        assert!(recorded.iter().all(|recorded| recorded.field("file") == FILE), "{recorded:#?}");
        recorded.len()
    });
    assert_eq!(counts, [requests - 4, 2, 2, 2], "each request has one event");
    let bytes = |what| {
        capture.all(what).iter().map(|recorded| recorded.field("bytes").to_owned()).collect()
    };
    let (failed, read): (Vec<_>, Vec<_>) = (bytes("failed"), bytes("read"));
    assert_eq!((failed, &*read[0]), (vec!["0".to_owned(), "0".to_owned()], "8"));
    assert!(capture.all("failed")[0].field("error").contains("status 503"));
}

fn check_no_secret(recorded: &[Recorded], secrets: &[&str]) {
    for text in recorded.iter().flat_map(Recorded::texts) {
        let found = secrets.iter().find(|secret| text.contains(**secret));
        assert_eq!(found, None, "in {text}");
    }
}

#[tokio::test]
async fn no_field_contains_a_secret() {
    let repo = Repo::new("org/model").gated().file(FILE, support::weights(&["w"]));
    let hub = LocalHub::builder().repo(repo).token("hf_s3cr3t").start().unwrap();
    hub.inject(|request, before| {
        let faults = [
            Fault::Status(403, vec![("x-error-message", "no".to_owned())]),
            Fault::WrongContentRange(crate::hub::ContentRangeFault::Shifted),
            Fault::redirect(302, "http://u:s3cr3t@[::1/?Signature=s3cr3t".to_owned()),
        ];
        if is_first_range(request) { faults.into_iter().nth(before) } else { None }
    });
    let client = Client::builder().endpoint(hub.endpoint()).token("hf_s3cr3t").build().unwrap();
    let (capture, model) = (Capture::default(), client.model("org/model").path(FILE));
    for is_right in [false, false, true] {
        let parsed = capture.record(model.parse_safetensors_metadata()).await;
        assert_eq!(parsed.is_ok(), is_right, "{parsed:?}");
    }
    let file = hub.cdn_origin().replacen("http://", "http://user:s3cr3t@", 1);
    let pasted: Source = format!("{file}/x.safetensors?Signature=s3cr3t").parse().unwrap();
    capture.record(client.source(pasted).parse_safetensors_metadata()).await.unwrap_err();
    assert_eq!(capture.all("call").len(), 4);
    assert_eq!(capture.all("failed").len(), 4);
    check_no_secret(&capture.recorded(), &["s3cr3t", "Signature", "Expires", "user:"]);
}

const LONG: &str = r#""resolvers";r=0;t=100"#;
const HANG: Duration = Duration::from_secs(60);

/// Eight requests are held back for 100 s: the first logs a warning, the others log for debugging.
#[tokio::test]
async fn a_long_rate_limit_is_logged_as_one_warning() {
    let (hub, capture) = (hub(), Capture::default());
    // Only the Hub is limited. Otherwise a call that passed the gate would wait for the CDN, too.
    hub.inject(|request, _| {
        (request.host == Host::Hub).then(|| Fault::Header("ratelimit", LONG.to_owned()))
    });
    let client = support::client(&hub);
    let model = client.model("org/model").path(FILE);
    let calls = join_all((0..8).map(|_| capture.record(model.parse_safetensors_metadata())));
    let starting_with = |start: &str| {
        let events = capture.recorded().into_iter();
        events.filter(|event| event.name.starts_with(start)).collect::<Vec<_>>()
    };
    let recorded =
        || ["rate limit reached", "request held back by a rate limit"].map(starting_with);
    let all_wait = async {
        while recorded().map(|recorded| recorded.len()).iter().sum::<usize>() < 8 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let all_wait = pin!(tokio::time::timeout(HANG, all_wait));
    match select(calls, all_wait).await {
        Either::Right((waited, _)) => waited.expect("the wait is not logged"),
        Either::Left((results, _)) => panic!("no call waited: {results:?}"),
    }
    let [warned, held] = recorded();
    assert_eq!((warned.len(), &*warned[0].level), (1, "WARN"));
    assert!(held.iter().all(|recorded| recorded.level == "DEBUG"), "{held:#?}");
    assert!(
        warned
            .iter()
            .chain(&held)
            .all(|recorded| recorded.field("server").starts_with("http://127.0.0.1:"))
    );
    assert!(warned[0].name.contains("waiting 1 min 4"), "{}", warned[0].name);
}

/// With `-v`, the command shows one line per event.
#[test]
fn the_command_logs_one_line_per_event() {
    let hub = hub();
    for (flags, events) in [
        (vec![], vec![]),
        (vec!["-v"], vec!["info: retrying"]),
        (vec!["-vv"], vec!["debug: redirected", "debug: failed", "info: retrying", "debug: read"]),
    ] {
        hub.inject(|request, before| {
            (is_first_range(request) && before == 0).then(|| Fault::Status(503, vec![]))
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_hf-meta"));
        command.env_clear().env("HF_ENDPOINT", hub.endpoint());
        command.args(["--no-cache", "org/model", "--path", FILE]);
        let output = command.args(&flags).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        for line in stderr.lines() {
            let known = events.iter().any(|event| line.trim_start().starts_with(event));
            assert!(known && line.contains("url: http://127.0.0.1:"), "{flags:?}: {line}");
        }
        for event in events {
            assert!(stderr.contains(event), "{flags:?}: {stderr}");
        }
    }
}

#[test]
fn the_password_of_a_proxy_is_not_shown() {
    // The socket is bound but does not listen, so that connections are refused.
    let closed_port = TcpSocket::new_v4().unwrap();
    closed_port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let proxy = format!("http://user:s3cr3t@{}", closed_port.local_addr().unwrap());
    for scheme in ["http", "https"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hf-meta"));
        command.env_clear().env(format!("{scheme}_proxy"), &proxy);
        command.args(["-vv", "--retries", "1", &format!("{scheme}://hub.invalid/x.safetensors")]);
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(
            stderr.contains("debug: failed") && stderr.contains("failed to connect"),
            "{stderr}"
        );
        assert!(!stderr.contains("s3cr3t") && !stderr.contains("user"), "{stderr}");
    }
}
