//! The generated models have the parameters that follow from their architecture.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt as _};

use crate::generated::{GeneratedModels, ModelKind};
use crate::hub::LocalHub;
use crate::support;

#[tokio::test]
async fn counts_match_the_architecture() {
    let models = GeneratedModels::new(100_000, 7);
    let hub = LocalHub::builder().lazy_repos(models.clone()).without_log().start().unwrap();
    // Some of every kind, and the first models.
    let mut indices: BTreeSet<u64> = (0..100).collect();
    for (kind, _) in ModelKind::ALL {
        let of_kind = (0..20_000).filter(|index| models.truth(*index).kind == kind);
        indices.extend(of_kind.take(4));
    }
    models.push();
    let truths = indices.iter().map(|index| models.truth(*index));
    let client = support::client(&hub);
    let counts = truths.map(async |truth| {
        let result = client.model(&truth.repo).count().await;
        (truth, result)
    });
    let results: Vec<_> = stream::iter(counts).buffer_unordered(16).collect().await;
    assert!(results.len() > 130, "{}", results.len());
    for (truth, result) in results {
        let counted = match &result {
            Ok(report) => Ok(report.parameter_count.total()),
            Err(error) => Err(error.code()),
        };
        assert_eq!(counted, truth.parameters, "{truth:?} {result:?}");
    }
    assert!(hub.log().is_empty());
    assert!(hub.counts().resolvers > 200, "{:?}", hub.counts());
}
