//! Checks the values of a model.

use std::mem::take;
use std::ops::Range;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::TryStreamExt;
use hf_meta_count::results::{Finding, ValueCheck, ValueReport, bounded};
use hf_meta_count::values::{SampleLimits, ValueScanner, is_scannable, sample_blocks};
use hf_meta_format::read_plan::{PlanOptions, PlannedTensor, TensorSelection};

use super::model::Model;
use super::tensors::{TensorChunk, TensorReader};
use crate::base::blocking::spawn_blocking_if_large;
use crate::error::Error;

/// The seed of samples: a second check reads the same parts.
pub(super) const SEED: u64 = 0;

/// The maximum gap between parts of a sample in bytes. A longer one is not read.
pub(super) const MAX_GAP: u64 = 8 << 10;

/// The maximum number of findings that are kept while tensors are read.
const MAX_FINDINGS: usize = 10_000;

impl Model {
    /// Reads values of the weights, and reports those that no computation survives: NaN and infinite numbers, matrices
    /// of zeros or of one number, and scales that are negative or zero.
    ///
    /// A sample reads small tensors whole, and blocks of the others: at most 32 MB of any model. It can prove that a file
    /// is corrupt, but never that it is not.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Model::tensors`].
    pub fn check_values(
        &self,
        check: ValueCheck,
    ) -> BoxFuture<'static, Result<ValueReport, Error>> {
        let tensors = self.tensors(TensorSelection::all());
        Box::pin(async move { Checker::new(tensors.await?, check)?.run().await })
    }
}

/// A part of a tensor: the index of the tensor, and the range of its data.
type Part = (usize, Range<u64>);

/// A check of values in progress.
struct Checker {
    /// All tensors.
    tensors: Arc<[PlannedTensor]>,
    parts: Vec<Part>,
    reader: TensorReader,
    report: ValueReport,
    findings: Vec<Finding>,
    /// The tensor that is being read, by its index.
    current: Option<(usize, ValueScanner)>,
}

impl Checker {
    fn new(reader: TensorReader, check: ValueCheck) -> Result<Self, Error> {
        let plan = reader.plan();
        let scannable = |tensor: &PlannedTensor| is_scannable(&tensor.dtype);
        let parts: Vec<Part> = if check == ValueCheck::All {
            let tensors = plan.tensors.iter().enumerate();
            let tensors = tensors.filter(|(_, tensor)| scannable(tensor));
            tensors.map(|(at, tensor)| (at, 0..tensor.byte_length())).collect()
        } else {
            let limits = SampleLimits::default();
            sample_blocks(&plan.tensors, |_, tensor| scannable(tensor), SEED, &limits)
        };
        let options = PlanOptions::default();
        let options = if check == ValueCheck::All { options } else { options.max_gap(MAX_GAP) };
        let part_plan = plan.parts(&parts, &options);
        let part_plan = part_plan.map_err(|error| Error::InvalidOption {
            option: "tensors",
            message: error.to_string(),
        })?;
        let mut report = ValueReport::new(check, plan.tensor_bytes());
        report.ranges = part_plan.ranges.len() as u64;
        let tensors = plan.tensors.as_slice().into();
        let reader = reader.with_plan(part_plan);
        Ok(Self { tensors, parts, reader, report, findings: Vec::new(), current: None })
    }

    async fn run(mut self) -> Result<ValueReport, Error> {
        let mut chunks = self.reader.clone().chunks();
        while let Some(TensorChunk { tensor: part, offset, bytes }) = chunks.try_next().await? {
            let Some((at, range)) = self.parts.get(part) else { continue };
            let (at, position) = (*at, range.start + offset);
            if self.current.as_ref().is_none_or(|(current, _)| *current != at) {
                self.finish();
                let scanner = ValueScanner::new(&self.tensors[at].dtype);
                self.current = scanner.map(|scanner| (at, scanner));
            }
            let Some((_, mut scanner)) = self.current.take() else { continue };
            self.report.bytes_checked += bytes.len() as u64;
            let scan = move || {
                scanner.add(position, &bytes);
                scanner
            };
            self.current = Some((at, spawn_blocking_if_large(usize::MAX, scan).await));
        }
        self.finish();
        self.report.unchecked = (self.tensors.len() as u64).saturating_sub(self.report.tensors);
        self.report.findings = bounded(take(&mut self.findings).into_iter());
        Ok(self.report)
    }

    /// Adds the findings of the current tensor.
    fn finish(&mut self) {
        let Some((at, scanner)) = self.current.take() else { return };
        self.report.tensors += 1;
        if self.findings.len() < MAX_FINDINGS {
            let tensor = &self.tensors[at];
            self.findings.extend(scanner.findings(&tensor.name, &tensor.shape));
        }
    }
}
