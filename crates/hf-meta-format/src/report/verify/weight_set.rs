//! The checks of one weight set, after its headers have been read.

use std::mem::take;

use super::{
    ParameterSources, VerifiedSet, VerifyReport, check_count, check_embeddings, check_gguf,
    check_shard_numbers, gguf_config,
};
use crate::count::Configs;
use crate::formats::gguf::Gguf;
use crate::formats::{FileHeader, Format, Formats, HeaderErrorKind, RepoPath, clip};
use crate::report::rules::{self, ConfigCheck};
use crate::report::{BuiltReport, Finding, ReportBuilder, Severity, bounded};

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
}

impl ConfigFile {
    /// Parses the bytes of `config.json`.
    #[must_use]
    pub fn from_json(json: Vec<u8>) -> Self {
        let (configs, finding) = match Configs::from_config_json(&json) {
            Ok(configs) => (configs, None),
            Err(error) => {
                let (file, reason) = (CONFIG.to_owned(), error.to_string());
                (Configs::default(), Some(Finding::InvalidConfig { file, reason }))
            }
        };
        Self { json: Some(json), configs, is_of_root: false, finding }
    }

    /// Creates a configuration that is ignored for a reason.
    #[must_use]
    pub fn ignored(reason: impl Into<String>) -> Self {
        let (file, reason) = (CONFIG.to_owned(), reason.into());
        let finding = Finding::UnusableConfig { file, reason };
        Self { finding: Some(finding), ..Self::default() }
    }
}

/// A weight set whose headers have been read, as far as that was possible.
#[derive(Debug)]
pub struct SetCheck {
    path: RepoPath,
    /// The expected number of files.
    files: usize,
    is_complete: bool,
    needs_config: bool,
    assembly: ReportBuilder,
    /// The findings so far. The caller adds those about files that it reads.
    pub findings: Vec<Finding>,
}

impl SetCheck {
    /// Compares the index, or the names of the shards, with the headers. `failures` are the findings about unreadable
    /// headers. `is_whole` is false if only one shard of several was to be read.
    #[must_use]
    pub fn new(
        path: RepoPath,
        files: usize,
        assembly: ReportBuilder,
        shards: &[RepoPath],
        failures: Vec<Finding>,
        is_whole: bool,
    ) -> Self {
        let mut findings = failures;
        findings.extend(assembly.index_findings());
        findings.extend(check_shard_numbers(shards));
        let headers = assembly.headers();
        let is_complete = is_whole && headers.len() == files;
        let is_described = headers.iter().any(|(_, header)| header.is_self_describing);
        // A file that was not read could contain the output embedding.
        let needs_config = is_complete && !is_described && path.segments().count() == 1;
        Self { path, files, is_complete, needs_config, assembly, findings }
    }

    /// Returns whether the configuration describes the tensors.
    #[must_use]
    pub fn needs_config(&self) -> bool {
        self.needs_config
    }

    /// Returns the name of the other file that may describe the quantization, the experts or the adapter.
    #[must_use]
    pub fn other_config_file(&self, configs: &Configs) -> Option<&'static str> {
        let recipe = rules::recipe_file(configs, self.assembly.headers());
        recipe.or_else(|| self.assembly.other_config_file(configs))
    }

    /// Returns whether the count that the Hub reports is about this set: the Hub counts only the files at the root.
    #[must_use]
    pub fn is_counted_by_hub(&self) -> bool {
        self.needs_config && self.is_countable()
    }

    /// Counts the headers, and compares them with the configuration and with the count that the Hub reports, or with
    /// the reason why it is unavailable.
    #[must_use]
    pub fn finish(mut self, config: &ConfigFile, hub: Result<Option<u64>, String>) -> VerifyReport {
        let filepaths = self.assembly.filepaths(&self.path);
        self.findings.extend(config.finding.clone());
        // The index may list a tied embedding that is not stored. The count is right in that case.
        if self.needs_config
            && let Some(json) = &config.json
        {
            check_embeddings(json, self.assembly.headers(), &mut self.findings);
        }
        let built = take(&mut self.assembly).finish(&config.configs);
        let mut parameters = self.count(&built);
        if let Some(found) = parameters.counted {
            parameters.hub = self.compare_with_hub(found, hub);
        }
        if built.adapter.is_some() {
            let found = rules::check_adapter(config.configs.adapter(), &built.headers);
            self.findings.extend(found);
        }
        let config_check = self.compare_with_config(config, &built.headers);
        let is_empty = built.totals.tensors == 0 && built.adapter.is_none();
        if self.is_complete && self.files > 0 && is_empty {
            self.findings.push(Finding::NoTensors);
        }
        self.findings.extend(bounded(leading_spaces(&self.path, &built.headers)));
        let BuiltReport { totals, adapter, .. } = built;
        let mut set = VerifiedSet::new(self.path, self.files, totals, parameters, self.findings);
        set.config_check = config_check;
        let mut report = VerifyReport::new(set, filepaths);
        report.fetch.weight_bytes = totals.file_bytes;
        report.adapter = adapter.map(Box::new);
        report
    }

    /// Adds the findings about the headers and the count, and returns the count if it is right.
    fn count(&mut self, built: &BuiltReport) -> ParameterSources {
        let is_usable = self.is_complete && self.is_countable();
        let declared = built.declared_total.filter(|_| is_usable);
        self.findings.extend(built.header_findings(self.is_complete));
        if Formats::built_in().find_or_safetensors(&self.path).name() == Gguf.name() {
            self.findings.extend(check_gguf(&self.path, &built.headers, self.is_complete));
        }
        let mut sources = ParameterSources { declared, ..ParameterSources::default() };
        let Ok((count, breakdown)) = &built.counted else {
            self.findings.insert(0, Finding::CountOverflow);
            return sources;
        };
        self.findings.extend(check_count(count, breakdown, declared));
        if self.is_complete && self.is_countable() {
            sources.counted = Some(count.total());
            sources.exact = Some(breakdown.is_exact());
        }
        sources
    }

    fn compare_with_hub(&mut self, found: u64, hub: Result<Option<u64>, String>) -> Option<u64> {
        match hub {
            Ok(reported) => {
                let wrong = reported.filter(|reported| *reported != found);
                let finding = wrong.map(|reported| Finding::HubCountMismatch { reported, found });
                self.findings.extend(finding);
                reported
            }
            Err(reason) => {
                self.findings.push(Finding::HubCountUnavailable { reason });
                None
            }
        }
    }

    fn compare_with_config(
        &mut self,
        config: &ConfigFile,
        headers: &[(RepoPath, FileHeader)],
    ) -> ConfigCheck {
        let stored = gguf_config(headers);
        let json = stored.as_deref().or(config.json.as_deref());
        let has_config = self.needs_config || self.is_complete && json.is_some();
        if !has_config || config.is_of_root {
            return match (self.is_complete, self.needs_config) {
                (false, _) => ConfigCheck::skipped("a file is missing or invalid"),
                // A component in a folder, or a GGUF file of something else than a model.
                (true, false) => ConfigCheck::default(),
                (true, true) => ConfigCheck::skipped("there is none next to the weights"),
            };
        }
        let (found, check) = rules::check_model(json, headers);
        // The error about a missing module says the same.
        self.findings.retain(|found| {
            !check.compared || !matches!(found, Finding::MissingOutputEmbedding { .. })
        });
        self.findings.splice(..0, found);
        let recipe = json.map(|json| rules::check_recipe(json, &config.configs, headers));
        self.findings.extend(recipe.into_iter().flatten());
        check
    }

    /// Returns whether the found tensors can be compared with a count.
    fn is_countable(&self) -> bool {
        !self.findings.iter().any(|finding| {
            finding.severity() == Severity::Error
                || matches!(finding, Finding::UnindexedTensor { .. })
        })
    }
}

/// Returns a finding for each header that starts with whitespace.
fn leading_spaces(
    path: &RepoPath,
    headers: &[(RepoPath, FileHeader)],
) -> impl Iterator<Item = Finding> {
    let headers = headers.iter().filter(|(_, header)| header.has_leading_space);
    let headers =
        headers.map(move |(file, _)| if file == path { file.clone() } else { path.sibling(file) });
    headers.map(|file| Finding::LeadingSpace { file: clip(file.as_str()) })
}

/// Returns whether a file is valid but contains no model.
#[must_use]
pub fn is_other_content(findings: &[Finding]) -> bool {
    let kind = findings.iter().find_map(|finding| match finding {
        Finding::MalformedHeader { reason, .. } => Some(reason.kind),
        _ => None,
    });
    kind == Some(HeaderErrorKind::NotAModel)
}
