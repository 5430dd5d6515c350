//! One cell of the matrix: a call to a Hub with a fault in one of its reads.

use std::fmt;
use std::time::{Duration, Instant};

use hf_meta::{AddressPolicy, Client, Error, RetryPolicy, SafetensorsParseFromRepo};
use tokio::time::error::Elapsed;

use super::outcome;
use super::table::{Row, Wait};
use super::waiting_time::WaitingTime;
use crate::hub::{File, Host, LocalHub, LoggedRequest, Repo};
use crate::support::{self, file_start};
use crate::wire::traces::Capture;

/// The read that meets the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The first 8 bytes of a file.
    First,
    /// The header of a file.
    Second,
    /// An index that the Hub serves.
    Index,
    /// An index that the CDN serves.
    IndexOnCdn,
}

pub(super) const READS: [Read; 4] = [Read::First, Read::Second, Read::Index, Read::IndexOnCdn];

/// One of the two responses of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseStep {
    /// The redirect.
    Redirect,
    /// The final response, with the body.
    Body,
}

impl fmt::Display for ResponseStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Redirect { "redirect" } else { "body" })
    }
}

/// The number of times that the fault occurs in a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Times {
    Once,
    Always,
}

/// The size of the data in the file of weights: far more than may ever be sent.
const DATA: u64 = 1 << 32;

/// The index limit of the client in bytes.
const INDEX_LIMIT: u64 = 1 << 20;

/// The maximum number of bytes of an unread body in the buffers of both sockets and the server.
const IN_FLIGHT: u64 = 32 << 20;

/// The read and request timeout of cells that end by it.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Far more time than any cell needs; a cell that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);

/// A call with the fault of a row in one of its reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) read: Read,
    pub(super) times: Times,
}

impl Cell {
    fn id(self) -> String {
        let kind = if self.read == Read::IndexOnCdn { "datasets/" } else { "" };
        format!("{kind}org/{:?}-{:?}", self.read, self.times)
    }

    fn repo(self) -> Repo {
        let header = file_start(&format!(
            r#"{{"w":{{"dtype":"BOOL","shape":[{DATA}],"data_offsets":[0,{DATA}]}}}}"#
        ));
        let size = header.len() as u64 + DATA;
        let (repo, weights) = (Repo::new(&self.id()), File::padded(header, size));
        let index = match self.read {
            Read::First | Read::Second => return repo.file("model.safetensors", weights),
            Read::Index => index(),
            Read::IndexOnCdn => index().on_cdn(),
        };
        repo.file("model.safetensors.index.json", index).file("w.safetensors", weights)
    }

    /// Returns true if a request belongs to the read with the fault.
    fn matches(self, request: &LoggedRequest) -> bool {
        let range = request.range.as_deref();
        let is_read = match self.read {
            Read::First => range == Some("bytes=0-7"),
            Read::Second => range.is_some_and(|range| range.starts_with("bytes=8-")),
            Read::Index | Read::IndexOnCdn => request.path.ends_with(".index.json"),
        };
        is_read && request.path.contains(&format!("{}/", self.id()))
    }
}

fn index() -> File {
    support::index(&[("w", "w.safetensors")])
}

fn step(request: &LoggedRequest) -> ResponseStep {
    let is_body = request.host == Host::Cdn || request.path.starts_with("/api/resolve-cache/");
    if is_body { ResponseStep::Body } else { ResponseStep::Redirect }
}

fn client(hub: &LocalHub, row: &Row) -> Client {
    let policy = RetryPolicy::default()
        .max_attempts(4)
        .initial_delay(Duration::from_millis(1))
        .max_wait(HANG);
    let builder = Client::builder()
        .endpoint(hub.endpoint())
        .retry_policy(policy)
        .max_index_bytes(INDEX_LIMIT);
    // Only public addresses are allowed, and loopback because the endpoint is on loopback.
    let builder = builder.address_policy(AddressPolicy::Public);
    let builder = match row.wait {
        Wait::Timeout => builder.read_timeout(TIMEOUT).request_timeout(TIMEOUT),
        _ => builder,
    };
    builder.build().unwrap()
}

/// A Hub with a repository for each cell of a row, and a client.
pub(super) struct Testbed<'a> {
    row: &'a Row,
    hub: LocalHub,
    client: Client,
}

impl<'a> Testbed<'a> {
    pub(super) fn new(row: &'a Row) -> Self {
        let cells = || {
            READS
                .into_iter()
                .flat_map(|read| [Times::Once, Times::Always].map(|times| Cell { read, times }))
        };
        let hub = LocalHub::start(cells().map(Cell::repo)).unwrap();
        let (fault, faulty) = (row.fault.clone(), row.response);
        hub.inject(move |request, before| {
            let cell = cells().find(|cell| cell.matches(request) && step(request) == faulty)?;
            (cell.times == Times::Always || before == 0).then(|| fault.clone())
        });
        Self { row, client: client(&hub, row), hub }
    }

    /// Makes the call. Returns its result with the number of attempts, and its waiting time.
    pub(super) async fn run(&self, cell: Cell) -> (String, WaitingTime) {
        let name = format!("{} in the {}, {cell:?}", self.row.name, self.row.response);
        let (capture, started) = (Capture::default(), Instant::now());
        let result = capture.record(self.call(cell)).await;
        let result = result.unwrap_or_else(|_| panic!("{name}: hangs"));
        let (elapsed, time) = (started.elapsed(), WaitingTime::from_events(&capture));
        assert!(elapsed >= time.minimum(TIMEOUT), "{name}: {time} in {elapsed:?}");
        let log: Vec<_> = self.hub.log().into_iter().filter(|entry| cell.matches(entry)).collect();
        let count = |wanted| log.iter().filter(|entry| step(entry) == wanted).count();
        let (attempts, faults) = (count(ResponseStep::Redirect), count(self.row.response));
        assert!(faults > 0, "{name}: the fault did not occur");
        check_sent(&log, &name);
        let outcome = match &result {
            Ok(parsed) => {
                let faults = if cell.times == Times::Once { 1 } else { faults };
                check_result(parsed, self.row.wasted.bytes() * faults as u64, &name);
                "ok".to_owned()
            }
            Err(error) => {
                check_attempts(error, attempts, &name);
                outcome::name(error)
            }
        };
        (format!("{outcome} ×{attempts}"), time)
    }

    async fn call(&self, cell: Cell) -> Result<Result<SafetensorsParseFromRepo, Error>, Elapsed> {
        let client = match self.row.wait {
            // A wait that the server names applies to all cells that share a client.
            Wait::NamedByServer => &client(&self.hub, self.row),
            _ => &self.client,
        };
        let model = client.model(cell.id());
        tokio::time::timeout(HANG, model.parse_safetensors_metadata()).await
    }
}

/// Checks the count, and that at most `wasted` unneeded bytes were read.
fn check_result(parsed: &SafetensorsParseFromRepo, wasted: u64, name: &str) {
    assert_eq!(parsed.parameter_count().total(), DATA, "{name}");
    let index = if parsed.report().sharded { index().size() } else { 0 };
    let needed = index + parsed.files().map(|(_, header)| 8 + header.length()).sum::<u64>();
    let read = parsed.report().fetch.bytes_read;
    assert!((needed..=needed + wasted).contains(&read), "{name}: read {read} bytes of {needed}");
}

/// Checks the number of attempts in an error against the request log.
fn check_attempts(error: &Error, logged: usize, name: &str) {
    // Other errors concern the repository, whose files are requested concurrently.
    let is_of_server = error.kind().http_status() >= 500;
    let attempts = match error {
        Error::RequestFailed { source, .. } => Some(&source.attempts),
        Error::Refused { attempts, .. } => Some(attempts),
        _ => None,
    };
    if let Some(attempts) = attempts
        && is_of_server
    {
        assert_eq!(*attempts, logged, "{name}");
    }
}

/// Checks that no long response was read to its end.
fn check_sent(log: &[LoggedRequest], name: &str) {
    for entry in log {
        let sent = entry.sent.bytes();
        assert!(sent < IN_FLIGHT, "{name}: {sent} bytes were sent for {}", entry.path);
    }
}
