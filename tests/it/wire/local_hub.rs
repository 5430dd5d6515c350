//! The local Hub behaves like the real one, over real sockets.

mod errors;
mod faults;
mod files;
mod generated;
mod model_list;
mod quotas;
mod repos;

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, redirect};

use crate::hub::{File, LocalHub, Repo};

const COMMIT: &str = "1111111111111111111111111111111111111111";
const WEIGHTS: &str = "/org/model/resolve/main/model.safetensors";
const CONFIG: &str = "/org/model/resolve/main/config.json";

/// A complete response.
struct Received {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Received {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn location(&self) -> &str {
        self.header("location").unwrap()
    }

    fn content_length(&self) -> usize {
        self.header("content-length").unwrap().parse().unwrap()
    }
}

/// Sends one request without following redirects.
async fn send(method: Method, url: &str, headers: &[(&str, &str)]) -> Received {
    let client = Client::builder().redirect(redirect::Policy::none()).no_proxy();
    let client = client.timeout(Duration::from_secs(20)).build().unwrap();
    let request = client.request(method, url);
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Received { status, headers, body: response.bytes().await.unwrap() }
}

#[test]
fn a_round_trip_time_has_a_unit() {
    let cases =
        [("50ms", 50_000), ("50", 50_000), ("0.2s", 200_000), ("7us", 7), ("1min", 60_000_000)];
    for (text, microseconds) in cases {
        let expected = Duration::from_micros(microseconds);
        assert_eq!(crate::duration::parse_duration(text), Ok(expected), "{text}");
    }
    for text in ["", "ms", "1h", "-1s", "1e400s", "x"] {
        assert!(crate::duration::parse_duration(text).is_err(), "{text}");
    }
}

async fn get(url: &str, headers: &[(&str, &str)]) -> Received {
    send(Method::GET, url, headers).await
}

/// Sends a `GET` for a path of the Hub.
async fn get_from(hub: &LocalHub, path: &str, headers: &[(&str, &str)]) -> Received {
    get(&format!("{}{path}", hub.endpoint()), headers).await
}

fn model() -> Repo {
    Repo::new("org/model")
        .commit(COMMIT)
        .file("model.safetensors", File::padded("header", 1000))
        .file("config.json", File::from_bytes(r#"{"a":1}"#))
}

fn hub() -> LocalHub {
    LocalHub::start([model()]).unwrap()
}
