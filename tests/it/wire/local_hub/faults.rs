//! Faults as a client sees them, and other names of a repository.

use std::time::{Duration, Instant};

use reqwest::{Client, Method};

use super::{COMMIT, CONFIG, WEIGHTS, get, get_from, hub, model, send};
use crate::hub::{ContentRangeFault, Fault, Host, LocalHub};

const RANGE: [(&str, &str); 1] = [("range", "bytes=0-3")];

/// Requests the first four bytes with a fault. Returns status, `Content-Range`, `Content-Length` and body.
async fn with_fault(fault: Fault) -> (u16, Option<String>, Option<String>, String) {
    let hub = hub();
    hub.inject(move |request, _| (request.host == Host::Cdn).then(|| fault.clone()));
    let first = get_from(&hub, WEIGHTS, &RANGE).await;
    let response = get(first.location(), &RANGE).await;
    let header = |name| response.header(name).map(str::to_owned);
    let body = String::from_utf8_lossy(&response.body).into_owned();
    (response.status, header("content-range"), header("content-length"), body)
}

#[tokio::test]
async fn a_fault_changes_only_its_part_of_the_response() {
    let range = Fault::WrongContentRange;
    let long = |is_chunked| Fault::ExtraBytes { count: 2, is_chunked };
    let cases = [
        (Fault::Header("x-hf-warning", "a; b".into()), 206, "bytes 0-3/1000", "4", "head"),
        (Fault::Clamped { length: 2 }, 206, "bytes 0-1/1000", "2", "he"),
        (Fault::Truncated { length: 2 }, 206, "bytes 0-3/1000", "2", "he"),
        (Fault::Truncated { length: 0 }, 206, "bytes 0-3/1000", "0", ""),
        (range(ContentRangeFault::Shifted), 206, "bytes 1-4/1000", "4", "head"),
        (range(ContentRangeFault::OtherSize), 206, "bytes 0-3/1001", "4", "head"),
        (range(ContentRangeFault::UnknownSize), 206, "bytes 0-3/*", "4", "head"),
        (range(ContentRangeFault::Missing), 206, "", "4", "head"),
        (Fault::ExtraBytes { count: 0, is_chunked: true }, 206, "bytes 0-3/1000", "", "head"),
        (long(false), 206, "bytes 0-3/1000", "6", "head\0\0"),
        (long(true), 206, "bytes 0-3/1000", "", "head\0\0"),
        (Fault::Trickle { interval: Duration::from_millis(1) }, 206, "bytes 0-3/1000", "4", "head"),
    ];
    for (fault, status, content_range, length, body) in cases {
        let response = with_fault(fault.clone()).await;
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let expected = (status, some(content_range), some(length), body.to_owned());
        assert_eq!(response, expected, "{fault:?}");
    }
}

#[tokio::test]
async fn a_range_request_can_return_the_whole_file() {
    for (is_chunked, expected) in [(false, Some("1000".to_owned())), (true, None)] {
        let (status, range, length, body) = with_fault(Fault::WholeFile { is_chunked }).await;
        assert_eq!((status, range, length), (200, None, expected));
        assert_eq!((body.len(), &body[..6]), (1000, "header"));
    }
}

#[tokio::test]
async fn a_body_can_be_reset() {
    let hub = hub();
    hub.inject(|request, _| (request.host == Host::Cdn).then_some(Fault::ResetInBody { after: 2 }));
    let client = Client::builder().no_proxy().build().unwrap();
    let mut response = client.get(format!("{}{WEIGHTS}", hub.endpoint())).send().await.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap().len(), 2);
    assert!(response.chunk().await.is_err());
    assert_eq!(hub.log()[1].sent.bytes(), 2);
}

#[tokio::test]
async fn a_connection_can_be_reset_before_the_response() {
    let hub = hub();
    hub.inject(|request, before| {
        (before == 0 && request.path == CONFIG).then_some(Fault::ConnectionReset)
    });
    let started = Instant::now();
    let client = Client::builder().no_proxy().retry(reqwest::retry::never()).build().unwrap();
    let url = format!("{}{CONFIG}", hub.endpoint());
    assert!(client.get(&url).send().await.is_err());
    assert!(client.get(&url).send().await.is_ok());
    let log = hub.log();
    assert_eq!(log[0].status, 0, "no response");
    assert!(started <= log[0].at && log[0].at <= log[1].at);
}

#[tokio::test]
async fn the_rule_receives_the_number_of_earlier_equal_requests() {
    let hub = hub();
    hub.inject(|_, before| Some(Fault::Status(500 + u16::try_from(before).unwrap(), vec![])));
    for (path, headers, status) in [
        (CONFIG, &[][..], 500),
        (CONFIG, &[], 501),
        (CONFIG, &RANGE, 500),
        (WEIGHTS, &[], 500),
        (CONFIG, &[], 502),
    ] {
        assert_eq!(get_from(&hub, path, headers).await.status, status);
    }
}

#[tokio::test]
async fn other_names_redirect_to_the_repository() {
    let hub = LocalHub::start([model().renamed_from("old/name")]).unwrap();
    for (path, expected) in [
        ("/old/name/resolve/main/x", "/org/model/resolve/main/x"),
        ("/ORG/Model/resolve/main/x", "/org/model/resolve/main/x"),
        ("/api/models/old/name", "/api/models/org/model"),
    ] {
        let response = get_from(&hub, path, &[]).await;
        assert_eq!((response.status, response.location()), (307, expected));
        assert_eq!(response.header("x-repo-commit"), None);
    }
    assert_eq!(get_from(&hub, "/old/other/resolve/main/x", &[]).await.status, 401);
}

#[tokio::test]
async fn a_former_name_does_not_reveal_a_private_repository() {
    let hub = LocalHub::start([model().renamed_from("old/name").private()]).unwrap();
    assert_eq!(get_from(&hub, "/old/name/resolve/main/x", &[]).await.status, 401);
}

#[tokio::test]
async fn a_mirror_sends_metadata_only_with_the_final_response() {
    let hub = LocalHub::builder().repo(model()).mirror().start().unwrap();
    for path in [WEIGHTS, CONFIG] {
        let first = get_from(&hub, path, &[]).await;
        assert_eq!(first.header("x-repo-commit").or(first.header("x-linked-size")), None);
        let location = first.location();
        let is_path = location.starts_with('/');
        let url = if is_path { format!("{}{location}", hub.endpoint()) } else { location.into() };
        let last = send(Method::GET, &url, &[]).await;
        assert_eq!(last.header("x-repo-commit"), Some(COMMIT));
    }
}
