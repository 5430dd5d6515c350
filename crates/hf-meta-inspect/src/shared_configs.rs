//! The configurations that the sets of a call share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{FutureExt, Shared};
use hf_meta_count::steps::ConfigFile;
use hf_meta_format::formats::RepoPath;

use super::error::{Error, HubCacheMiss};
use super::pinned::Pinned;
use super::send::BoxFuture;

/// The configurations of the sets of one call by their paths. Two sets in one folder have one, and so have all sets in
/// folders without any.
#[derive(Default)]
pub(crate) struct SharedConfigs {
    reads: Mutex<BTreeMap<RepoPath, Shared<BoxFuture<'static, SharedConfig>>>>,
}

/// A configuration, or the error of its read until a set has taken it.
pub(crate) type SharedConfig = Result<Option<ConfigFile>, Arc<Mutex<Option<Error>>>>;

impl SharedConfigs {
    pub(crate) async fn read(&self, files: &Pinned, path: &RepoPath, limit: u64) -> SharedConfig {
        let shared = {
            let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
            let start = || {
                let read = read(files.clone(), path.clone(), limit);
                let read: BoxFuture<'static, SharedConfig> = Box::pin(
                    read.map(|result| result.map_err(|error| Arc::new(Mutex::new(Some(error))))),
                );
                read.shared()
            };
            reads.entry(path.clone()).or_insert_with(start).clone()
        };
        shared.await
    }
}

/// Reads a configuration; `None` if it does not exist.
pub(crate) async fn read(
    files: Pinned,
    path: RepoPath,
    limit: u64,
) -> Result<Option<ConfigFile>, Error> {
    match files.load(&path, limit).await {
        Ok(file) => {
            let json = Arc::unwrap_or_clone(file.bytes);
            let parse = files.files.run(json.len(), move || ConfigFile::from_json(json));
            Ok(Some(parse.await))
        }
        // The file may exist in the repository without being in the cache.
        Err(Error::FileNotFound { source, .. })
            if source.is::<HubCacheMiss>() && path.segments().count() == 1 =>
        {
            Ok(Some(ConfigFile::ignored("the file was not downloaded")))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(Error::TooLarge { limit, .. }) => {
            let reason = format!("the file exceeds the limit of {limit} bytes");
            Ok(Some(ConfigFile::ignored(reason)))
        }
        Err(error) if error.is_denied() => Ok(Some(ConfigFile::ignored("access denied"))),
        Err(error) => Err(error),
    }
}
