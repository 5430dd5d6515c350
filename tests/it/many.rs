//! Many calls of one client.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use hf_meta::{Client, ResultOrder};
use tokio::time::{sleep, timeout};

use crate::support;

fn client() -> Client {
    Client::new().unwrap()
}

#[tokio::test]
async fn results_arrive_in_the_requested_order() {
    let hub = support::fixtures_hub();
    let names = ["bigscience/bloom", "gpt2", "org/none", "roberta-base"];
    let expected = [Some(176_247_271_424), Some(137_022_720), None, Some(124_697_947)];
    let expected: Vec<_> = names.into_iter().zip(expected).collect();
    for order in [ResultOrder::Input, ResultOrder::Completion] {
        let results = support::client(&hub).run_many(stream::iter(names), 2, order, count);
        let mut results: Vec<_> = results.collect().await;
        if order == ResultOrder::Completion {
            results.sort_unstable_by_key(|(name, _)| *name);
        }
        assert_eq!(results, expected, "{order:?}");
    }
}

async fn count(client: Client, name: &'static str) -> (&'static str, Option<u64>) {
    (name, client.model(name).count().await.ok().map(|report| report.parameter_count.total()))
}

#[tokio::test(start_paused = true)]
async fn any_number_of_jobs_completes_all_calls() {
    for jobs in [0, 1, usize::MAX] {
        for order in [ResultOrder::Input, ResultOrder::Completion] {
            let results =
                client().run_many(stream::iter(0..100), jobs, order, |_, n| async move { n });
            let results = timeout(Duration::from_secs(60), results.collect::<BTreeSet<_>>()).await;
            assert_eq!(results.ok(), Some((0..100).collect()), "{jobs} jobs, {order:?}");
        }
    }
}

/// A call that hangs takes one of the jobs, and no more.
#[tokio::test(start_paused = true)]
async fn a_stalled_call_does_not_delay_others() {
    let read = |_, number: usize| async move {
        if number == 0 {
            pending::<()>().await;
        }
        number
    };
    let numbers = || stream::iter(0..100_usize);
    let results = client().run_many(numbers(), 2, ResultOrder::Completion, read);
    assert_eq!(results.take(99).collect::<BTreeSet<_>>().await, (1..100).collect());
}

#[tokio::test(start_paused = true)]
async fn running_calls_and_buffered_results_are_limited() {
    const JOBS: usize = 3;

    for order in [ResultOrder::Input, ResultOrder::Completion] {
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&taken);
        let numbers = stream::iter(0..50_u64).inspect(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let (now, peak) = (Arc::clone(&running), Arc::clone(&most));
        let read = move |_, number: u64| {
            let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
            async move {
                peak.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                // The first call of each ten takes the longest.
                sleep(Duration::from_secs(10 - number % 10)).await;
                now.fetch_sub(1, Ordering::Relaxed);
                number
            }
        };
        let mut results = client().run_many(numbers, JOBS, order, read);
        let mut found = Vec::new();
        while let Some(number) = results.next().await {
            found.push(number);
            let waiting = taken.load(Ordering::Relaxed) - found.len();
            assert!(waiting < 4 * JOBS, "{waiting} items were taken before their time");
        }
        assert_eq!((most.load(Ordering::Relaxed), found.len()), (JOBS, 50), "{order:?}");
        assert_eq!(found.is_sorted(), order == ResultOrder::Input);
    }
}

/// Calls continue while nobody asks for results.
#[tokio::test]
async fn a_paused_reader_does_not_pause_the_calls() {
    let hub = support::fixtures_hub();
    let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let read = move |client: Client, name: &'static str| {
        let sender = sender.clone();
        async move {
            let counted = client.model(name).count().await;
            sender.send(name).unwrap();
            counted.is_ok()
        }
    };
    let names = stream::iter(["gpt2", "roberta-base"]);
    let mut results = support::client(&hub).run_many(names, 2, ResultOrder::Input, read);
    assert_eq!(results.next().await, Some(true));
    let both = [ended.recv().await.unwrap(), ended.recv().await.unwrap()];
    assert_eq!(BTreeSet::from(both), BTreeSet::from(["gpt2", "roberta-base"]));
    assert_eq!(results.next().await, Some(true));
}

#[tokio::test]
async fn a_dropped_stream_cancels_its_calls() {
    let (sender, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    let sender = Mutex::new(Some(sender));
    let sender = Arc::new(sender);
    let read = move |_, _: u32| {
        let held = sender.lock().unwrap().take();
        async move {
            if held.is_some() {
                pending::<()>().await;
            }
            drop(held);
        }
    };
    let mut results = client().run_many(stream::iter(0..2_u32), 2, ResultOrder::Completion, read);
    assert_eq!(results.next().await, Some(()));
    drop(results);
    // The sender is dropped with its call.
    assert_eq!(ended.recv().await, None);
}

#[tokio::test]
#[should_panic(expected = "the call fails")]
async fn a_panic_of_a_call_reaches_the_reader() {
    let read = |_, _: u32| async { panic!("the call fails") };
    client().run_many(stream::iter([0]), 1, ResultOrder::Input, read).next().await.unwrap_or(());
}
