//! A parser that takes forever holds up nothing but its own call.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use hf_meta::{Client, Error, RepoPath, RetryPolicy};
use hf_meta_format::formats::{Format, HeaderError, HeaderErrorKind, HeaderParser, Step};
use hf_meta_server::{Service, ServiceConfig};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::hub::{File, LocalHub, Repo};
use crate::support;

/// Much longer than everything but the parser takes.
const HANG: Duration = Duration::from_secs(60);

/// The size up to which a parser may run on the threads of the runtime, in bytes.
const SMALL: u64 = 1 << 16;

/// A format whose parser does not return before the test releases it.
#[derive(Clone, Debug)]
struct Slow {
    entered: UnboundedSender<()>,
    released: Arc<Mutex<Receiver<()>>>,
}

/// The test's side of a [`Slow`] parser. Dropping it releases the parser.
struct Gate {
    entered: UnboundedReceiver<()>,
    _release: Sender<()>,
}

fn slow() -> (Slow, Gate) {
    let ((entered, seen), (release, released)) = (unbounded_channel(), channel());
    let slow = Slow { entered, released: Arc::new(Mutex::new(released)) };
    (slow, Gate { entered: seen, _release: release })
}

impl Format for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn extension(&self) -> &'static str {
        ".slow"
    }

    fn parser(&self, _: &RepoPath, _: u64) -> Box<dyn HeaderParser> {
        Box::new(self.clone())
    }
}

/// Each range is small, and the header is not.
impl HeaderParser for Slow {
    fn first_range(&self) -> Range<u64> {
        0..SMALL
    }

    fn advance(&mut self, start: u64, _: Vec<u8>, _: Option<u64>) -> Result<Step, HeaderError> {
        if start == 0 {
            return Ok(Step::Read(SMALL..SMALL + 8));
        }
        self.entered.send(()).ok();
        let released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        // The sender is dropped, or the runtime is blocked by this thread.
        let waited = released.recv_timeout(HANG);
        Err(HeaderError::new(HeaderErrorKind::Other, format!("the parser ended: {waited:?}")))
    }
}

/// Returns a Hub with a file for the slow parser and a model of two tensors.
fn hub() -> LocalHub {
    let file = File::padded(Vec::new(), 2 * SMALL);
    let slow = Repo::new("org/slow").file("model.slow", file);
    LocalHub::start([slow, support::sharded("org/model")]).unwrap()
}

fn client(hub: &LocalHub, slow: Slow) -> Client {
    let retry = RetryPolicy::default().max_attempts(1);
    let client = Client::builder().endpoint(hub.endpoint()).retry_policy(retry);
    client.format(slow).build().unwrap()
}

#[tokio::test]
async fn other_calls_timeouts_and_cancellation_work_meanwhile() {
    let (hub, (slow, mut gate)) = (hub(), slow());
    let client = client(&hub, slow);
    let held = tokio::spawn(client.model("org/slow").path("model.slow").count().into_future());
    gate.entered.recv().await.unwrap();
    let other = timeout(HANG, client.model("org/model").count()).await.unwrap().unwrap();
    assert_eq!(other.parameter_count.total(), 2);
    held.abort();
    assert!(timeout(HANG, held).await.unwrap().unwrap_err().is_cancelled());
    drop(gate);

    let (slow, mut gate) = self::slow();
    let client = self::client(&hub, slow);
    let mut limit = Duration::from_millis(100);
    // Slow machines need more time to reach the parser.
    while gate.entered.try_recv().is_err() {
        let late = client.model("org/slow").path("model.slow").timeout(limit).verify();
        let late = timeout(HANG, late).await.unwrap();
        assert!(matches!(late, Err(Error::DeadlineExceeded { .. })), "{late:?}");
        limit *= 2;
    }
}

#[tokio::test]
async fn the_service_answers_and_shuts_down_meanwhile() {
    let (hub, (slow, mut gate)) = (hub(), slow());
    let mut config = ServiceConfig::default();
    config.lookup_timeout = Duration::from_millis(10);
    let service = Service::new(client(&hub, slow), config);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (end, ended) = oneshot::channel();
    let service = tokio::spawn(service.serve(listener, async move { drop(ended.await) }));
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = async |path: &str| {
        let response = http.get(format!("{address}{path}")).send();
        timeout(HANG / 2, response).await.expect("the service is blocked").unwrap()
    };
    let badge = async |repo| get(&format!("/badge/{repo}.svg")).await.text().await.unwrap();
    assert!(badge("org/slow").await.contains("pending"));
    gate.entered.recv().await.unwrap();
    assert_eq!(get("/healthz").await.status(), StatusCode::OK);
    let is_known = async || badge("org/model").await.contains("params: 2");
    support::wait_until("the badge is known", is_known).await;
    assert!(badge("org/slow").await.contains("pending"));
    end.send(()).unwrap();
    timeout(HANG / 2, service).await.expect("the service does not end").unwrap();
    drop(gate);
}
