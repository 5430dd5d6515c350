//! Random faults in 30 % of all responses.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::many_retries;
use crate::hub::{Fault, Host, LocalHub, LoggedRequest};
use crate::support;

const BLOOM: &str = "bigscience/bloom";

/// The number of calls, normally and with `HF_META_SOAK=1`.
const CALLS: usize = 10;
const SOAK_CALLS: usize = 500;

/// The pseudo-random number generator `SplitMix64`.
struct Random(AtomicU64);

impl Random {
    fn next(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.0.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a fault for three out of ten responses.
    fn fault(&self) -> Option<Fault> {
        (self.next() % 10 < 3).then(|| match self.next() % 6 {
            0 => Fault::Status(500, vec![]),
            1 => Fault::Status(502, vec![]),
            2 => Fault::Status(503, vec![]),
            3 => Fault::ConnectionReset,
            4 => Fault::ResetInBody { after: 3 },
            _ => Fault::Status(
                429,
                vec![
                    ("retry-after", "0".to_owned()),
                    ("ratelimit", r#""resolvers";r=7;t=200"#.to_owned()),
                ],
            ),
        })
    }
}

fn hub_with_random_faults(seed: u64) -> LocalHub {
    let hub = support::fixtures_hub();
    let random = Random(AtomicU64::new(seed));
    hub.inject(move |_, _| random.fault());
    hub
}

#[tokio::test]
async fn every_call_ends_with_the_correct_count() {
    let calls = if std::env::var_os("HF_META_SOAK").is_some() { SOAK_CALLS } else { CALLS };
    let hub = hub_with_random_faults(1);
    let client = many_retries(&hub).build().unwrap();
    for call in 0..calls {
        let parsed = client.model(BLOOM).parse_safetensors_metadata().await;
        let parsed =
            parsed.unwrap_or_else(|error| panic!("{call}: {}", support::error_chain(&error)));
        let count = parsed.parameter_count();
        let counts: Vec<_> = count.iter().map(|(dtype, n)| (dtype.as_str(), n)).collect();
        assert_eq!(counts, [("BF16", 176_247_271_424)]);
        assert_eq!((count.totals().tensors, parsed.files().count()), (845, 72));
        let sent = hub.log().len() as u64;
        assert_eq!(parsed.report().fetch.requests, sent);
        assert!(sent > 3 + 72 * 4, "nothing was requested twice");
        hub.clear_log();
    }
}

/// Returns the length of a range in bytes.
fn length(range: &str) -> u64 {
    let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    last.parse::<u64>().unwrap() - first.parse::<u64>().unwrap() + 1
}

/// Returns true if all requested bytes were sent.
fn is_complete(entry: &LoggedRequest) -> bool {
    let range = entry.range.as_deref();
    entry.status == 206 && range.is_some_and(|range| entry.sent.bytes() == length(range))
}

#[tokio::test]
async fn completed_ranges_are_not_read_again() {
    let hub = hub_with_random_faults(2);
    let client = many_retries(&hub).build().unwrap();
    let parsed = client.model(BLOOM).parse_safetensors_metadata().await.unwrap();
    let (mut complete, mut requests) = (BTreeMap::new(), 0);
    for entry in hub.log().into_iter().filter(|entry| entry.host == Host::Cdn) {
        requests += 1;
        if is_complete(&entry) {
            *complete.entry((entry.path, entry.range)).or_insert(0) += 1;
        }
    }
    assert_eq!(complete.len(), 2 * parsed.files().count());
    assert!(complete.values().all(|times| *times == 1), "{complete:#?}");
    assert!(requests > complete.len(), "no response failed");
}
