//! Tests of the gate with simulated time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use reqwest::header::{HeaderName, HeaderValue};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::*;

/// Much longer than any wait.
const LONG: Duration = Duration::from_secs(1_000_000);

/// Shorter than any wait.
const INSTANT: Duration = Duration::from_millis(1);

fn key(path: &str) -> GateKey {
    GateKey::from(&Url::parse("https://hub.example").unwrap().join(path).unwrap())
}

fn file() -> GateKey {
    key("/org/model/resolve/main/model.safetensors")
}

fn listing() -> GateKey {
    key("/api/models/org/model/tree/main")
}

fn headers(name: &'static str, value: &str) -> HeaderMap {
    let value = HeaderValue::from_str(value).unwrap();
    HeaderMap::from_iter([(HeaderName::from_static(name), value)])
}

/// Sends a request that gets this response, and returns its wait.
async fn send(gate: &RateLimitGate, key: GateKey, status: u16, headers: &HeaderMap) -> Duration {
    let started = Instant::now();
    let pass = gate.acquire(key, &CallMeter::default(), LONG).await.unwrap();
    pass.record(status, headers);
    started.elapsed()
}

/// Returns whether a request may be sent at once.
async fn is_open(gate: &RateLimitGate, key: GateKey) -> bool {
    timeout(INSTANT, gate.acquire(key, &CallMeter::default(), LONG)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_quota_holds_only_its_own_bucket() {
    let gate = RateLimitGate::new(256, 1.0);
    send(&gate, listing(), 200, &headers("ratelimit", r#""api";r=0;t=290"#)).await;
    assert!(is_open(&gate, file()).await);
    assert!(!is_open(&gate, listing()).await);
    send(&gate, file(), 429, &headers("retry-after", "20")).await;
    assert!(!is_open(&gate, file()).await);
    assert!(is_open(&gate, key("https://cdn.example/x")).await);
    let waited = send(&gate, file(), 200, &HeaderMap::new()).await;
    assert!(waited > Duration::from_secs(19) && waited < Duration::from_secs(23), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_lasts_until_the_last_hold_of_a_token_ends() {
    let gate = RateLimitGate::new(256, 1.0);
    let paused = || gate.paused_for().map(|left| left.as_secs());
    send(&gate, file(), 200, &headers("ratelimit", r#""resolvers";r=9;t=99"#)).await;
    assert_eq!(paused(), None, "the quota is not exhausted");
    send(&gate, file(), 429, &headers("retry-after", "20")).await;
    assert_eq!(paused(), Some(20));
    send(&gate, listing(), 429, &headers("retry-after", "30")).await;
    assert_eq!(paused(), Some(30));
    assert_eq!(gate.for_token(Some(HeaderValue::from_static("x"))).paused_for(), None);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(paused(), None);
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_applied_to_the_bucket_that_it_names() {
    let gate = RateLimitGate::new(256, 1.0);
    send(&gate, file(), 200, &headers("ratelimit", r#""resolvers";r=9;t=9, "api";r=0;t=290"#))
        .await;
    assert!(is_open(&gate, file()).await);
    assert!(!is_open(&gate, listing()).await);
}

#[tokio::test(start_paused = true)]
async fn at_most_a_quarter_of_the_remaining_quota_is_in_flight() {
    let (gate, meter) = (RateLimitGate::new(256, 1.0), CallMeter::default());
    for (remaining, expected) in [(400, 100), (8, 2), (3, 1)] {
        let quota = format!(r#""resolvers";r={remaining};t=100"#);
        send(&gate, file(), 200, &headers("ratelimit", &quota)).await;
        let mut passes = Vec::new();
        while let Ok(pass) = timeout(INSTANT, gate.acquire(file(), &meter, LONG)).await {
            passes.push(pass.unwrap());
        }
        assert_eq!(passes.len(), expected, "{remaining} remaining");
    }
    assert_eq!(meter.stats().waited, Duration::ZERO, "only a hold is a wait");
}

/// One response may admit many waiting requests.
#[tokio::test(start_paused = true)]
async fn all_waiting_requests_use_a_new_quota() {
    let (gate, meter) = (RateLimitGate::new(256, 1.0), CallMeter::default());
    let quota = |remaining| headers("ratelimit", &format!(r#""resolvers";r={remaining};t=100"#));
    send(&gate, file(), 200, &quota(1)).await;
    let first = gate.acquire(file(), &meter, LONG).await.unwrap();
    let waiting = async {
        let passes = join_all((0..10).map(|_| gate.acquire(file(), &meter, LONG))).await;
        assert!(passes.iter().all(Result::is_ok));
    };
    let answer = async {
        sleep(INSTANT).await;
        first.record(200, &quota(400));
    };
    let all = timeout(LONG, futures::future::join(waiting, answer)).await;
    assert!(all.is_ok(), "without another response");
}

/// A request without a response must not keep the others out of the next window.
#[tokio::test(start_paused = true)]
async fn a_quota_ends_although_a_request_hangs() {
    let (gate, meter) = (RateLimitGate::new(256, 1.0), CallMeter::default());
    send(&gate, file(), 200, &headers("ratelimit", r#""resolvers";r=1;t=100"#)).await;
    let _hanging = gate.acquire(file(), &meter, LONG).await.unwrap();
    let started = Instant::now();
    let second = timeout(LONG, gate.acquire(file(), &meter, LONG)).await;
    assert!(matches!(second, Ok(Ok(_))), "without a response");
    assert!(started.elapsed() < Duration::from_secs(110), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_response_without_a_quota_does_not_open_the_gate() {
    let (gate, meter) = (RateLimitGate::new(256, 1.0), CallMeter::default());
    send(&gate, file(), 200, &headers("ratelimit", r#""resolvers";r=8;t=100"#)).await;
    send(&gate, file(), 502, &HeaderMap::new()).await;
    let mut passes = Vec::new();
    while let Ok(pass) = timeout(INSTANT, gate.acquire(file(), &meter, LONG)).await {
        passes.push(pass.unwrap());
    }
    assert_eq!(passes.len(), 2);
}

/// Requests sent before the first response count towards the share.
#[tokio::test(start_paused = true)]
async fn a_share_counts_the_requests_before_the_first_response() {
    let (gate, meter) = (RateLimitGate::new(256, 0.1), CallMeter::default());
    let quota = headers("ratelimit", r#""resolvers";r=499;t=100"#);
    let mut passes = Vec::new();
    while let Ok(pass) = timeout(INSTANT, gate.acquire(file(), &meter, LONG)).await {
        passes.push(pass.unwrap());
    }
    let mut sent = passes.len();
    assert!((1..=26).contains(&sent), "{sent}");
    passes.pop().unwrap().record(200, &quota);
    drop(passes);
    while let Ok(pass) = timeout(INSTANT, gate.acquire(file(), &meter, LONG)).await {
        drop(pass.unwrap());
        sent += 1;
    }
    assert!(sent <= 50, "{sent}");
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_is_capped() {
    let (gate, unavailable) = (RateLimitGate::new(256, 1.0), headers("retry-after", "3600"));
    let started = Instant::now();
    send(&gate, file(), 503, &unavailable).await;
    assert!(!is_open(&gate, file()).await);
    send(&gate, file(), 503, &unavailable).await;
    let waited = started.elapsed();
    assert!((MAX_HOLD..=MAX_HOLD + MAX_JITTER).contains(&waited), "{waited:?}");
    assert!(!is_open(&gate, file()).await);

    gate.hold(&file(), LONG);
    let held = gate.with_state(&file(), |state| state.hold.unwrap().until - Instant::now());
    assert_eq!(held, MAX_HOLD);
}

#[tokio::test(start_paused = true)]
async fn a_wait_above_the_maximum_fails_immediately() {
    let (gate, meter) = (RateLimitGate::new(256, 1.0), CallMeter::default());
    gate.hold(&file(), Duration::from_secs(20));
    let started = Instant::now();
    for limit in [0, 19] {
        let wait = gate.acquire(file(), &meter, Duration::from_secs(limit)).await.unwrap_err();
        assert_eq!(wait, Duration::from_secs(20));
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
    let limit = Duration::from_secs(20);
    assert!(gate.acquire(file(), &meter, limit).await.is_ok());
    gate.hold(&file(), Duration::from_secs(20));
    assert!(
        gate.acquire(file(), &meter, limit).await.is_err(),
        "all waits of a call count together"
    );
}

#[tokio::test(start_paused = true)]
async fn idle_states_are_dropped() {
    let gate = RateLimitGate::new(256, 1.0);
    let limited = headers("ratelimit", r#""api";r=0;t=9"#);
    // Two states per server.
    for server in 0..MAX_STATES / 2 {
        send(&gate, key(&format!("https://{server}.example/x")), 200, &limited).await;
    }
    let states = || gate.states.lock().unwrap().len();
    assert_eq!(states(), MAX_STATES);
    send(&gate, key("https://more.example/x"), 200, &limited).await;
    assert_eq!(states(), MAX_STATES / 2 + 2, "those with limits are left");
    sleep(Duration::from_secs(20)).await;
    for server in MAX_STATES / 2..MAX_STATES {
        send(&gate, key(&format!("https://{server}.example/x")), 200, &limited).await;
        assert!(states() <= MAX_STATES);
    }
    assert!(states() < MAX_STATES, "expired limits are not");
}

/// Anyone can send invalid tokens to a service that passes them on.
#[tokio::test(start_paused = true)]
async fn the_number_of_states_is_limited() {
    let gate = RateLimitGate::new(256, 1.0);
    let limited = headers("ratelimit", r#""resolvers";r=9;t=290"#);
    send(&gate, file(), 200, &limited).await;
    let waiting = gate.for_token(Some(HeaderValue::from_static("Bearer waiting")));
    let permit = waiting.acquire(file(), &CallMeter::default(), LONG).await.unwrap();
    for token in 0..MAX_STATES + 1_000 {
        let gate = gate.for_token(HeaderValue::from_str(&format!("Bearer {token}")).ok());
        gate.hold(&file(), Duration::from_secs(100));
    }
    assert!(gate.states.lock().unwrap().len() <= MAX_STATES);
    waiting.with_state(&file(), |state| assert_eq!(state.in_flight, 1, "it is in use"));
    drop(permit);
}

/// A call that cannot wait until its deadline learns the wait at once.
#[tokio::test(start_paused = true)]
async fn a_wait_beyond_the_deadline_fails_immediately() {
    let gate = RateLimitGate::new(256, 1.0);
    gate.hold(&file(), Duration::from_secs(20));
    let limits = |deadline| {
        CallMeter::default().with_deadline(Some(Instant::now() + Duration::from_secs(deadline)))
    };
    let started = Instant::now();
    let wait = gate.acquire(file(), &limits(19), LONG).await.unwrap_err();
    assert_eq!(wait, Duration::from_secs(20));
    let max_wait = Duration::from_secs(19);
    assert!(gate.acquire(file(), &limits(60), max_wait).await.is_err());
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert!(gate.acquire(file(), &limits(20), Duration::from_secs(20)).await.is_ok());
}

/// A server that accepts 500 requests per window of 3 s and rejects the rest.
#[derive(Default)]
struct LimitedServer(Mutex<(u64, u64)>);

impl LimitedServer {
    const QUOTA: u64 = 500;
    const WINDOW_MS: u64 = 3_000;

    /// Returns the status and the `RateLimit` header of the next response.
    fn respond(&self, now: Duration) -> (u16, HeaderMap) {
        let now = u64::try_from(now.as_millis()).unwrap();
        let mut state = self.0.lock().unwrap();
        let (window, used) = &mut *state;
        if *window != now / Self::WINDOW_MS {
            (*window, *used) = (now / Self::WINDOW_MS, 0);
        }
        *used += 1;
        let left = Self::WINDOW_MS - now % Self::WINDOW_MS;
        let remaining = Self::QUOTA.saturating_sub(*used);
        let quota = format!(r#""resolvers";r={remaining};t={}"#, left / 1_000);
        (if *used > Self::QUOTA { 429 } else { 200 }, headers("ratelimit", &quota))
    }
}

/// 2,000 calls with two requests each need 8 windows. Their first requests alone would exhaust four quotas at once.
#[tokio::test(start_paused = true)]
async fn many_calls_stay_within_a_small_quota() {
    for concurrent in [256, 2_000] {
        let (gate, server) = (RateLimitGate::new(concurrent, 1.0), LimitedServer::default());
        let (in_flight, refused) = (Arc::new(Semaphore::new(concurrent)), AtomicUsize::new(0));
        let started = Instant::now();
        let call = async || {
            let meter = CallMeter::default();
            let mut left = 2;
            while left > 0 {
                let pass = gate.acquire(file(), &meter, Duration::from_secs(320)).await.unwrap();
                let permit = in_flight.acquire().await;
                sleep(Duration::from_millis(20)).await;
                let (status, headers) = server.respond(started.elapsed());
                sleep(Duration::from_millis(20)).await;
                pass.record(status, &headers);
                drop(permit);
                left -= usize::from(status == 200);
                refused.fetch_add(usize::from(status == 429), Ordering::Relaxed);
            }
        };
        join_all((0..2_000).map(|_| call())).await;
        let (elapsed, refused) = (started.elapsed(), refused.into_inner());
        assert!(elapsed < Duration::from_secs(60), "{concurrent}: {elapsed:?}");
        assert!(refused <= 2_000 * 2 / 100, "{concurrent}: {refused} refused");
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_share_of_each_window_is_used() {
    let (gate, meter) = (RateLimitGate::new(256, 0.5), CallMeter::default());
    let (mut remaining, mut pauses) = (100, Vec::new());
    for request in 0..150 {
        let started = Instant::now();
        let pass = gate.acquire(file(), &meter, LONG).await.unwrap();
        if started.elapsed() > INSTANT {
            pauses.push(request);
            remaining = 100;
        }
        remaining -= 1;
        let quota = format!(r#""resolvers";r={remaining};t=99"#);
        pass.record(200, &headers("ratelimit", &quota));
    }
    // The first response leaves 99 requests of each window, of which 49 are sent.
    assert_eq!(pauses, [50, 100]);
}
