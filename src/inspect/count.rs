//! Counting what the headers list, with the configuration where they call for it.

use super::CONFIG;
use super::reader::Reader;
use crate::count::ParameterCount;
use crate::count::{Classifier, Configs, CountBreakdown, MergingCounter, needs_config};
use crate::error::{Error, SnapshotError};
use crate::formats::safetensors::{HeaderError, SafetensorsFileHeader};
use crate::formats::{RepoPath, TensorInfo};
use crate::report::Finding;

/// A file of weights by its path, and its header.
pub(super) type File<'a> = (&'a RepoPath, &'a SafetensorsFileHeader);

impl Reader {
    /// Counts the parameters of all files together.
    pub(super) async fn count(
        &self,
        files: &[File<'_>],
        findings: &mut Vec<Finding>,
    ) -> Result<(ParameterCount, CountBreakdown), Error> {
        let config = if call_for_config(files) { self.config(findings).await? } else { None };
        let config = config.and_then(|json| usable(&json, findings));
        self.tally(files, config.as_ref())
    }

    /// Counts by the configuration that there is.
    pub(super) fn tally(
        &self,
        files: &[File<'_>],
        config: Option<&Configs>,
    ) -> Result<(ParameterCount, CountBreakdown), Error> {
        let rules = Classifier::new(config, tensors(files));
        let mut tally = MergingCounter::default();
        for (path, header) in files {
            for (name, info) in header.tensors() {
                tally.add(&rules, name, &info).ok_or_else(|| Error::Header {
                    file: self.backend.file_name(path),
                    source: HeaderError::overflow(name),
                })?;
            }
        }
        Ok(tally.finish(&rules))
    }

    /// The configuration of the commit. That there is none is no fault, and one that cannot be used is
    /// no reason to withhold what the headers say; a network that fails is, for it would change the
    /// count.
    pub(super) async fn config(
        &self,
        findings: &mut Vec<Finding>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let path = RepoPath::trusted(CONFIG);
        let message = match self.backend.read_whole(&path, self.limits.config, &self.meter).await {
            Ok(json) => {
                let json = self.of_commit(&path, json)?;
                return Ok(Some(json));
            }
            // A cache that lacks it does not tell whether the repo has it.
            Err(Error::FileNotFound { source, .. }) if source.is::<SnapshotError>() => {
                "it was not downloaded".to_owned()
            }
            Err(error) if error.is_not_found() => return Ok(None),
            Err(Error::TooLarge { limit, .. }) => {
                format!("it has more than {limit} bytes")
            }
            Err(error) if error.is_denied() => "access to it is denied".to_owned(),
            Err(error) => return Err(error),
        };
        findings.push(passed_over(message));
        Ok(None)
    }
}

/// What a count goes by, if the configuration is one.
pub(super) fn usable(json: &[u8], findings: &mut Vec<Finding>) -> Option<Configs> {
    Configs::from_config_json(json)
        .map_err(|error| findings.push(passed_over(error.to_string())))
        .ok()
}

fn passed_over(message: String) -> Finding {
    Finding::UnusableConfig { file: CONFIG.to_owned(), reason: message }
}

/// Whether a configuration could change what is counted.
pub(super) fn call_for_config(files: &[File<'_>]) -> bool {
    tensors(files).any(|(name, info)| needs_config(name, &info))
}

/// Every tensor of every file with its name.
fn tensors<'a>(files: &[File<'a>]) -> impl Iterator<Item = (&'a str, TensorInfo)> {
    files.iter().flat_map(|(_, header)| header.tensors())
}
