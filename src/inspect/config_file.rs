//! Reading `config.json`, which may change the count.

use super::reader::Reader;
use crate::SnapshotError;
use crate::count::Configs;
use crate::error::Error;
use crate::formats::RepoPath;
use crate::report::Finding;

/// The name of the configuration. huggingface.js, whose rules we count by, reads the one at the root of the
/// repository wherever the weights are.
const CONFIG: &str = "config.json";

/// The configuration of a model, as far as it can be used.
#[derive(Debug, Default)]
pub(super) struct ConfigFile {
    /// The bytes of the file; `None` if there is none that can be read.
    pub(super) json: Option<Vec<u8>>,
    pub(super) configs: Configs,
    /// The reason why the file is ignored, if it is.
    pub(super) finding: Option<Finding>,
}

impl ConfigFile {
    /// Returns the path of the configuration.
    pub(super) fn path() -> RepoPath {
        RepoPath::new_unchecked(CONFIG)
    }

    fn from_json(json: Vec<u8>) -> Self {
        let (configs, finding) = match Configs::from_config_json(&json) {
            Ok(configs) => (configs, None),
            Err(error) => (Configs::default(), Some(unusable(error.to_string()))),
        };
        Self { json: Some(json), configs, finding }
    }

    fn ignored(reason: String) -> Self {
        Self { finding: Some(unusable(reason)), ..Self::default() }
    }
}

fn unusable(reason: String) -> Finding {
    Finding::UnusableConfig { file: CONFIG.to_owned(), reason }
}

impl Reader {
    /// Reads the configuration of the commit, once per call.
    ///
    /// A missing configuration is no fault, and an unusable one is no reason to withhold the figures of the
    /// headers. A network error is an error, because the configuration could change the count.
    pub(super) async fn config(&self) -> &Result<ConfigFile, Error> {
        self.config.get_or_init(|| Box::pin(self.read_config())).await
    }

    async fn read_config(&self) -> Result<ConfigFile, Error> {
        let path = ConfigFile::path();
        match self.backend.read_whole(&path, self.limits.config).await {
            Ok(json) => {
                let json = self.check_commit(&path, json)?;
                Ok(ConfigFile::from_json(json))
            }
            // A cache without the file does not show that the repository has none.
            Err(Error::FileNotFound { source, .. }) if source.is::<SnapshotError>() => {
                Ok(ConfigFile::ignored("it was not downloaded".to_owned()))
            }
            Err(error) if error.is_not_found() => Ok(ConfigFile::default()),
            Err(Error::TooLarge { limit, .. }) => {
                Ok(ConfigFile::ignored(format!("it has more than {limit} bytes")))
            }
            Err(error) if error.is_denied() => {
                Ok(ConfigFile::ignored("access to it is denied".to_owned()))
            }
            Err(error) => Err(error),
        }
    }
}
