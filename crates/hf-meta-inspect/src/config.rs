//! Reads `config.json`, which may change the count.

use std::collections::BTreeMap;
use std::mem::take;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{Either, FutureExt, MaybeDone, Shared, maybe_done, select};
use hf_meta_count::steps::ConfigFile;
use hf_meta_format::formats::RepoPath;

use super::error::{Error, HubCacheMiss};
use super::pinned::Pinned;
use super::send::BoxFuture;
use super::set::SetReader;

/// The name of the configuration file, which is next to the weights or at the root of the repository.
pub(crate) const CONFIG: &str = "config.json";

impl SetReader {
    /// Returns the path of a file in the folder of the weights.
    pub(crate) fn next_to_weights(&self, name: &str) -> RepoPath {
        RepoPath::join(self.path.folder().as_ref(), name)
    }

    /// Reads the configuration of the weights.
    ///
    /// A missing configuration is fine, and an unusable one must not hide the counts of the headers. A network error
    /// is an error, because the configuration could change the count.
    pub(crate) async fn read_config(&self) -> Result<ConfigFile, Error> {
        let (path, root) = (self.next_to_weights(CONFIG), RepoPath::new_unchecked(CONFIG));
        match self.read_config_at(&path).await? {
            None if path != root => {
                let found = self.read_config_at(&root).await?.unwrap_or_default();
                Ok(ConfigFile { is_of_root: true, ..found })
            }
            found => Ok(found.unwrap_or_default()),
        }
    }

    /// Reads a configuration, unless another set of the call has read it; `None` if it does not exist.
    async fn read_config_at(&self, path: &RepoPath) -> Result<Option<ConfigFile>, Error> {
        let (files, limit) = (&self.files, self.call.settings.limits.config);
        let failed = match self.configs.read(files, path, limit).await {
            Ok(found) => return Ok(found),
            Err(error) => take(&mut *error.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        match failed {
            Some(error) => Err(error),
            // Another set reports the error, which cannot be copied.
            None => read(files.clone(), path.clone(), limit).await,
        }
    }

    /// Reads the other file that may describe the quantization, the experts or the adapter.
    pub(crate) async fn read_other_config(
        &self,
        name: &'static str,
        config: &mut ConfigFile,
    ) -> Result<(), Error> {
        let path = self.next_to_weights(name);
        let json = match self.files.load(&path, self.call.settings.limits.config).await {
            Ok(file) => file.bytes,
            Err(error) if error.is_not_found() || error.is_denied() => {
                // The file may exist in the repository without being in the cache.
                let is_certain = matches!(&error, Error::FileNotFound { source, .. } if !source.is::<HubCacheMiss>());
                config.missing = is_certain.then_some(name);
                return Ok(());
            }
            Err(Error::TooLarge { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let (length, mut extended) = (json.len(), take(config));
        let add = move || {
            extended.add_file(name, &json);
            extended
        };
        *config = self.files.files.run(length, add).await;
        Ok(())
    }
}

/// The configurations of the sets of one call by their paths. Two sets in one folder have one, and so have all sets in
/// folders without any.
#[derive(Default)]
pub(crate) struct SharedConfigs {
    reads: Mutex<BTreeMap<RepoPath, Shared<BoxFuture<'static, SharedConfig>>>>,
}

/// A configuration, or the error of its read until a set has taken it.
type SharedConfig = Result<Option<ConfigFile>, Arc<Mutex<Option<Error>>>>;

impl SharedConfigs {
    async fn read(&self, files: &Pinned, path: &RepoPath, limit: u64) -> SharedConfig {
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
async fn read(files: Pinned, path: RepoPath, limit: u64) -> Result<Option<ConfigFile>, Error> {
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

/// The read of a configuration, which starts once a header needs it, and goes on while other headers arrive.
pub(crate) struct ConfigRead<'a> {
    set: &'a SetReader,
    /// `None` until it starts.
    read: Option<MaybeDone<BoxFuture<'a, Result<ConfigFile, Error>>>>,
}

impl<'a> ConfigRead<'a> {
    pub(crate) fn new(set: &'a SetReader) -> Self {
        Self { set, read: None }
    }

    /// Starts the read, unless it has started.
    pub(crate) fn start(&mut self) {
        if self.read.is_none() {
            self.read = Some(maybe_done(Box::pin(self.set.read_config())));
        }
    }

    /// Drives another future together with the read.
    pub(crate) async fn beside<T>(&mut self, other: impl Future<Output = T>) -> T {
        let Some(read) = &mut self.read else { return other.await };
        match select(pin!(other), read).await {
            Either::Left((value, _)) => value,
            Either::Right(((), other)) => other.await,
        }
    }

    /// Waits for the end of the read. Returns `None` if it has not started.
    pub(crate) async fn finish(self) -> Option<Result<ConfigFile, Error>> {
        let mut read = self.read?;
        (&mut read).await;
        Pin::new(&mut read).take_output()
    }
}
