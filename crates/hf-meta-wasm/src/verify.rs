//! Verification: continues after invalid files, and reports every error.

use hf_meta_count::VerifyReport;
use hf_meta_count::check::SetCheck;
use hf_meta_count::check::Verification;
use hf_meta_count::count::Configs;
use hf_meta_count::results::bounded;
use hf_meta_count::steps::{ConfigFile, Target};
use hf_meta_format::formats::safetensors::SafetensorsIndexJson;
use hf_meta_format::formats::weight_sets::Layout;

use super::locate::Located;
use super::read::{Call, SetReads, finding};
use super::reader::Failure;

impl Call {
    /// Reads every header of the weights that a loader loads, or of all sets, and reports all findings.
    pub(crate) async fn verify(mut self) -> Result<VerifyReport, Failure> {
        (self.keep_failures, self.options.keep_headers) = (true, true);
        // A caller who selects one file wants that file.
        let is_file = matches!(&self.target, Target::File(path) if !path.is_index());
        self.options.other_sets = !is_file;
        self.reader.load_second().await?;
        let is_all = self.options.all_sets && self.target.is_folder();
        let listed = is_all.then(|| self.layout(self.target.folder()));
        let mut layout = listed.filter(|layout| !layout.sets.is_empty());
        let mut report = VerifyReport::default();
        if layout.is_none() {
            let located = self.locate()?;
            report = self.verify_set(&located, located.layout.as_ref(), true).await?;
            layout = located.layout;
        }
        if let Some(layout) = &layout {
            let mut verification = Verification::new(layout, &report, &self.target);
            if let Some(path) = verification.components_file() {
                let json = self.reader.load(path.as_str(), Configs::DEFAULT_LIMIT).await;
                let json =
                    json.map(|part| part.bytes()).map_err(|failure| finding(path, failure.into()));
                verification.add_components(path, json);
                for path in verification.config_files() {
                    let json = self.reader.load(path.as_str(), Configs::DEFAULT_LIMIT).await;
                    let json = json.map(|part| part.bytes());
                    let json = json.map_err(|failure| finding(&path, failure.into()));
                    verification.add_config(path, json);
                }
            }
            for set in verification.missing_sets(&report, is_all) {
                let is_first = report.sets.is_empty();
                let located = self.located(set);
                let read = async { self.verify_set(&located?, Some(layout), is_first).await }.await;
                report.add(read.unwrap_or_else(|failure| {
                    VerifyReport::unreadable(set, finding(&set.path, failure.into()))
                }));
            }
            for path in verification.lone_indexes() {
                let limit = SafetensorsIndexJson::DEFAULT_LIMIT;
                // The index is not loaded, so its errors are not reported.
                if let Ok(part) = self.reader.load(path.as_str(), limit).await {
                    verification.add_index(&path, &part.bytes());
                }
            }
            verification.finish(&mut report);
        }
        self.findings().for_each(|finding| report.push(finding));
        report.source.clone_from(&self.options.source);
        report.commit.clone_from(&self.options.commit);
        Ok(report)
    }

    /// Reads every header of a set and reports all findings. `is_first` compares the count with the one of the Hub.
    async fn verify_set(
        &self,
        located: &Located,
        layout: Option<&Layout>,
        is_first: bool,
    ) -> Result<VerifyReport, Failure> {
        let path = &located.path;
        let SetReads { files, builder, shards, failures } = self.read_set(located).await?;
        let needs_config = builder.needs_config();
        let unindexed = layout.filter(|_| builder.index().is_some());
        let unindexed = unindexed.map_or_else(Vec::new, |layout| layout.unindexed_shards(&shards));
        let failures = bounded(failures.into_iter().map(|(file, problem)| finding(&file, problem)));
        let is_whole = self.target.single_shard().is_none();
        let mut check =
            SetCheck::new(path.clone(), files, builder, &shards, &unindexed, failures, is_whole);
        check.builds_base = layout.is_some_and(|layout| layout.builds_base(path));
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
        let hub = self.options.hub_count.filter(|_| is_first && check.is_counted_by_hub());
        Ok(check.finish(&config, Ok(hub)))
    }
}
