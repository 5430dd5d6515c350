//! Finds shards next to an index that does not name them.

use super::reader::Reader;
use crate::formats::weight_sets::{Layout, has_shard_number};
use crate::formats::{RepoPath, chain, clip};
use crate::report::{Finding, bounded};

impl Reader {
    /// Finds shards that the index does not name, such as leftovers of an earlier split of the same model.
    ///
    /// This takes one listing. It is done for repositories only, because a local folder may be the root of a whole
    /// disk.
    pub(super) async fn find_unindexed_shards(
        &self,
        index: &RepoPath,
        named: &[RepoPath],
        findings: &mut Vec<Finding>,
    ) {
        if !self.backend.has_commits() || !named.iter().any(has_shard_number) {
            return;
        }
        let folder = index.folder();
        match self.backend.list(folder.as_ref()).await {
            Ok(listed) => {
                let files = listed.map_or_else(Vec::new, |listing| listing.files);
                let layout = Layout::new(&self.formats, folder.as_ref(), &files);
                let shards = layout.unindexed_shards(named).into_iter();
                findings.extend(bounded(
                    shards.map(|shard| Finding::UnindexedShard { shard: clip(shard.as_str()) }),
                ));
            }
            Err(error) => {
                let file = clip(&self.source);
                findings.insert(0, Finding::Unreadable { file, reason: chain(&error) });
            }
        }
    }
}
