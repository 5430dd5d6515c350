//! The limit of findings.

use super::Finding;

/// Returns the first 1,000 findings and the number of the others, because a file can cause millions.
pub fn bounded(mut findings: impl Iterator<Item = Finding>) -> Vec<Finding> {
    const MAX_FINDINGS: usize = 1_000;

    let mut listed: Vec<_> = findings.by_ref().take(MAX_FINDINGS).collect();
    let more = findings.count() as u64;
    listed.extend((more > 0).then_some(Finding::MoreFindings { findings: more }));
    listed
}
