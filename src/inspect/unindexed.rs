//! Shards that lie beside those of an index, and that it does not name.

use super::Reader;
use crate::error::Error;
use crate::formats::weight_sets::{Layout, names_shard};
use crate::formats::{RepoPath, chain, clip};
use crate::report::{Finding, bounded};

impl Reader {
    /// Adds what is left of another split of the same model. One listing tells, which only a repository
    /// is asked for: a local folder may have the whole disk below it.
    pub(super) async fn find_left_over(
        &self,
        index: &RepoPath,
        named: &[RepoPath],
        findings: &mut Vec<Finding>,
    ) {
        if !self.backend.has_commits() || !named.iter().any(names_shard) {
            return;
        }
        match self.left_over(index, named).await {
            Ok(shards) => findings.extend(bounded(
                shards
                    .into_iter()
                    .map(|shard| Finding::UnindexedShard { shard: clip(shard.as_str()) }),
            )),
            Err(error) => {
                let file = clip(&self.source);
                findings.insert(0, Finding::Unreadable { file, reason: chain(&error) });
            }
        }
    }

    async fn left_over(
        &self,
        index: &RepoPath,
        named: &[RepoPath],
    ) -> Result<Vec<RepoPath>, Error> {
        let folder = index.folder();
        let listed = self.backend.list(folder.as_ref(), &self.meter).await?;
        let files = listed.map_or_else(Vec::new, |listing| listing.files);
        Ok(Layout::of(folder.as_ref(), &files).left_over(named))
    }
}
