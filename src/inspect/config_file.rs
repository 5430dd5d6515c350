//! Reads `config.json`, which may change the count.

use std::mem::take;

use super::call::Call;
use crate::error::{Error, HubCacheMiss};
use crate::formats::RepoPath;
use crate::steps::ConfigFile;

/// The name of the configuration file, which is next to the weights or at the root of the repository.
pub(super) const CONFIG: &str = "config.json";

impl Call {
    /// Reads the configuration of the commit, once per call.
    ///
    /// A missing configuration is fine, and an unusable one must not hide the counts of the headers. A network error
    /// is an error, because the configuration could change the count.
    pub(super) async fn config(&self) -> &Result<ConfigFile, Error> {
        self.state.config.get_or_init(|| Box::pin(self.read_config())).await
    }

    /// Returns the path of a file in the folder of the weights.
    pub(super) fn next_to_weights(&self, name: &str) -> RepoPath {
        let folder = self.state.weights.as_ref().and_then(RepoPath::folder);
        RepoPath::join(folder.as_ref(), name)
    }

    async fn read_config(&self) -> Result<ConfigFile, Error> {
        let (path, root) = (self.next_to_weights(CONFIG), RepoPath::new_unchecked(CONFIG));
        match self.read_config_at(&path).await? {
            None if path != root => {
                let found = self.read_config_at(&root).await?.unwrap_or_default();
                Ok(ConfigFile { is_of_root: true, ..found })
            }
            found => Ok(found.unwrap_or_default()),
        }
    }

    /// Reads a configuration; `None` if it does not exist.
    async fn read_config_at(&self, path: &RepoPath) -> Result<Option<ConfigFile>, Error> {
        match self.files.read_whole(path, self.context.limits.config).await {
            Ok(json) => {
                let json = self.check_commit(path, json)?;
                let parse = self.state.work.run(json.len(), move || ConfigFile::from_json(json));
                Ok(Some(parse.await))
            }
            // The file may exist in the repository without being in the cache.
            Err(Error::FileNotFound { source, .. })
                if source.is::<HubCacheMiss>() && path.segments().count() == 1 =>
            {
                Ok(Some(ConfigFile::ignored("the file was not downloaded")))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(Error::TooLarge { limit, .. }) => Ok(Some(ConfigFile::ignored(format!(
                "the file exceeds the limit of {limit} bytes"
            )))),
            Err(error) if error.is_denied() => Ok(Some(ConfigFile::ignored("access denied"))),
            Err(error) => Err(error),
        }
    }

    /// Reads the other file that may describe the quantization, the experts or the adapter.
    pub(super) async fn read_other_config(
        &self,
        name: &'static str,
        config: &mut ConfigFile,
    ) -> Result<(), Error> {
        let path = self.next_to_weights(name);
        let json = match self.files.read_whole(&path, self.context.limits.config).await {
            Ok(json) => self.check_commit(&path, json)?,
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
        *config = self.state.work.run(length, add).await;
        Ok(())
    }
}
