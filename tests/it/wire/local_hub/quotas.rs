//! Quotas that the local Hub enforces, and the client within them.

use std::time::Duration;

use futures::stream::{self, StreamExt as _};

use super::{CONFIG, get_from, model};
use crate::generated::GeneratedModels;
use crate::hub::LocalHub;
use crate::support;

#[tokio::test]
async fn each_caller_and_each_kind_of_request_has_a_quota() {
    let hour = Duration::from_secs(3600);
    let hub = LocalHub::builder().repo(model()).token("member").quota(2, hour).start().unwrap();
    let remaining = async |path: &str, headers: &[(&str, &str)]| {
        let response = get_from(&hub, path, headers).await;
        let policy = response.header("ratelimit-policy").unwrap();
        assert!(policy.ends_with(";q=2;w=3600"), "{policy}");
        let state = response.header("ratelimit").unwrap().rsplit_once(";t=").unwrap().0.to_owned();
        (response.status, response.header("retry-after").is_some(), state)
    };
    let expected = |status, is_refused, state: &str| (status, is_refused, state.to_owned());
    let info = "/api/models/org/model";
    assert_eq!(remaining(CONFIG, &[]).await, expected(307, false, "\"resolvers\";r=1"));
    assert_eq!(remaining(CONFIG, &[]).await, expected(307, false, "\"resolvers\";r=0"));
    assert_eq!(remaining(CONFIG, &[]).await, expected(429, true, "\"resolvers\";r=0"));
    assert_eq!(remaining(info, &[]).await, expected(200, false, "\"api\";r=1"));
    let member = [("authorization", "Bearer member")];
    assert_eq!(remaining(CONFIG, &member).await, expected(307, false, "\"resolvers\";r=1"));
    let counts = hub.counts();
    assert_eq!((counts.resolvers, counts.api, counts.refused, counts.total()), (4, 1, 1, 5));
    let sent: u64 = hub.log().iter().map(|request| request.sent.bytes()).sum();
    assert_eq!(counts.bytes, sent);
}

/// Makes concurrent calls against windows of 500 requests. All must succeed, with few refused requests.
async fn check_calls(calls: u64, window: Duration) {
    let models = GeneratedModels::new(10_000, 3);
    let hub = LocalHub::builder().lazy_repos(models.clone()).without_log().quota(500, window);
    let hub = hub.start().unwrap();
    let truths = (0..calls).map(|index| models.truth(index));
    let jobs = usize::try_from(calls).unwrap();
    let client = support::client(&hub);
    let counts = truths.map(async |truth| {
        let result = client.model(&truth.repo).count().await;
        (truth, result)
    });
    let results: Vec<_> = stream::iter(counts).buffer_unordered(jobs).collect().await;
    for (truth, result) in results {
        let counted = match &result {
            Ok(report) => Ok(report.parameter_count.total()),
            Err(error) => Err(error.code()),
        };
        assert_eq!(counted, truth.parameters, "{truth:?} {result:?}");
    }
    let counts = hub.counts();
    assert!(counts.resolvers > 2 * calls, "{counts:?}");
    assert!(counts.refused * 20 <= counts.resolvers + counts.api, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_share_a_quota() {
    check_calls(256, Duration::from_secs(1)).await;
}

/// Takes minutes, so it needs `HF_META_SOAK=1`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_calls_share_a_quota() {
    if std::env::var_os("HF_META_SOAK").is_some() {
        check_calls(256, Duration::from_secs(3)).await;
        check_calls(2000, Duration::from_secs(2)).await;
    }
}
