//! The configuration of a model, from the files that a call reads.

use crate::count::Configs;
use crate::count::config::ADAPTER_CONFIG;
use crate::results::Finding;

/// The name of the configuration file.
const CONFIG: &str = "config.json";

/// The usable part of a model's configuration: its `config.json`, and what other files add to it.
#[derive(Clone, Debug, Default)]
pub struct ConfigFile {
    /// The bytes of `config.json`; `None` if it is missing or unreadable.
    pub json: Option<Vec<u8>>,
    /// The parsed files.
    pub configs: Configs,
    /// `true` if the file is at the root of the repository, and the weights are in a folder: it may describe others.
    pub is_of_root: bool,
    /// The reason a file is ignored; `None` if none is ignored.
    pub finding: Option<Finding>,
    /// The other file, if the repository certainly does not have it.
    pub missing: Option<&'static str>,
}

impl ConfigFile {
    /// Parses the bytes of `config.json`.
    pub fn from_json(json: Vec<u8>) -> Self {
        let parsed = Configs::from_config_json(&json);
        let finding = parsed.as_ref().err().map(|error| {
            let (file, reason) = (CONFIG.to_owned(), error.to_string());
            Finding::InvalidConfig { file, reason }
        });
        let configs = parsed.unwrap_or_default();
        Self { json: Some(json), configs, finding, ..Self::default() }
    }

    /// Creates a configuration that is ignored for a reason.
    pub fn ignored(reason: impl Into<String>) -> Self {
        let (file, reason) = (CONFIG.to_owned(), reason.into());
        let finding = Finding::UnusableConfig { file, reason };
        Self { finding: Some(finding), ..Self::default() }
    }

    /// Adds the other file that may describe the quantization, the experts or the adapter. An unusable one is a finding.
    pub fn add_file(&mut self, name: &str, json: &[u8]) {
        if let Err(error) = self.configs.add_file(name, json) {
            let (file, reason) = (name.to_owned(), error.to_string());
            // PEFT reads the configuration of an adapter first.
            self.finding.get_or_insert(if name == ADAPTER_CONFIG {
                Finding::InvalidConfig { file, reason }
            } else {
                Finding::UnusableConfig { file, reason }
            });
        }
    }
}
