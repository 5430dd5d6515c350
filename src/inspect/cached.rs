//! Serves calls from the header cache.

use futures::future::FutureExt;

use super::{Inspected, Inspection, Target};
use crate::backends::{CacheTarget, HeaderCache};
use crate::error::Error;
use crate::formats::RepoPath;
use crate::formats::safetensors::WEIGHTS_NAME;

impl Inspection {
    /// Reads all headers, from the cache on a hit. Stops at the first error.
    pub(super) async fn inspect(
        self,
        cache: Option<&HeaderCache>,
        keeps_headers: bool,
    ) -> Result<Inspected, Error> {
        // Boxed, so that this future does not contain the state of every way to read.
        let Some(cache) = cache else { return Box::pin(self.read(keeps_headers)).await };
        let call = |backend| Self { backend, ..self.clone() }.read(keeps_headers).boxed();
        cache.run(self.backend.clone(), self.cache_target(), call).await
    }

    fn cache_target(&self) -> CacheTarget {
        let (path, probe) = match &self.target {
            Target::File(path) | Target::Index(path) => (Some(path), path.clone()),
            Target::Shards(path) => {
                (Some(path), RepoPath::join(path.folder().as_ref(), WEIGHTS_NAME))
            }
            Target::Folder(path) => (path.as_ref(), RepoPath::join(path.as_ref(), WEIGHTS_NAME)),
            Target::Quantization(name) => (Some(name), RepoPath::new_unchecked(WEIGHTS_NAME)),
        };
        let path = path.map_or("", RepoPath::as_str);
        // Paths contain no line breaks, so names stay unique.
        let suffix = if self.lists_sets { "\nand all sets" } else { "" };
        let other_format =
            if self.formats.safetensors().is_none() { "\nnot safetensors" } else { "" };
        let name = format!("{path}{suffix}{other_format}");
        CacheTarget { name, probe, gate: self.gate.clone(), meter: self.meter.clone() }
    }
}
