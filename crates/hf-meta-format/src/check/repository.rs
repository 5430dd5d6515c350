//! The verification of the weight sets that a loader loads together.

use std::collections::HashSet;

use crate::formats::weight_sets::{Layout, WeightSet};
use crate::formats::{RepoPath, clip};
use crate::results::{Finding, VerifyReport, bounded};
use crate::steps::{Target, pipeline_components};

/// The maximum number of weight sets to verify in one call.
const MAX_SETS: usize = 1_000;

/// The verification of the sets in a list of files.
#[derive(Debug)]
pub struct Verification<'a> {
    layout: &'a Layout,
    main: Option<&'a WeightSet>,
    /// The folders of the components of a pipeline.
    components: Vec<RepoPath>,
    /// The sets that a loader loads.
    loaded: Vec<&'a WeightSet>,
    target: &'a Target,
    findings: Vec<Finding>,
}

impl<'a> Verification<'a> {
    /// Creates a verification of the sets that a loader of the main set loads, which the report has unless it is empty.
    pub fn new(layout: &'a Layout, report: &VerifyReport, target: &'a Target) -> Self {
        let main = match report.sets.first() {
            // A caller who selects one set wants that set.
            Some(read) => layout.find(&read.path).filter(|_| target.is_folder()),
            None => layout.main(),
        };
        let (components, loaded, findings) = Default::default();
        Self { layout, main, components, loaded, target, findings }
    }

    /// Returns the file that lists the components of a pipeline.
    pub fn components_file(&self) -> Option<&'a RepoPath> {
        self.layout.components_file(self.main?)
    }

    /// Adds the content of the [components file](Self::components_file), or the reason why it is unavailable. Adds a
    /// finding for each component that is missing.
    pub fn add_components(&mut self, path: &RepoPath, json: Result<Vec<u8>, Finding>) {
        let file = clip(path.as_str());
        let listed = json.and_then(|json| {
            let reason = "it is not a JSON object".to_owned();
            let unusable = || Finding::UnusableConfig { file: file.clone(), reason };
            pipeline_components(path, &json).ok_or_else(unusable)
        });
        match listed {
            Ok(components) => self.components = components,
            Err(finding) => self.findings.push(finding),
        }
        // A pipeline has a dozen components.
        self.components.truncate(MAX_SETS);
        let layout = self.layout;
        let missing = self.components.iter().filter(|path| !layout.has_component(path.as_str()));
        self.findings.extend(bounded(missing.map(|folder| Finding::MissingComponent {
            component: clip(folder.as_str()),
            file: file.clone(),
        })));
    }

    /// Returns the sets to verify that the report lacks: the ones that are loaded, and with `all` every set of a folder.
    pub fn missing_sets(&mut self, report: &VerifyReport, all: bool) -> Vec<&'a WeightSet> {
        let others = if all && self.target.is_folder() { &self.layout.sets[..] } else { &[] };
        let loaded = |main| self.layout.loaded_with(main, &self.components);
        self.loaded = self.main.map_or_else(Vec::new, loaded);
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
        let unchecked = self.layout.sets.iter().filter(|set| !verified.contains(&set.path));
        report.unchecked = wanted.then(|| unchecked.cloned().collect());
        let twins = self.layout.stored_twice(&self.loaded);
        let twins = bounded(twins.map(|(file, index)| Finding::StoredTwice {
            file: clip(file.path.as_str()),
            index: clip(index.path.as_str()),
        }));
        let unlisted = self.loaded.iter().filter(|set| set.lacks_index());
        let unlisted =
            bounded(unlisted.map(|set| Finding::MissingIndex { shards: clip(set.path.as_str()) }));
        let findings = self.findings.into_iter().chain(twins).chain(unlisted);
        findings.for_each(|finding| report.push(finding));
    }
}
