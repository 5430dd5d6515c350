//! The checks of one weight set, after its headers have been read.

use std::mem::take;

use super::embeddings::check_embeddings;
use super::gguf::{check_gguf, gguf_config};
use super::{ParameterSources, VerifiedSet, VerifyReport, check_shard_numbers, is_valid};
use crate::count::Configs;
use crate::formats::gguf::Gguf;
use crate::formats::{Format, Formats, HeaderErrorKind, Headers, RepoPath, clip};
use crate::report::index_check::check_count;
use crate::report::rules::{self, ConfigCheck};
use crate::report::{BuiltReport, Finding, ReportBuilder, bounded};

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
    /// The result so far. The caller adds the findings about files that it reads.
    pub set: VerifiedSet,
    /// `true` if the configuration describes the tensors.
    pub needs_config: bool,
    is_complete: bool,
    assembly: ReportBuilder,
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
        let headers = assembly.headers();
        let is_complete = is_whole && headers.len() == files;
        let is_described = headers.iter().any(|(_, header)| header.is_self_describing());
        // A file that was not read could contain the output embedding.
        let needs_config = is_complete && !is_described && path.segments().count() == 1;
        let mut set = VerifiedSet::new(path, files, failures);
        set.findings.extend(assembly.index_findings());
        set.findings.extend(check_shard_numbers(shards));
        Self { set, needs_config, is_complete, assembly }
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
        let filepaths = self.assembly.filepaths(&self.set.path);
        self.set.findings.extend(config.finding.clone());
        // The index may list a tied embedding that is not stored. The count is right in that case.
        if self.needs_config
            && let Some(json) = &config.json
        {
            check_embeddings(json, self.assembly.headers(), &mut self.set.findings);
        }
        let built = take(&mut self.assembly).finish(&config.configs);
        self.count(&built, hub);
        if built.adapter.is_some() {
            let found = rules::check_adapter(config.configs.adapter(), &built.headers);
            self.set.findings.extend(found);
        }
        self.set.config_check = self.compare_with_config(config, &built.headers);
        let BuiltReport { totals, adapter, headers, .. } = built;
        let mut set = self.set;
        if self.is_complete && set.files > 0 && totals.tensors == 0 && adapter.is_none() {
            set.findings.push(Finding::NoTensors);
        }
        let path = &set.path;
        let spaces = headers.iter().filter(|(_, header)| header.has_leading_space());
        let spaces = spaces.map(|(file, _)| {
            let file = if file == path { file.clone() } else { path.sibling(file) };
            Finding::LeadingSpace { file: clip(file.as_str()) }
        });
        set.findings.extend(bounded(spaces));
        (set.valid_files, set.tensors) = (totals.files, totals.tensors);
        let mut report = VerifyReport::new(set, filepaths);
        report.fetch.weight_bytes = totals.file_bytes;
        report.adapter = adapter.map(Box::new);
        report
    }

    /// Adds the findings about the headers and the count. Adds the count if it is right.
    fn count(&mut self, built: &BuiltReport, hub: Result<Option<u64>, String>) {
        let declared = built.declared_total.filter(|_| self.is_countable());
        self.set.parameters.declared = declared;
        self.set.findings.extend(built.header_findings(self.is_complete));
        if Formats::built_in().find_or_safetensors(&self.set.path).name() == Gguf.name() {
            let found = check_gguf(&self.set.path, &built.headers, self.is_complete);
            self.set.findings.extend(found);
        }
        let Ok((count, breakdown)) = &built.counted else {
            return self.set.findings.insert(0, Finding::CountOverflow);
        };
        self.set.findings.extend(check_count(count, breakdown, declared));
        if !self.is_countable() {
            return;
        }
        let (found, exact) = (count.total(), Some(breakdown.is_exact()));
        let reported = hub.as_ref().map_or(None, |reported| *reported);
        self.set.parameters =
            ParameterSources { counted: Some(found), exact, declared, hub: reported };
        let wrong = reported.filter(|reported| *reported != found);
        let wrong = wrong.map(|reported| Finding::HubCountMismatch { reported, found });
        let failed = hub.err().map(|reason| Finding::HubCountUnavailable { reason });
        self.set.findings.extend(wrong.or(failed));
    }

    fn compare_with_config(&mut self, config: &ConfigFile, headers: &Headers) -> ConfigCheck {
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
        self.set.findings.retain(|found| {
            !check.compared || !matches!(found, Finding::MissingOutputEmbedding { .. })
        });
        self.set.findings.splice(..0, found);
        let recipe = json.map(|json| rules::check_recipe(json, &config.configs, headers));
        self.set.findings.extend(recipe.into_iter().flatten());
        check
    }

    /// Returns whether the found tensors are all tensors, and can be compared with a count.
    fn is_countable(&self) -> bool {
        let is_other = |finding: &Finding| matches!(finding, Finding::UnindexedTensor { .. });
        self.is_complete && is_valid(&self.set.findings) && !self.set.findings.iter().any(is_other)
    }
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
