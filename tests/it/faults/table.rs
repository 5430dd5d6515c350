//! The faults of the matrix.

use std::fmt;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use tokio::net::TcpSocket;

use super::cell::Hop::{self, First, Last};
use crate::hub::{ContentRangeFault, Fault};

/// A fault at one of the two answers of a read.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) hop: Hop,
    pub(super) fault: Fault,
    pub(super) wait: Wait,
    pub(super) waste: Waste,
}

/// What a call waits for, beside its own delays.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    Nothing,
    /// A time that the server names.
    RepoArg,
    /// A deadline.
    Deadline,
}

/// The most that is read of one spoiled answer in vain.
#[derive(Clone, Copy)]
pub(super) enum Waste {
    Bytes(u64),
    /// What the HTTP library reads at a time.
    Buffer,
}

impl Waste {
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Buffer => 512 << 10,
        }
    }
}

impl fmt::Display for Waste {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes} B"),
            Self::Buffer => f.write_str("a buffer"),
        }
    }
}

fn row(name: &'static str, hop: Hop, fault: Fault) -> Row {
    Row { name, hop, fault, wait: Wait::Nothing, waste: Waste::Bytes(0) }
}

impl Row {
    fn wastes(self, waste: Waste) -> Self {
        Self { waste, ..self }
    }

    fn waits(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }
}

pub(super) fn rows() -> Vec<Row> {
    [statuses(), waits(), ranges(), bodies(), connections(), redirects()]
        .into_iter()
        .flatten()
        .collect()
}

fn status(code: u16, headers: &[(&'static str, &str)]) -> Fault {
    Fault::Status(code, headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect())
}

fn statuses() -> Vec<Row> {
    let gated = [("x-error-code", "GatedRepo")];
    vec![
        row("408", First, status(408, &[])),
        row("500", First, status(500, &[])),
        row("500", Last, status(500, &[])),
        row("501", First, status(501, &[])),
        row("502", Last, status(502, &[])),
        row("503", Last, status(503, &[])),
        row("504", First, status(504, &[])),
        row("400", First, status(400, &[])),
        row("401 `GatedRepo`", First, status(401, &gated)),
        row("403", First, status(403, &[])),
        row("403", Last, status(403, &[])),
        row("401", Last, status(401, &[])),
        row("404", Last, status(404, &[])),
        row("204", Last, status(204, &[])),
        row("304", Last, status(304, &[])),
    ]
}

fn waits() -> Vec<Row> {
    let past = "Sat, 01 Jan 2000 00:00:00 GMT";
    let in_an_hour = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3600));
    let empty = r#""resolvers";r=0;t=3600"#;
    let nearly = r#""resolvers";r=9;t=3600"#;
    vec![
        row("429", First, status(429, &[])),
        row("429, `Retry-After: 0`", Last, status(429, &[("retry-after", "0")])),
        row("429, `Retry-After` a past date", First, status(429, &[("retry-after", past)])),
        row(
            "429, `Retry-After` a date in an hour",
            First,
            status(429, &[("retry-after", &in_an_hour)]),
        )
        .waits(Wait::RepoArg),
        row("429, `Retry-After: 3600`", First, status(429, &[("retry-after", "3600")]))
            .waits(Wait::RepoArg),
        row("429, r=9 t=3600", First, status(429, &[("ratelimit", nearly)])),
        row("429, r=0 t=3600", First, status(429, &[("ratelimit", empty)])).waits(Wait::RepoArg),
        row("503, `Retry-After: 0`", First, status(503, &[("retry-after", "0")])),
        row("fine, r=0 t=3600", First, Fault::Header("ratelimit", empty.to_owned()))
            .waits(Wait::RepoArg),
        row("`X-HF-Warning`", First, Fault::Header("x-hf-warning", "a; b".to_owned())),
    ]
}

fn ranges() -> Vec<Row> {
    let range = |name, wrong| row(name, Last, Fault::WrongContentRange(wrong));
    let unsatisfiable = |with_size| Fault::RangeNotSatisfiable { with_size };
    let whole = |is_chunked| Fault::WholeFile { is_chunked };
    vec![
        row("200, the whole file", Last, whole(false)).wastes(Waste::Buffer),
        row("200, chunked", Last, whole(true)).wastes(Waste::Buffer),
        row("200, a page", First, Fault::HtmlPage { is_chunked: false }),
        row("200, a page, chunked", Last, Fault::HtmlPage { is_chunked: true }),
        range("`Content-Range` shifted", ContentRangeFault::Shifted),
        range("`Content-Range` of another size", ContentRangeFault::OtherSize),
        range("`Content-Range` of no size", ContentRangeFault::UnknownSize),
        range("no `Content-Range`", ContentRangeFault::Missing),
        row("clamped range", Last, Fault::Clamped { to: 4 }),
        row("0 bytes", Last, Fault::Truncated { to: 0 }),
        row("3 bytes", Last, Fault::Truncated { to: 3 }),
        row("416", Last, unsatisfiable(false)),
        row("416 with the size", Last, unsatisfiable(true)),
    ]
}

fn bodies() -> Vec<Row> {
    let long = |is_chunked| Fault::ExtraBytes { count: 5, is_chunked };
    vec![
        row("5 bytes too long", Last, long(false)).wastes(Waste::Bytes(5)),
        row("5 bytes too long, chunked", Last, long(true)).wastes(Waste::Bytes(128)),
        row("endless", Last, Fault::EndlessBody).wastes(Waste::Buffer),
        row("chunked", Last, Fault::Chunked),
        // What is shorter than the envelope of gzip grows by it.
        row("gzip", Last, Fault::Gzip).wastes(Waste::Bytes(64)),
    ]
}

fn connections() -> Vec<Row> {
    let trickle = Fault::Trickle { interval: Duration::from_millis(500) };
    vec![
        row("reset before the headers", First, Fault::ConnectionReset),
        row("reset before the headers", Last, Fault::ConnectionReset),
        row("reset after 3 bytes", Last, Fault::ResetInBody { after: 3 }).wastes(Waste::Bytes(3)),
        row("stall before the headers", First, Fault::Stall).waits(Wait::Deadline),
        row("stall before the headers", Last, Fault::Stall).waits(Wait::Deadline),
        row("stall after 3 bytes", Last, Fault::StallInBody { after: 3 })
            .wastes(Waste::Bytes(3))
            .waits(Wait::Deadline),
        row("a byte every 0.5 s", Last, trickle).wastes(Waste::Bytes(4)).waits(Wait::Deadline),
    ]
}

/// A port that is taken, and nobody listens at.
static NOBODY: LazyLock<TcpSocket> = LazyLock::new(|| {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
});

fn redirects() -> Vec<Row> {
    let to = |url: &str| Fault::Redirect(302, url.to_owned());
    let nobody = format!("http://{}/", NOBODY.local_addr().unwrap());
    vec![
        row("redirect to itself", Last, to("")),
        row("redirect to `file:`", First, to("file:///etc/passwd")),
        row("redirect to `ftp:`", Last, to("ftp://127.0.0.1/x")),
        row("redirect to `gopher:`", First, to("gopher://127.0.0.1/x")),
        row("redirect to `data:`", Last, to("data:,x")),
        row("redirect to 10.0.0.1", First, to("http://10.0.0.1/x")),
        row("redirect to 10.0.0.1 as 167772161", Last, to("http://167772161/x")),
        row("redirect to 10.0.0.1 as 012.0.0.1", First, to("https://012.0.0.1/x")),
        row("redirect to 169.254.169.254", First, to("http://169.254.169.254/latest")),
        row("redirect to 169.254.169.254 as 0xa9fea9fe", Last, to("http://0xa9fea9fe/latest")),
        row("redirect to `[::ffff:169.254.169.254]`", Last, to("http://[::ffff:169.254.169.254]/")),
        row("redirect to `[fe80::1]`", First, to("http://[fe80::1]/x")),
        row("redirect to `[fd00::1]`", Last, to("http://[fd00::1]/x")),
        row("redirect to 0.0.0.0", First, to("http://0.0.0.0/x")),
        row("redirect to `[::]`", Last, to("http://[::]/x")),
        row("redirect to no URL", First, to("http://[")),
        row("redirect to nobody", First, to(&nobody)),
        row("redirect without `Location`", First, status(302, &[])),
    ]
}
