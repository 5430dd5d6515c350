//! The verification of the weight sets that a loader loads together.

use std::collections::{BTreeSet, HashSet};

use crate::results::{Finding, VerifiedSet, VerifyReport, bounded};
use crate::steps::{Parts, Target};
use hf_meta_format::formats::safetensors::{SafetensorsIndexJson, WEIGHTS_NAME};
use hf_meta_format::formats::weight_sets::{ListedWeights, WeightSet};
use hf_meta_format::formats::{DetectedFormat, RepoPath, WeightsKind, clip};

/// The maximum number of weight sets to verify in one call.
const MAX_SETS: usize = 1_000;

/// The verification of the sets in a list of files.
#[derive(Debug)]
pub struct Verification<'a> {
    listed: &'a ListedWeights,
    main: Option<&'a WeightSet>,
    /// The parts that the loader builds.
    parts: Parts,
    /// The configurations of parts without weights, by folder.
    configs: Vec<(RepoPath, Vec<u8>)>,
    /// The sets that a loader loads.
    loaded: Vec<&'a WeightSet>,
    target: &'a Target,
    findings: Vec<Finding>,
}

impl<'a> Verification<'a> {
    /// Creates a verification of the sets that a loader of the main set loads, which the report has unless it is empty.
    pub fn new(listed: &'a ListedWeights, report: &VerifyReport, target: &'a Target) -> Self {
        let main = match report.sets.first() {
            // A caller who selects one set wants that set.
            Some(read) if target.is_folder() => listed.find(&read.path),
            Some(_) => None,
            None => listed.main(),
        };
        let (parts, configs, loaded, findings) = Default::default();
        Self { listed, main, parts, configs, loaded, target, findings }
    }

    /// Returns the file that lists the parts of the model: the components of a pipeline, or the modules of
    /// sentence-transformers. A pipeline may lack its main component.
    pub fn components_file(&self) -> Option<&'a RepoPath> {
        match self.main {
            Some(main) => self.listed.pipeline_of(main),
            None if self.target.is_folder() => self.listed.own_pipeline(),
            None => None,
        }
    }

    /// Adds the content of the [components file](Self::components_file), or the reason why it is unavailable. Adds a
    /// finding for each file that a part lacks.
    pub fn add_components(&mut self, path: &RepoPath, json: Result<Vec<u8>, Finding>) {
        let listed = json.and_then(|json| {
            let file = clip(path.as_str());
            if let Some(found) = DetectedFormat::recognize(&json) {
                let reason = format!("the file looks like {found}");
                return Err(Finding::InvalidConfig { file, reason });
            }
            Parts::read(path, &json).map_err(|reason| Finding::InvalidConfig { file, reason })
        });
        match listed {
            Ok(parts) => self.parts = parts,
            Err(finding) => self.findings.push(finding),
        }
        // A pipeline has a dozen components.
        self.parts.parts.truncate(MAX_SETS);
        self.findings.extend(bounded(self.parts.missing(path, self.listed).into_iter()));
    }

    /// Returns the configurations of parts without weights, which state the widths between two others.
    pub fn config_files(&self) -> Vec<RepoPath> {
        let paths = self.parts.configs().filter(|path| self.listed.has_config(path));
        paths.take(MAX_SETS).collect()
    }

    /// Adds one of the [configurations](Self::config_files), or the reason why it is unavailable.
    pub fn add_config(&mut self, path: RepoPath, json: Result<Vec<u8>, Finding>) {
        match json {
            Ok(json) => self.configs.push((path, json)),
            Err(finding) => self.findings.push(finding),
        }
    }

    /// Returns the sets to verify that the report lacks: the ones that are loaded, and with `all` every set of a folder.
    pub fn missing_sets(&mut self, report: &VerifyReport, all: bool) -> Vec<&'a WeightSet> {
        let others = if all && self.target.is_folder() { &self.listed.sets[..] } else { &[] };
        let folders: Vec<_> = self.parts.folders().cloned().collect();
        self.loaded = self.listed.loaded_with(self.main, &folders);
        self.loaded.truncate(MAX_SETS);
        let mut known: HashSet<_> = report.sets.iter().map(|set| &set.path).collect();
        let mut sets: Vec<_> = self.loaded.iter().copied().chain(others).collect();
        sets.retain(|set| known.insert(&set.path));
        sets.truncate(MAX_SETS);
        sets
    }

    /// Adds the findings about the repository, and the sets that were not verified, unless one file was selected.
    pub fn finish(self, report: &mut VerifyReport) {
        let wanted = matches!(self.target, Target::Folder(_) | Target::Quantization(_));
        let verified: HashSet<_> = report.sets.iter().map(|set| &set.path).collect();
        let files: BTreeSet<_> = report.filepaths.iter().cloned().collect();
        let is_checked = |set: &&WeightSet| verified.contains(&set.path) || set.is_part_of(&files);
        let unchecked = self.listed.sets.iter().filter(|set| !is_checked(set));
        report.unchecked = wanted.then(|| unchecked.cloned().collect());
        let twins = self.listed.stored_twice(&self.loaded);
        let twins = bounded(twins.map(|(file, index)| Finding::StoredTwice {
            file: clip(file.path.as_str()),
            index: clip(index.path.as_str()),
        }));
        let unlisted = self.loaded.iter().filter(|set| set.lacks_index());
        let unlisted =
            bounded(unlisted.map(|set| Finding::MissingIndex { shards: clip(set.path.as_str()) }));
        let unexpected = bounded(report.sets.iter().filter_map(|set| self.unexpected_name(set)));
        let checkpoint = match &report.sets[..] {
            // With several sets, the other checkpoints were read, too.
            [only] => last_checkpoint(self.listed, &only.path),
            _ => None,
        };
        let configs = report.sets.iter().filter_map(|set| {
            let config = set.config.clone()?;
            Some((RepoPath::join(set.path.folder().as_ref(), "config.json"), config))
        });
        let joins = self.parts.joins(&configs.chain(self.configs).collect::<Vec<_>>());
        report.loader = self.parts.loader.or(report.loader);
        let findings = self.findings.into_iter().chain(joins).chain(twins).chain(unlisted);
        let findings: Vec<_> = findings.chain(unexpected).chain(checkpoint).collect();
        // Findings belong to a set, and a repository without weights has none.
        if report.sets.is_empty() && !findings.is_empty() {
            let path = RepoPath::join(None, WEIGHTS_NAME);
            report.sets.push(VerifiedSet::new(path, 0, Vec::new()));
        }
        for finding in findings {
            report.push(finding);
        }
    }

    /// Returns the indexes next to the loaded single files that have no shards, as far as their names show. One that lists
    /// other files is left over.
    pub fn lone_indexes(&self) -> Vec<RepoPath> {
        let indexes = self.listed.lone_indexes(&self.loaded).map(|(_, index)| index.path.clone());
        indexes.take(MAX_SETS).collect()
    }

    /// Adds the content of a [lone index](Self::lone_indexes).
    pub fn add_index(&mut self, path: &RepoPath, json: &[u8]) {
        let file = self.listed.lone_indexes(&self.loaded).find(|(_, index)| index.path == *path);
        let index = SafetensorsIndexJson::from_json(json).ok();
        let Some(((file, _), index)) = file.zip(index) else { return };
        let shards = index.shards();
        let mut missing = shards.iter().map(|shard| path.sibling(shard));
        let missing = missing.find(|shard| !self.listed.has_file(shard));
        self.findings.extend(missing.map(|shard| Finding::StaleIndex {
            index: clip(path.as_str()),
            file: clip(file.path.as_str()),
            shard: clip(shard.as_str()),
        }));
    }

    /// Returns the finding that the loader that the configuration states does not find a set, and no other one in its
    /// folder.
    fn unexpected_name(&self, set: &VerifiedSet) -> Option<Finding> {
        if !self.target.is_folder() {
            return None;
        }
        let loader = set.loader?;
        let listed = self.listed.find(&set.path)?;
        let folder = set.path.folder();
        let is_found =
            |name: &str| self.listed.find(&RepoPath::join(folder.as_ref(), name)).is_some();
        let is_plain = matches!(listed.kind, WeightsKind::Model | WeightsKind::Adapter)
            && !listed.is_without_index();
        if !is_plain {
            return None;
        }
        let expected = loader.expected(&set.path)?;
        (!loader.names().into_iter().any(is_found)).then(|| {
            let (file, expected) = (clip(set.path.as_str()), expected.to_owned());
            Finding::UnexpectedName { file, loader: loader.name(), expected }
        })
    }
}

/// Returns the finding that the weights at `path` are the last of several checkpoints of a training run.
pub fn last_checkpoint(listed: &ListedWeights, path: &RepoPath) -> Option<Finding> {
    let (folder, checkpoints) = listed.checkpoints()?;
    let is_read = path.as_str().strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let checkpoint = clip(folder);
    is_read.then_some(Finding::LastCheckpoint { checkpoint, checkpoints: checkpoints as u64 })
}
