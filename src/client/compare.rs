//! Compares the values of two models.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::future::{BoxFuture, try_join};
use futures::stream::{BoxStream, TryStreamExt};
use hf_meta_count::results::{ValueCheck, ValueDiff};
use hf_meta_count::values::{DifferenceScanner, SampleLimits, sample_blocks};
use hf_meta_format::RepoPath;
use hf_meta_format::read_plan::{
    PlanOptions, PlannedFile, PlannedTensor, ReadPlan, TensorSelection,
};

use super::model::Model;
use super::tensors::{TensorChunk, TensorReader};
use super::values::SEED;
use crate::base::blocking::spawn_blocking_if_large;
use crate::error::Error;
use crate::hub::Source;

/// The memory for the ranges of each model, in bytes.
const MEMORY: u64 = 64 << 20;

/// The maximum number of bytes that are compared at once.
const STEP: usize = 1 << 20;

/// A part of a tensor: the index of the tensor, and the range of its data.
type Part = (usize, Range<u64>);

impl Model {
    /// Compares the values of this model with those of a newer one: a sample, or all values. Tensors are matched by name.
    /// Nothing is read of files whose hashes, which the Hub lists, are equal, and of a local file on both sides.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Model::tensors`].
    pub fn compare_values(
        &self,
        after: &Self,
        check: ValueCheck,
    ) -> BoxFuture<'static, Result<ValueDiff, Error>> {
        let (before, after) = (self.clone(), after.clone());
        Box::pin(async move {
            let all = TensorSelection::all;
            let read = |model: &Self| {
                // Equal files are not read, so no byte after their headers is, either.
                let model = model.clone().plan(model.options.plan.unwrap_or_default());
                model.tensors(all()).leave_out().max_memory(MEMORY)
            };
            let readers = try_join(read(&before).into_future(), read(&after).into_future()).await?;
            let identities =
                [identities(&before, &readers.0).await, identities(&after, &readers.1).await];
            let (mut diff, pairs) =
                match_tensors(readers.0.plan(), readers.1.plan(), &identities, check);
            compare(readers, &pairs, &mut diff).await?;
            Ok(diff)
        })
    }
}

/// The identities of files: two files with the same one have the same content.
type Identities = BTreeMap<RepoPath, Identity>;

/// The identity of a file.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// The hash of its content.
    Sha256(String),
    /// Its place on this machine, without links.
    Local(PathBuf),
}

/// Returns the identities of the files of a reader: their places on this machine, or the hashes that the Hub lists at its
/// commit; none for other sources. Without them, the values are compared.
async fn identities(model: &Model, reader: &TensorReader) -> Identities {
    if let Ok(Source::Local(path)) = &model.source {
        return local_identities(path, reader).await;
    }
    let Ok(manifest) = model.manifest().await else { return Identities::new() };
    if manifest.commit.as_ref() != reader.commit() {
        return Identities::new();
    }
    let hashed = manifest
        .files
        .into_iter()
        .filter_map(|file| Some((file.path, Identity::Sha256(file.sha256?))));
    hashed.collect()
}

/// Returns the places of local files.
async fn local_identities(source: &Path, reader: &TensorReader) -> Identities {
    let metadata = tokio::fs::metadata(source).await;
    let is_folder = metadata.is_ok_and(|metadata| metadata.is_dir());
    let folder = if is_folder { Some(source) } else { source.parent() };
    let plan = reader.plan();
    let files = plan.tensors.iter().map(|tensor| &tensor.file);
    let files = files.chain(plan.left_out.iter().map(|tensor| &tensor.file));
    let paths: BTreeSet<_> = files.map(|file| &file.path).collect();
    let mut identities = Identities::new();
    for path in paths {
        let place = folder.unwrap_or(Path::new("")).join(path.as_str());
        if let Ok(place) = tokio::fs::canonicalize(place).await {
            identities.insert(path.clone(), Identity::Local(place));
        }
    }
    identities
}

/// Counts the tensors that need no comparison, and returns the indexes of the others, by the index before.
fn match_tensors(
    before: &ReadPlan,
    after: &ReadPlan,
    identities: &[Identities; 2],
    check: ValueCheck,
) -> (ValueDiff, HashMap<usize, usize>) {
    let (mut diff, mut pairs) = (ValueDiff::new(check), HashMap::new());
    let by_name: HashMap<_, _> =
        after.tensors.iter().enumerate().map(|(at, tensor)| (&*tensor.name, at)).collect();
    for (at, tensor) in before.tensors.iter().enumerate() {
        let Some(other_at) = by_name.get(&*tensor.name) else { continue };
        let other = &after.tensors[*other_at];
        if (&tensor.dtype, &tensor.shape) != (&other.dtype, &other.shape) {
            diff.other_shape += 1;
        } else if have_same_content(&tensor.file, &other.file, identities)
            && tensor.start == other.start
        {
            diff.identical += 1;
        } else {
            let bytes = tensor.byte_length().saturating_add(other.byte_length());
            diff.bytes_total = diff.bytes_total.saturating_add(bytes);
            pairs.insert(at, *other_at);
        }
    }
    match_names(before, after, identities, &mut diff);
    (diff, pairs)
}

/// Counts the tensors that only one of the models has, and the ones that cannot be read by range.
fn match_names(
    before: &ReadPlan,
    after: &ReadPlan,
    identities: &[Identities; 2],
    diff: &mut ValueDiff,
) {
    let [before, after] = [before, after].map(|plan| {
        let read = plan.tensors.iter().map(|tensor| (&*tensor.name, None));
        let left_out = plan.left_out.iter().map(|tensor| (&*tensor.name, Some(&tensor.file)));
        read.chain(left_out).collect::<HashMap<&str, Option<&Arc<PlannedFile>>>>()
    });
    let mut matched = 0;
    for (name, file) in &before {
        let Some(other) = after.get(name) else { continue };
        matched += 1;
        match (file, other) {
            (None, None) => {}
            (Some(file), Some(other)) if have_same_content(file, other, identities) => {
                diff.identical += 1;
            }
            _ => diff.unchecked += 1,
        }
    }
    diff.unmatched = (before.len() + after.len() - 2 * matched) as u64;
}

/// Returns whether two files are known to have the same content.
fn have_same_content(
    before: &PlannedFile,
    after: &PlannedFile,
    identities: &[Identities; 2],
) -> bool {
    let found = [identities[0].get(&before.path), identities[1].get(&after.path)];
    matches!(found, [Some(one), Some(other)] if one == other)
}

/// Compares pairs of tensors.
async fn compare(
    (before, after): (TensorReader, TensorReader),
    pairs: &HashMap<usize, usize>,
    diff: &mut ValueDiff,
) -> Result<(), Error> {
    let tensors = before.plan().tensors.clone();
    let parts = parts(&tensors, pairs, diff.check);
    // The parts of the second model are read in the order of the first.
    let other_parts = parts.iter().filter_map(|(at, range)| Some((*pairs.get(at)?, range.clone())));
    let other_parts: Vec<_> = other_parts.collect();
    let mut sides =
        [Side::new(before, &parts, diff.check)?, Side::new(after, &other_parts, diff.check)?];
    let mut compared = 0;
    for same_tensor in parts.chunk_by(|one, other| one.0 == other.0) {
        let tensor = &tensors[same_tensor[0].0];
        let mut scanner = DifferenceScanner::new(&tensor.dtype);
        for (_, range) in same_tensor {
            let mut left = range.end - range.start;
            while left > 0 {
                let [one, other] = &mut sides;
                let [one, other] = [one.fill(left).await?, other.fill(left).await?];
                let length = step(one, other, left);
                let [one, other] = sides.each_mut().map(|side| side.take(length));
                let scan = move || {
                    scanner.add(&one, &other);
                    scanner
                };
                scanner = spawn_blocking_if_large(length, scan).await;
                left -= length as u64;
                diff.bytes_compared = diff.bytes_compared.saturating_add(length as u64);
            }
        }
        let found = scanner.finish(&tensor.name);
        compared += 1;
        if found.differing > 0 {
            diff.differing.push(found);
        } else {
            diff.same += 1;
        }
    }
    // Empty tensors have no values.
    let empty = pairs.keys().filter(|at| tensors[**at].byte_length() == 0).count() as u64;
    diff.same += empty;
    diff.unchecked += (pairs.len() as u64).saturating_sub(compared + empty);
    Ok(())
}

/// Returns the parts of the paired tensors to compare.
fn parts(tensors: &[PlannedTensor], pairs: &HashMap<usize, usize>, check: ValueCheck) -> Vec<Part> {
    let is_paired = |at: usize| pairs.contains_key(&at);
    match check {
        ValueCheck::All => {
            let tensors = tensors.iter().enumerate();
            let tensors = tensors.filter(|(at, tensor)| is_paired(*at) && tensor.byte_length() > 0);
            tensors.map(|(at, tensor)| (at, 0..tensor.byte_length())).collect()
        }
        // Each byte is read from both models.
        _ => sample_blocks(tensors, |at, _| is_paired(at), SEED, &SampleLimits::default().halved()),
    }
}

/// Returns the number of bytes to compare: whole values, unless the part ends.
fn step(one: usize, other: usize, left: u64) -> usize {
    let length = one.min(other).min(STEP).min(usize::try_from(left).unwrap_or(usize::MAX));
    if length as u64 == left { length } else { length - length % DifferenceScanner::UNIT }
}

/// The bytes of one model.
struct Side {
    chunks: BoxStream<'static, Result<TensorChunk, Error>>,
    buffer: BytesMut,
}

impl Side {
    fn new(reader: TensorReader, parts: &[Part], check: ValueCheck) -> Result<Self, Error> {
        let options = PlanOptions::default().max_gap(SampleLimits::MAX_GAP);
        let options = match check {
            ValueCheck::All => options,
            _ => options.max_range(SampleLimits::MAX_RANGE),
        };
        let plan = reader.plan().parts(parts, &options);
        let plan = plan.map_err(|error| Error::InvalidOption {
            option: "tensors",
            message: error.to_string(),
        })?;
        let chunks = reader.with_plan(plan).chunks();
        Ok(Self { chunks, buffer: BytesMut::new() })
    }

    /// Reads until the buffer contains whole values. Returns its length.
    async fn fill(&mut self, left: u64) -> Result<usize, Error> {
        let unit = DifferenceScanner::UNIT as u64;
        while (self.buffer.len() as u64) < left.min(unit) {
            let Some(chunk) = self.chunks.try_next().await? else {
                let message = "the data ended early".to_owned();
                return Err(Error::Changed { message });
            };
            self.buffer.extend_from_slice(&chunk.bytes);
        }
        Ok(self.buffer.len())
    }

    fn take(&mut self, length: usize) -> Bytes {
        self.buffer.split_to(length).freeze()
    }
}
