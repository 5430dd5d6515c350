//! The rows of the matrix.

use std::fmt;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use tokio::net::TcpSocket;

use super::cell::ResponseStep::{self, Body, Redirect};
use crate::hub::{ContentRangeFault, Fault};

/// A fault in one of the two responses of a read.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) response: ResponseStep,
    pub(super) fault: Fault,
    pub(super) wait: Wait,
    pub(super) wasted: Wasted,
}

/// The waits of a call, without the delays of the retry policy.
#[derive(Clone, Copy)]
pub(super) enum Wait {
    Nothing,
    /// A wait that the server names.
    NamedByServer,
    /// A read or request timeout.
    Timeout,
}

/// The maximum number of unneeded bytes read from one faulty response.
#[derive(Clone, Copy)]
pub(super) enum Wasted {
    Bytes(u64),
    /// The read buffer of the HTTP library.
    Buffer,
}

impl Wasted {
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Buffer => 512 << 10,
        }
    }
}

impl fmt::Display for Wasted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes} B"),
            Self::Buffer => f.write_str("one buffer"),
        }
    }
}

fn row(name: &'static str, response: ResponseStep, fault: Fault) -> Row {
    Row { name, response, fault, wait: Wait::Nothing, wasted: Wasted::Bytes(0) }
}

impl Row {
    fn wasting(self, wasted: Wasted) -> Self {
        Self { wasted, ..self }
    }

    fn waiting_for(self, wait: Wait) -> Self {
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
        row("408", Redirect, status(408, &[])),
        row("500", Redirect, status(500, &[])),
        row("500", Body, status(500, &[])),
        row("501", Redirect, status(501, &[])),
        row("502", Body, status(502, &[])),
        row("503", Body, status(503, &[])),
        row("504", Redirect, status(504, &[])),
        row("400", Redirect, status(400, &[])),
        row("401 `GatedRepo`", Redirect, status(401, &gated)),
        row("403", Redirect, status(403, &[])),
        row("403", Body, status(403, &[])),
        row("401", Body, status(401, &[])),
        row("404", Body, status(404, &[])),
        row("204", Body, status(204, &[])),
        row("304", Body, status(304, &[])),
    ]
}

fn waits() -> Vec<Row> {
    let past = "Sat, 01 Jan 2000 00:00:00 GMT";
    let in_an_hour = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3600));
    let exhausted = r#""resolvers";r=0;t=3600"#;
    let remaining = r#""resolvers";r=9;t=3600"#;
    vec![
        row("429", Redirect, status(429, &[])),
        row("429, `Retry-After: 0`", Body, status(429, &[("retry-after", "0")])),
        row("429, `Retry-After` in the past", Redirect, status(429, &[("retry-after", past)])),
        row(
            "429, `Retry-After` date in an hour",
            Redirect,
            status(429, &[("retry-after", &in_an_hour)]),
        )
        .waiting_for(Wait::NamedByServer),
        row("429, `Retry-After: 3600`", Redirect, status(429, &[("retry-after", "3600")]))
            .waiting_for(Wait::NamedByServer),
        row("429, r=9 t=3600", Redirect, status(429, &[("ratelimit", remaining)])),
        row("429, r=0 t=3600", Redirect, status(429, &[("ratelimit", exhausted)]))
            .waiting_for(Wait::NamedByServer),
        row("503, `Retry-After: 0`", Redirect, status(503, &[("retry-after", "0")])),
        row("302, r=0 t=3600", Redirect, Fault::Header("ratelimit", exhausted.to_owned()))
            .waiting_for(Wait::NamedByServer),
        row("`X-HF-Warning`", Redirect, Fault::Header("x-hf-warning", "a; b".to_owned())),
    ]
}

fn ranges() -> Vec<Row> {
    let range = |name, wrong| row(name, Body, Fault::WrongContentRange(wrong));
    let whole = |is_chunked| Fault::WholeFile { is_chunked };
    vec![
        row("200, whole file", Body, whole(false)).wasting(Wasted::Buffer),
        row("200, whole file, chunked", Body, whole(true)).wasting(Wasted::Buffer),
        row("200, HTML page", Redirect, Fault::HtmlPage { is_chunked: false }),
        row("200, HTML page, chunked", Body, Fault::HtmlPage { is_chunked: true }),
        range("shifted `Content-Range`", ContentRangeFault::Shifted),
        range("`Content-Range` with another size", ContentRangeFault::OtherSize),
        range("`Content-Range` without size", ContentRangeFault::UnknownSize),
        range("no `Content-Range`", ContentRangeFault::Missing),
        row("shorter range", Body, Fault::Clamped { length: 4 }),
        row("0-byte body", Body, Fault::Truncated { length: 0 }),
        row("3-byte body", Body, Fault::Truncated { length: 3 }),
        row("416", Body, status(416, &[])),
        row("416 with file size", Body, Fault::RangeNotSatisfiable),
    ]
}

fn bodies() -> Vec<Row> {
    let long = |is_chunked| Fault::ExtraBytes { count: 5, is_chunked };
    vec![
        row("5 bytes too long", Body, long(false)).wasting(Wasted::Bytes(5)),
        row("5 bytes too long, chunked", Body, long(true)).wasting(Wasted::Bytes(128)),
        row("endless body", Body, Fault::ENDLESS_BODY).wasting(Wasted::Buffer),
        row("chunked body", Body, Fault::ExtraBytes { count: 0, is_chunked: true }),
        // The gzip header and trailer make small bodies longer.
        row("gzip body", Body, Fault::Gzip).wasting(Wasted::Bytes(64)),
    ]
}

fn connections() -> Vec<Row> {
    let trickle = Fault::Trickle { interval: Duration::from_millis(500) };
    vec![
        row("connection reset before headers", Redirect, Fault::ConnectionReset),
        row("connection reset before headers", Body, Fault::ConnectionReset),
        row("connection reset after 3 bytes", Body, Fault::ResetInBody { after: 3 })
            .wasting(Wasted::Bytes(3)),
        row("stall before headers", Redirect, Fault::Stall).waiting_for(Wait::Timeout),
        row("stall before headers", Body, Fault::Stall).waiting_for(Wait::Timeout),
        row("stall after 3 bytes", Body, Fault::StallInBody { after: 3 })
            .wasting(Wasted::Bytes(3))
            .waiting_for(Wait::Timeout),
        row("one byte every 0.5 s", Body, trickle)
            .wasting(Wasted::Bytes(4))
            .waiting_for(Wait::Timeout),
    ]
}

/// A socket that is bound but does not listen, so that connections to its port are refused.
static CLOSED_PORT: LazyLock<TcpSocket> = LazyLock::new(|| {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
});

fn redirects() -> Vec<Row> {
    let to = |url: &str| Fault::redirect(302, url.to_owned());
    let closed_port = format!("http://{}/", CLOSED_PORT.local_addr().unwrap());
    vec![
        row("redirect to itself", Body, to("")),
        row("redirect to `file:`", Redirect, to("file:///etc/passwd")),
        row("redirect to `ftp:`", Body, to("ftp://127.0.0.1/x")),
        row("redirect to `gopher:`", Redirect, to("gopher://127.0.0.1/x")),
        row("redirect to `data:`", Body, to("data:,x")),
        row("redirect to 10.0.0.1", Redirect, to("http://10.0.0.1/x")),
        row("redirect to 10.0.0.1 as 167772161", Body, to("http://167772161/x")),
        row("redirect to 10.0.0.1 as 012.0.0.1", Redirect, to("https://012.0.0.1/x")),
        row("redirect to 169.254.169.254", Redirect, to("http://169.254.169.254/latest")),
        row("redirect to 169.254.169.254 as 0xa9fea9fe", Body, to("http://0xa9fea9fe/latest")),
        row("redirect to `[::ffff:169.254.169.254]`", Body, to("http://[::ffff:169.254.169.254]/")),
        row("redirect to `[fe80::1]`", Redirect, to("http://[fe80::1]/x")),
        row("redirect to `[fd00::1]`", Body, to("http://[fd00::1]/x")),
        row("redirect to 0.0.0.0", Redirect, to("http://0.0.0.0/x")),
        row("redirect to `[::]`", Body, to("http://[::]/x")),
        row("redirect to an invalid URL", Redirect, to("http://[")),
        row("redirect to a closed port", Redirect, to(&closed_port)),
        row("redirect without `Location`", Redirect, status(302, &[])),
    ]
}
