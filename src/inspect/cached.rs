//! Calls that may be answered from the header cache.

use futures::future::FutureExt;

use super::locate::SINGLE;
use super::{Load, Target};
use crate::backends::{CacheTarget, HeaderCache};
use crate::error::Error;
use crate::formats::RepoPath;
use crate::report::SafetensorsParseFromRepo;

impl Load {
    /// Reads all headers, from the cache if it has them, and ends at the first error.
    pub(crate) async fn run(
        self,
        cache: Option<&HeaderCache>,
    ) -> Result<SafetensorsParseFromRepo, Error> {
        // Boxed, so that the ways to read do not add up in the size of this future.
        let Some(cache) = cache else { return Box::pin(self.read()).await };
        let call = |backend| Self { backend, ..self.clone() }.read().boxed();
        cache.run(self.backend.clone(), self.cache_target(), &self.meter, call).await
    }

    fn cache_target(&self) -> CacheTarget {
        let (path, probe) = match &self.target {
            Target::File(path) | Target::Index(path) => (Some(path), path.clone()),
            Target::Shards(path) => (Some(path), RepoPath::within(path.folder().as_ref(), SINGLE)),
            Target::Folder(path) => (path.as_ref(), RepoPath::within(path.as_ref(), SINGLE)),
        };
        let path = path.map_or("", RepoPath::as_str);
        // No path holds a line break.
        let suffix = if self.lists_sets { "\nand all sets" } else { "" };
        CacheTarget { name: format!("{path}{suffix}"), probe }
    }
}
