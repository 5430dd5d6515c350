//! Verification: continues after invalid files, and reports every error.

use hf_meta_format::VerifyReport;
use hf_meta_format::count::Configs;
use hf_meta_format::formats::clip;
use hf_meta_format::formats::weight_sets::{Layout, WeightSet};
use hf_meta_format::report::loaded::Verification;
use hf_meta_format::report::verify::{ConfigFile, SetCheck, is_other_content};
use hf_meta_format::report::{Finding, ReportBuilder, bounded};

use super::locate::Located;
use super::read::{Call, Problem, SetReads, finding};
use super::reader::Failure;

impl Call {
    /// Reads every header of the weights that a loader loads, or of all sets, and reports all findings.
    pub(crate) async fn verify(mut self) -> Result<VerifyReport, Failure> {
        self.options.other_sets = true;
        self.reader.load_layouts().await?;
        let path = self.options.path.as_ref();
        let is_file = path.is_some_and(|path| self.is_file(path));
        let is_folder = path.is_none_or(|path| self.is_folder(path));
        let listed = self.layout(path.filter(|_| is_folder));
        let all = if self.options.all_sets && is_folder { &listed.sets[..] } else { &[] };
        let (mut report, found) = if all.is_empty() {
            let mut located = self.locate()?;
            let layout = located.layout.take();
            let layout = layout.filter(|_| !is_file || located.path.is_index());
            (self.verify_set(&located, layout.as_ref(), true).await?, layout)
        } else {
            (VerifyReport::default(), None)
        };
        let layout = if all.is_empty() { found.as_ref() } else { Some(&listed) };
        if let Some(layout) = layout {
            let main = match report.sets.first() {
                Some(read) => layout.find(&read.path).filter(|_| is_folder),
                None => layout.main(),
            };
            let mut verification = Verification::new(layout, main);
            if let Some(path) = verification.components_file() {
                let json = self.reader.load(path.as_str(), Configs::DEFAULT_LIMIT).await;
                let json =
                    json.map(|part| part.bytes()).map_err(|failure| finding(path, failure.into()));
                verification.add_components(path, json);
            }
            for set in verification.missing_sets(&report, all) {
                let is_first = report.sets.is_empty();
                let verified = self.verify_listed_set(set, layout, is_first).await;
                if is_first || !is_other_content(&verified.findings()) {
                    report.add(verified);
                }
            }
            verification.finish(&mut report, !is_file);
        }
        for finding in self.findings() {
            report.push(finding);
        }
        report.source.clone_from(&self.options.source);
        report.commit.clone_from(&self.options.commit);
        Ok(report)
    }

    /// Verifies a set of a listing. If it cannot be read, the result is a finding.
    async fn verify_listed_set(
        &self,
        set: &WeightSet,
        layout: &Layout,
        is_first: bool,
    ) -> VerifyReport {
        let path = &set.path;
        let failed = match set.is_without_index().then(|| set.shards()).transpose() {
            Ok(shards) => {
                let located = Located { path: path.clone(), shards, layout: None };
                match self.verify_set(&located, Some(layout), is_first).await {
                    Ok(report) => return report,
                    Err(failure) => finding(path, failure.into()),
                }
            }
            Err(missing) => Finding::IncompleteShards {
                shards: clip(path.as_str()),
                total: missing.total.into(),
                found: set.files as u64,
            },
        };
        VerifyReport::unreadable(set, failed)
    }

    /// Reads every header of a set and reports all findings. `is_first` compares the count with the one of the Hub.
    async fn verify_set(
        &self,
        located: &Located,
        layout: Option<&Layout>,
        is_first: bool,
    ) -> Result<VerifyReport, Failure> {
        let path = &located.path;
        let (files, reads) = match self.read_headers(located, true, true).await {
            Ok(reads) => (reads.shards.len().max(1), reads),
            Err(Problem::Read(failure)) => return Err(failure),
            Err(problem) => {
                let builder = ReportBuilder::new_sharded(path, None, true);
                let failures = vec![(path.clone(), problem)];
                (0, SetReads { builder, failures, ..SetReads::default() })
            }
        };
        let SetReads { builder, shards, failures, needs_config } = reads;
        let unindexed = layout.filter(|_| builder.index().is_some());
        let unindexed = unindexed.map_or_else(Vec::new, |layout| layout.unindexed_shards(&shards));
        let failures = bounded(failures.into_iter().map(|(file, problem)| finding(&file, problem)));
        let is_whole = self.single_shard().is_none();
        let mut check = SetCheck::new(path.clone(), files, builder, &shards, failures, is_whole);
        let names = unindexed.into_iter().map(|shard| clip(shard.as_str()));
        check.set.findings.extend(bounded(names.map(|shard| Finding::UnindexedShard { shard })));
        let mut config = ConfigFile::default();
        if check.needs_config || needs_config {
            config = self.read_config(path).await.unwrap_or_else(|failure| {
                check.set.findings.insert(0, finding(path, failure.into()));
                ConfigFile::default()
            });
        }
        let other = check.other_config_file(&config.configs);
        if let Err(failure) = self.add_other_config(path, other, &mut config).await {
            check.set.findings.push(finding(path, failure.into()));
        }
        let is_counted = is_first && check.is_counted_by_hub();
        let hub = self.options.hub_count.filter(|_| is_counted);
        Ok(check.finish(&config, Ok(hub)))
    }
}
