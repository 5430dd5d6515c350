//! The verdicts of both readers about a header or a file, and their comparison.

use std::collections::{BTreeMap, HashMap};

use hf_meta::{SafetensorsFileHeader, TensorInfo};
use hf_meta_count::count::Counter;
use hf_meta_format::formats::safetensors::{
    DEFAULT_HEADER_LIMIT, HeaderError, HeaderErrorKind, header_range,
};
use safetensors::SafeTensors;
use safetensors::tensor::{Metadata, SafeTensorError};

use super::allowed::ALLOWED;
use super::reading::Reading;

/// The defect of a refused file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    NoPrefix,
    OverLimit,
    PastEnd,
    /// The header is not JSON of the expected structure.
    Text,
    /// The header breaks a rule of the tensors.
    Tensors,
    FileSize,
}

/// The verdicts on one header or file.
#[derive(Debug)]
pub(super) struct Verdicts {
    pub(super) ours: Result<SafetensorsFileHeader, HeaderError>,
    pub(super) reference: Result<Metadata, Stage>,
}

impl Verdicts {
    pub(super) fn of_header(json: &[u8]) -> Self {
        // Without the file, all of the reference's errors are of one kind.
        let stage = || Self::of_file(&whole(json, &[])).stages().1;
        let reference = serde_json::from_slice(json);
        Self {
            ours: SafetensorsFileHeader::from_json(json),
            reference: reference.map_err(|_| stage().unwrap()),
        }
    }

    pub(super) fn of_file(file: &[u8]) -> Self {
        let reference = SafeTensors::read_metadata(file);
        Self {
            ours: read(file),
            reference: reference.map(|(_, metadata)| metadata).map_err(|error| stage_of(&error)),
        }
    }

    /// Returns the defects that we and the reference report; `None` for a valid file.
    pub(super) fn stages(&self) -> (Option<Stage>, Option<Stage>) {
        (self.ours.as_ref().err().map(stage), self.reference.as_ref().err().copied())
    }

    /// Returns whether the verdicts are equal, and for accepted files, the content too.
    fn agree(&self) -> bool {
        match (&self.ours, &self.reference) {
            (Ok(ours), Ok(reference)) => is_same(ours, reference),
            _ => self.stages().0 == self.stages().1,
        }
    }

    /// Returns the differences between the verdicts, as positions in [`ALLOWED`]; an error if they do not explain
    /// the verdicts. `again` returns the verdicts on another header with the same data.
    pub(super) fn differences(
        &self,
        header: &[u8],
        again: impl Fn(&[u8]) -> Self,
    ) -> Result<Vec<usize>, String> {
        let reading = Reading::parse(header);
        if let Ok(ours) = &self.ours {
            let reading = reading.as_ref().ok_or("we accept what cannot be read")?;
            check_content(ours, reading)?;
        }
        if self.agree() {
            return Ok(Vec::new());
        }
        let reading = reading.ok_or_else(|| format!("the verdicts differ: {self:?}"))?;
        let undisputed = again(reading.undisputed().as_bytes());
        match self.excuses(&reading, &undisputed) {
            Some(excuses) if undisputed.agree() => Ok(excuses),
            _ => Err(format!("no allowed difference: {self:?}, without it {undisputed:?}")),
        }
    }

    /// Returns the allowed differences of the header, if they explain both verdicts. A reader without a
    /// difference must have the same verdict on the undisputed header. If the differences concern us, our error
    /// must be one of theirs.
    fn excuses(&self, reading: &Reading, undisputed: &Self) -> Option<Vec<usize>> {
        let present: Vec<_> =
            (0..ALLOWED.len()).filter(|&at| (ALLOWED[at].present)(reading)).collect();
        let (refusals, others): (Vec<_>, Vec<_>) =
            present.iter().map(|&at| ALLOWED[at].refusal).partition(Option::is_some);
        let (ours, reference) = self.stages();
        let is_ours = match &self.ours {
            Err(error) => refusals.into_iter().flatten().any(|refusal| refusal(error)),
            Ok(_) => false,
        };
        let ours_stays = is_ours || ours == undisputed.stages().0;
        let reference_stays = !others.is_empty() || reference == undisputed.stages().1;
        (!present.is_empty() && ours_stays && reference_stays).then_some(present)
    }
}

/// A file with this header and data.
pub(super) fn whole(header: &[u8], data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header, data].concat()
}

/// Reads a whole file with the public functions.
fn read(file: &[u8]) -> Result<SafetensorsFileHeader, HeaderError> {
    let size = file.len() as u64;
    let range = header_range(file, Some(size), DEFAULT_HEADER_LIMIT)?;
    let [start, end] = [range.start, range.end].map(|at| at.try_into().unwrap());
    let header = SafetensorsFileHeader::from_json(&file[start..end])?;
    header.check_file_size(size).map(|()| header)
}

fn stage(error: &HeaderError) -> Stage {
    match error.kind {
        HeaderErrorKind::FileTooShort => Stage::NoPrefix,
        HeaderErrorKind::TooLarge
        | HeaderErrorKind::OverLimit
        | HeaderErrorKind::WrongFormat(_) => Stage::OverLimit,
        HeaderErrorKind::ExceedsFile => Stage::PastEnd,
        HeaderErrorKind::FileSizeMismatch => Stage::FileSize,
        HeaderErrorKind::Empty
        | HeaderErrorKind::NotAnObject
        | HeaderErrorKind::NotUtf8
        | HeaderErrorKind::NulPadding
        | HeaderErrorKind::InvalidJson
        | HeaderErrorKind::InvalidEntry => Stage::Text,
        _ => Stage::Tensors,
    }
}

fn stage_of(error: &SafeTensorError) -> Stage {
    match error {
        SafeTensorError::HeaderTooSmall => Stage::NoPrefix,
        SafeTensorError::HeaderTooLarge => Stage::OverLimit,
        SafeTensorError::InvalidHeaderLength => Stage::PastEnd,
        SafeTensorError::MetadataIncompleteBuffer => Stage::FileSize,
        SafeTensorError::InvalidHeader(_) | SafeTensorError::InvalidHeaderDeserialization(_) => {
            Stage::Text
        }
        _ => Stage::Tensors,
    }
}

/// Returns whether both read the same tensors, metadata, length and counts.
fn is_same(ours: &SafetensorsFileHeader, reference: &Metadata) -> bool {
    let theirs = reference.tensors();
    let metadata =
        ours.metadata().map(|pairs| pairs.clone().into_iter().collect::<HashMap<_, _>>());
    ours.tensors().len() == theirs.len()
        && ours.tensors().iter().all(|(name, tensor)| {
            theirs.get(name).is_some_and(|their| {
                let (begin, end) = their.data_offsets;
                tensor.dtype.as_str() == format!("{:?}", their.dtype)
                    && tensor.shape == wide(&their.shape)
                    && tensor.data_offsets == (begin as u64, end as u64)
            })
        })
        && metadata == *reference.metadata()
        && ours.data_length() == reference.data_len() as u64
        && counts(ours).is_none_or(|counts| counts == recount(reference))
}

fn wide(shape: &[usize]) -> Vec<u64> {
    shape.iter().map(|&length| length as u64).collect()
}

/// Tensors, parameters, scalars and bytes per dtype name.
type CountReport = BTreeMap<String, [u64; 4]>;

/// `None` if the sums do not fit in 64 bits, which is an error of the counter, not of the header.
fn counts(header: &SafetensorsFileHeader) -> Option<CountReport> {
    let mut counter = Counter::new();
    counter.add_file(header).ok()?;
    let (count, _) = counter.finish().ok()?;
    let rows = count.rows().map(|(dtype, count)| {
        (dtype.to_string(), [count.tensors, count.elements, count.scalars, count.bytes])
    });
    Some(rows.collect())
}

fn recount(reference: &Metadata) -> CountReport {
    let mut counts = CountReport::new();
    for tensor in reference.tensors().values() {
        let elements: u64 = wide(&tensor.shape).iter().product();
        let scalars = u64::from(tensor.shape.is_empty());
        let bytes = (tensor.data_offsets.1 - tensor.data_offsets.0) as u64;
        let row = counts.entry(format!("{:?}", tensor.dtype)).or_default();
        for (sum, part) in row.iter_mut().zip([1, elements - scalars, scalars, bytes]) {
            *sum += part;
        }
    }
    counts
}

/// Checks that an accepted header has the content of the file, in its order.
fn check_content(ours: &SafetensorsFileHeader, file: &Reading) -> Result<(), String> {
    let mut listed = file.tensors.iter();
    let is_listed = |(name, tensor): (&str, TensorInfo)| {
        listed.next().is_some_and(|(listed, entry)| {
            name == listed
                && tensor.dtype.as_str() == entry.dtype
                && tensor.shape == entry.shape
                && tensor.data_offsets == entry.data_offsets
        })
    };
    let are_listed = ours.tensors().iter().all(is_listed) && listed.next().is_none();
    let metadata = file.metadata.as_ref().map(|pairs| pairs.iter().cloned().collect());
    let is_equal = are_listed && ours.metadata() == metadata.as_ref();
    if is_equal { Ok(()) } else { Err(format!("{ours:?} differs from {file:?}")) }
}
