//! One cell of the matrix: a call to a Hub that spoils the answers to one of its reads.

use std::fmt;
use std::time::{Duration, Instant};

use hf_meta::{AddressPolicy, Client, Error, RetryPolicy, SafetensorsParseFromRepo};
use tokio::time::error::Elapsed;

use super::outcome;
use super::spent::Spent;
use super::table::{Row, Wait};
use crate::hub::{File, Host, LocalHub, LoggedRequest, Repo};
use crate::support::{self, file_start};
use crate::traces::Capture;

/// What is read when the fault comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The first 8 bytes of a file.
    First,
    /// Its header.
    Second,
    /// An index, which the Hub itself sends.
    Index,
    /// An index that is kept where the weights are.
    IndexOnCdn,
}

pub(super) const READS: [Read; 4] = [Read::First, Read::Second, Read::Index, Read::IndexOnCdn];

/// Which of the two answers of a read is spoiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hop {
    /// The redirect.
    First,
    /// The one with the bytes.
    Last,
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::First { "redirect" } else { "bytes" })
    }
}

/// How often it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Times {
    Once,
    Always,
}

/// The size of the data of the one file of weights, far more than may ever be sent of it.
const DATA: u64 = 1 << 32;

/// The longest index that the client takes.
const INDEX_LIMIT: u64 = 1 << 20;

/// What two sockets and the server's buffers may hold of a body that nobody reads.
const IN_FLIGHT: u64 = 32 << 20;

/// How long a read and a request may take, where that is what ends a cell.
const DEADLINE: Duration = Duration::from_secs(2);

/// Long enough for any machine; a cell that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);

/// A call in which a read meets the fault of a row.
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

    /// Whether a request is for what is read.
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

fn hop(request: &LoggedRequest) -> Hop {
    let is_last = request.host == Host::Cdn || request.path.starts_with("/api/resolve-cache/");
    if is_last { Hop::Last } else { Hop::First }
}

fn client(hub: &LocalHub, row: &Row) -> Client {
    let policy = RetryPolicy::default()
        .max_attempts(4)
        .initial_delay(Duration::from_millis(1))
        .max_delay(Duration::from_millis(5));
    let builder = Client::builder().endpoint(hub.endpoint()).retry(policy).index_limit(INDEX_LIMIT);
    // What is inside is refused, but for what the endpoint itself is: a server on loopback.
    let builder = builder.addresses(AddressPolicy::Public);
    let builder = match row.wait {
        Wait::Deadline => builder.read_timeout(DEADLINE).request_timeout(DEADLINE),
        _ => builder,
    };
    builder.build().unwrap()
}

/// A Hub with a repo for each cell of a row, and a client of it.
pub(super) struct Bench<'a> {
    row: &'a Row,
    hub: LocalHub,
    client: Client,
}

impl<'a> Bench<'a> {
    pub(super) fn new(row: &'a Row) -> Self {
        let cells = || {
            READS
                .into_iter()
                .flat_map(|read| [Times::Once, Times::Always].map(|times| Cell { read, times }))
        };
        let hub = LocalHub::start(cells().map(Cell::repo)).unwrap();
        let (fault, at) = (row.fault.clone(), row.hop);
        hub.inject(move |request, before| {
            let cell = cells().find(|cell| cell.matches(request) && hop(request) == at)?;
            (cell.times == Times::Always || before == 0).then(|| fault.clone())
        });
        Self { row, client: client(&hub, row), hub }
    }

    /// What the call came to, after how many attempts, and what it waited for.
    pub(super) async fn run(&self, cell: Cell) -> (String, Spent) {
        let place = format!("{} at {}, {cell:?}", self.row.name, self.row.hop);
        let (capture, started) = (Capture::default(), Instant::now());
        let result = capture.of(self.call(cell)).await;
        let result = result.unwrap_or_else(|_| panic!("{place}: hangs"));
        let (elapsed, spent) = (started.elapsed(), Spent::told(&capture));
        assert!(elapsed >= spent.least(DEADLINE), "{place}: {spent} in {elapsed:?}");
        let log: Vec<_> = self.hub.log().into_iter().filter(|entry| cell.matches(entry)).collect();
        let at = |wanted| log.iter().filter(|entry| hop(entry) == wanted).count();
        let (attempts, met) = (at(Hop::First), at(self.row.hop));
        assert!(met > 0, "{place}: the fault did not come");
        check_sent(&log, &place);
        let outcome = match &result {
            Ok(parsed) => {
                let spoiled = if cell.times == Times::Once { 1 } else { met };
                check_result(parsed, self.row.waste.bytes() * spoiled as u64, &place);
                "ok".to_owned()
            }
            Err(error) => {
                check_attempts(error, attempts, &place);
                outcome::name(error)
            }
        };
        (format!("{outcome} ×{attempts}"), spent)
    }

    async fn call(&self, cell: Cell) -> Result<Result<SafetensorsParseFromRepo, Error>, Elapsed> {
        let client = match self.row.wait {
            // What a server asks of one cell, all that share a client wait for.
            Wait::RepoArg => &client(&self.hub, self.row),
            _ => &self.client,
        };
        let model = client.model(cell.id());
        tokio::time::timeout(HANG, model.parse_safetensors_metadata()).await
    }
}

/// The right counts, for the bytes that they take and little more.
fn check_result(parsed: &SafetensorsParseFromRepo, waste: u64, place: &str) {
    assert_eq!(parsed.parameter_count().total(), DATA, "{place}");
    let index = if parsed.report().sharded { index().size() } else { 0 };
    let needed = index + parsed.files().map(|(_, header)| 8 + header.length()).sum::<u64>();
    let read = parsed.report().fetch.bytes_read;
    assert!((needed..=needed + waste).contains(&read), "{place}: read {read} bytes of {needed}");
}

/// An error says of the attempts what the log says.
fn check_attempts(error: &Error, logged: usize, place: &str) {
    if let Error::Fetch { attempts, .. } | Error::Refused { attempts, .. } = error {
        assert_eq!(*attempts, logged, "{place}");
    }
}

/// No answer is drained, whatever its length.
fn check_sent(log: &[LoggedRequest], place: &str) {
    for entry in log {
        let sent = entry.sent.bytes();
        assert!(sent < IN_FLIGHT, "{place}: {sent} bytes were sent to {}", entry.path);
    }
}
