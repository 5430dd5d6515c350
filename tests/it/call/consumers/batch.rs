//! A batch job: the counts of many repositories as lines of JSON. A second run continues after the first.

use std::collections::HashSet;
use std::io::{self, Write};
use std::pin::pin;

use futures::stream::{self, StreamExt};
use hf_meta::{Client, RepoId};
use serde_json::json;

/// Returns the repositories of an earlier run that need not be read again.
pub(crate) fn finished(lines: &str) -> HashSet<RepoId> {
    let rows =
        lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let done = rows.filter(|row| row["isTransient"] != true);
    done.filter_map(|row| row["repo"].as_str()?.parse().ok()).collect()
}

/// Writes one line per repository, as soon as it was read.
pub(crate) async fn run(
    client: &Client,
    repos: impl IntoIterator<Item = RepoId>,
    done: &HashSet<RepoId>,
    out: &mut impl Write,
) -> io::Result<()> {
    let counts = repos.into_iter().filter(|repo| !done.contains(repo)).map(async |repo| {
        let counted = client.model(&repo).plan(hf_meta::Plan::Prefetch).count().await;
        (repo, counted)
    });
    let mut results = pin!(stream::iter(counts).buffer_unordered(32));
    while let Some((repo, result)) = results.next().await {
        let row = match result {
            Ok(report) => json!({ "repo": repo, "parameters": report.parameter_count.total() }),
            Err(error) => {
                json!({ "repo": repo, "error": error.code(), "isTransient": error.is_transient() })
            }
        };
        writeln!(out, "{row}")?;
    }
    Ok(())
}
