//! Reads `config.json`, which may change the count.

use std::mem::take;
use std::pin::{Pin, pin};
use std::sync::PoisonError;

use futures::future::{Either, MaybeDone, maybe_done, select};
use hf_meta_count::steps::ConfigFile;
use hf_meta_format::formats::RepoPath;

use super::error::{Error, HubCacheMiss};
use super::send::BoxFuture;
use super::set::SetReader;
use super::shared_configs::read;

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

/// The read of a configuration, which starts once a header needs it, and goes on while other headers arrive.
pub(crate) struct ConfigRead<'a> {
    set: &'a SetReader,
    /// `None` until it starts.
    read: Option<MaybeDone<BoxFuture<'a, Result<ConfigFile, Error>>>>,
    is_skipped: bool,
}

impl<'a> ConfigRead<'a> {
    pub(crate) fn new(set: &'a SetReader) -> Self {
        Self { set, read: None, is_skipped: false }
    }

    /// Creates a read that never starts.
    pub(crate) fn skipped(set: &'a SetReader) -> Self {
        Self { is_skipped: true, ..Self::new(set) }
    }

    /// Starts the read, unless it has started.
    pub(crate) fn start(&mut self) {
        if self.read.is_none() && !self.is_skipped {
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
