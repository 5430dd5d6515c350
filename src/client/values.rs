//! Checks the values of a model.

use std::future::ready;
use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::TryStreamExt;
use hf_meta_count::results::{Finding, ValueCheck, ValueReport, bounded};
use hf_meta_count::values::{SampleLimits, ValueScanner, is_scannable, sample_blocks};
use hf_meta_format::formats::{FileHeader, RepoPath};
use hf_meta_format::read_plan::{
    PlanOptions, PlannedTensor, ReadPlan, StorageStarts, TensorSelection,
};

use super::checked_sets::CheckedSets;
use super::data_hash::DataHash;
use super::model::Model;
use super::tensors::{TensorChunk, TensorReader};
use crate::base::blocking::spawn_blocking_if_large;
use crate::call::PinnedPlan;
use crate::error::Error;
use crate::hub::CommitSha;

/// The seed of samples: a second check reads the same parts.
pub(super) const SEED: u64 = 0;

/// The maximum number of findings that are kept while tensors are read.
const MAX_FINDINGS: usize = 10_000;

impl Model {
    /// Reads values of the weights, and reports those that no computation survives: NaN and infinite numbers, matrices
    /// of zeros or of one number, and scales that are negative or zero.
    ///
    /// A sample reads vectors, scales, routers and small matrices whole, and blocks of the others: at most 32 MB of any
    /// model. It can prove that a file is corrupt, but never that it is not. If all values are read, the data of each file
    /// are also compared with the hash that its metadata state.
    ///
    /// Checks the weights that [`Model::count`] reads; [`Verify::values`](super::Verify::values) checks those that a loader
    /// loads.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Model::tensors`].
    pub fn check_values(
        &self,
        check: ValueCheck,
    ) -> BoxFuture<'static, Result<ValueReport, Error>> {
        // All ranges count in one meter.
        let meter = self.meter.clone().unwrap_or_else(|| self.context.totals.meter());
        let model = self.clone().meter(&meter);
        Box::pin(async move {
            let weights = model.call(|call| Box::pin(call.weights_of_bytes())).await?;
            let commit = weights.report().commit.clone();
            let starts = model.storage_starts(weights.files(), commit.clone()).await?;
            let plan = move || {
                let mut sets = CheckedSets::default();
                sets.add(weights.files(), &starts);
                sets
            };
            let sets = spawn_blocking_if_large(usize::MAX, plan).await;
            if let (true, Some(reason)) = (sets.plan.tensors.is_empty(), &sets.reason) {
                return Err(not_readable(reason.clone()));
            }
            let (mut report, findings) = model.check_planned(sets, commit, check).await?;
            report.findings = bounded(findings.into_iter().flatten());
            Ok(report)
        })
    }

    /// Reads the positions of the storages in the files of PyTorch.
    fn storage_starts<'a>(
        &self,
        files: impl Iterator<Item = (RepoPath, &'a FileHeader)>,
        commit: Option<CommitSha>,
    ) -> BoxFuture<'static, Result<StorageStarts, Error>> {
        let needed = ReadPlan::local_headers(files, &TensorSelection::all());
        let needed = needed.unwrap_or_default();
        if needed.is_empty() {
            return Box::pin(ready(Ok(StorageStarts::default())));
        }
        self.call(move |call| {
            let (needed, commit) = (needed.clone(), commit.clone());
            async move { call.storage_starts(needed, commit).await }
        })
    }

    /// Checks the values of files whose headers have been read, and returns the findings about each set.
    pub(super) async fn check_sets(
        &self,
        headers: Vec<Vec<(RepoPath, FileHeader)>>,
        commit: Option<CommitSha>,
        check: ValueCheck,
    ) -> Result<(ValueReport, Vec<Vec<Finding>>), Error> {
        let files = || headers.iter().flatten().map(|(path, header)| (path.clone(), header));
        let starts = self.storage_starts(files(), commit.clone()).await?;
        let plan = move || {
            let mut sets = CheckedSets::default();
            for headers in headers {
                sets.add(headers.iter().map(|(path, header)| (path.clone(), header)), &starts);
            }
            sets
        };
        let sets = spawn_blocking_if_large(usize::MAX, plan).await;
        if sets.plan.tensors.is_empty() {
            let reason = sets.reason.unwrap_or_else(|| "no valid file contains tensors".to_owned());
            return Ok((ValueReport::skipped(check, reason), Vec::new()));
        }
        self.check_planned(sets, commit, check).await
    }

    async fn check_planned(
        &self,
        sets: CheckedSets,
        commit: Option<CommitSha>,
        check: ValueCheck,
    ) -> Result<(ValueReport, Vec<Vec<Finding>>), Error> {
        let (model, source) = (self.clone(), String::new());
        let prepare = move || {
            let parts = parts(&sets, check);
            let options = PlanOptions::default();
            let options = match check {
                ValueCheck::All => options,
                _ => options.max_gap(SampleLimits::MAX_GAP).max_range(SampleLimits::MAX_RANGE),
            };
            let plan = sets.plan.parts(&parts, &options);
            let plan = Arc::new(plan.map_err(|error| not_readable(error.to_string()))?);
            let reader = TensorReader::new(model, PinnedPlan { source, commit, plan });
            Ok::<_, Error>(Checker::new(sets, parts, reader, check))
        };
        let checker = spawn_blocking_if_large(usize::MAX, prepare).await?;
        checker.reader.admit().await?;
        checker.run().await
    }
}

fn not_readable(message: String) -> Error {
    Error::InvalidOption { option: "tensors", message }
}

/// A part of a tensor: the index of the tensor, and the range of its data.
type Part = (usize, Range<u64>);

/// Returns the parts to read, sorted.
fn parts(sets: &CheckedSets, check: ValueCheck) -> Vec<Part> {
    let tensors = &sets.plan.tensors;
    if check == ValueCheck::All {
        let tensors = tensors.iter().enumerate();
        let tensors = tensors.filter(|(_, tensor)| {
            is_checked(tensor) || sets.hashes.contains_key(&tensor.file.path)
        });
        return tensors.map(|(at, tensor)| (at, 0..tensor.byte_length())).collect();
    }
    let limits = SampleLimits::default();
    sample_blocks(tensors, |_, tensor| is_checked(tensor), SEED, &limits)
}

fn is_checked(tensor: &PlannedTensor) -> bool {
    is_scannable(&tensor.name, &tensor.dtype, &tensor.shape)
}

/// A check of values in progress.
struct Checker {
    sets: CheckedSets,
    parts: Vec<Part>,
    reader: TensorReader,
    /// True if scales may be the ones of integers, whose sign a writer may choose.
    has_integer_weights: bool,
    report: ValueReport,
    /// The findings, each with the index of a tensor of its file.
    findings: Vec<(usize, Finding)>,
    /// The tensor that is being read, by its index. Its values may be unknown, and only its bytes be hashed.
    current: Option<(usize, Option<ValueScanner>)>,
    /// The hash of the data of the file that is being read.
    hash: Option<DataHash>,
}

impl Checker {
    fn new(sets: CheckedSets, parts: Vec<Part>, reader: TensorReader, check: ValueCheck) -> Self {
        let mut report = ValueReport::new(check, sets.plan.tensor_bytes());
        report.ranges = reader.plan().ranges.len() as u64;
        let has_integer_weights = sets.have_integer_weights();
        let (findings, current, hash) = (Vec::new(), None, None);
        Self { sets, parts, reader, has_integer_weights, report, findings, current, hash }
    }

    async fn run(mut self) -> Result<(ValueReport, Vec<Vec<Finding>>), Error> {
        let mut chunks = self.reader.clone().chunks();
        while let Some(TensorChunk { tensor: part, offset, bytes }) = chunks.try_next().await? {
            let Some((at, range)) = self.parts.get(part) else { continue };
            let (at, position) = (*at, range.start + offset);
            if self.current.as_ref().is_none_or(|(current, _)| *current != at) {
                self.start(at);
            }
            let Some((_, mut scanner)) = self.current.take() else { continue };
            let mut hash = self.hash.take();
            if scanner.is_some() {
                self.report.bytes_checked += bytes.len() as u64;
            }
            let start = self.sets.plan.tensors[at].start.saturating_add(position);
            let length = bytes.len();
            let scan = move || {
                if let Some(scanner) = &mut scanner {
                    scanner.add(position, &bytes);
                }
                if let Some(hash) = &mut hash {
                    hash.add(start, &bytes);
                }
                (scanner, hash)
            };
            let (scanner, hash) = spawn_blocking_if_large(length, scan).await;
            (self.current, self.hash) = (Some((at, scanner)), hash);
        }
        self.finish();
        self.finish_hash();
        let Self { mut report, sets, findings, .. } = self;
        let tensors = sets.plan.tensors.len() as u64 + sets.left_out;
        report.unchecked = tensors.saturating_sub(report.tensors);
        Ok((report, sets.by_set(findings)))
    }

    /// Starts the check of a tensor, and finishes the one before it.
    fn start(&mut self, at: usize) {
        self.finish();
        let tensor = &self.sets.plan.tensors[at];
        let scanner = ValueScanner::new(&tensor.name, &tensor.dtype, &tensor.shape);
        if self.hash.as_ref().is_none_or(|hash| hash.file != tensor.file) {
            self.finish_hash();
            self.hash = self.sets.hash_of(at, self.report.check);
        }
        self.current = Some((at, scanner));
    }

    /// Adds the findings of the current tensor.
    fn finish(&mut self) {
        let Some((at, Some(scanner))) = self.current.take() else { return };
        self.report.tensors += 1;
        let tensor = &self.sets.plan.tensors[at];
        let found = scanner.findings(&tensor.name, self.has_integer_weights);
        self.add(at, found);
    }

    /// Compares the hash of the current file.
    fn finish_hash(&mut self) {
        let Some(hash) = take(&mut self.hash) else { return };
        let at = hash.first_tensor;
        self.add(at, hash.finish());
    }

    fn add(&mut self, at: usize, found: impl IntoIterator<Item = Finding>) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.extend(found.into_iter().map(|finding| (at, finding)));
        }
    }
}
