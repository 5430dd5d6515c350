//! Headers: what parses is consistent, survives being written, and is what the `safetensors` crate
//! reads too.

#![no_main]

use std::collections::{BTreeMap, HashMap};

use hf_meta_count::count::{Counter, DtypeCount};

use hf_meta_format::formats::safetensors::{HeaderError, HeaderErrorKind, PREFIX_LENGTH};
use hf_meta_format::{Dtype, SafetensorsFileHeader, TensorInfo};
use hf_meta_fuzz::check_messages;
use libfuzzer_sys::fuzz_target;
use safetensors::tensor::Metadata;

fuzz_target!(|json: &[u8]| {
    let reference = serde_json::from_slice::<Metadata>(json);
    let header = SafetensorsFileHeader::from_json(json);
    match header {
        Ok(header) => {
            check_spans(&header);
            check_counts(&header);
            check_sizes(&header, json);
            check_round_trip(&header);
            match reference {
                Ok(reference) => check_same(&header, &reference),
                Err(error) => assert!(may_be_refused(&header, json), "refused: {error}"),
            }
        }
        Err(error) => {
            check_messages(&error);
            assert!(reference.is_err() || may_refuse(&error), "accepted, but not by us: {error}");
        }
    }
});

/// Spans lie end to end from the first byte of the data to its last, each as long as its tensor.
fn check_spans(header: &SafetensorsFileHeader) {
    let mut spans: Vec<_> =
        header.tensors().iter().map(|(_, tensor)| tensor.data_offsets).collect();
    spans.sort_unstable();
    let mut expected = 0;
    for (begin, end) in spans {
        assert_eq!(begin, expected);
        assert!(begin <= end);
        expected = end;
    }
    assert_eq!(header.data_length(), expected);
    for (name, tensor) in header.tensors() {
        assert_eq!(header.tensors().get(name).as_ref(), Some(&tensor));
        assert_eq!(tensor.byte_length(), tensor.data_offsets.1 - tensor.data_offsets.0);
        let bits = u128::from(tensor.byte_length()) * 8;
        match tensor.dtype.bits() {
            Some(width) => assert_eq!(elements(&tensor) * u128::from(width), bits),
            None => assert!(elements(&tensor) <= bits),
        }
    }
}

/// The product of the shape, in more bits than any that parses can need.
fn elements(tensor: &TensorInfo) -> u128 {
    if tensor.shape.contains(&0) {
        return 0;
    }
    let product =
        tensor.shape.iter().map(|&length| u128::from(length)).try_fold(1, u128::checked_mul);
    let product = product.expect("more elements than 128 bits count");
    assert_eq!(tensor.elements().map(u128::from), Some(product));
    product
}

/// The count is what the tensors add up to, and its totals what its rows do.
fn check_counts(header: &SafetensorsFileHeader) {
    let mut counter = Counter::new();
    let counted = counter.add_file(&header).and_then(|()| counter.finish());
    let Ok((count, _)) = counted else { return };
    let tensors = || header.tensors().iter().map(|(_, tensor)| tensor);
    let scalars = || tensors().filter(|tensor| tensor.shape.is_empty()).count() as u128;
    let stored = tensors().map(|tensor| elements(&tensor)).sum::<u128>() - scalars();
    assert_eq!(u128::from(count.totals().elements), stored);
    assert_eq!(u128::from(count.totals().scalars), scalars());
    assert_eq!(count.totals().tensors, tensors().len() as u64);
    assert_eq!(count.totals().bytes, header.data_length());

    let sum = |part: fn(&DtypeCount) -> u64| count.rows().map(|(_, row)| part(row)).sum::<u64>();
    assert_eq!(sum(|row| row.parameters), count.total());
    assert_eq!(sum(|row| row.scalars), count.totals().scalars);
    assert_eq!(sum(|row| row.tensors), count.totals().tensors);
    assert_eq!(sum(|row| row.bytes), count.totals().bytes);
    assert_eq!(count.iter().map(|(_, parameters)| parameters).sum::<u64>(), count.total());
    for (dtype, row) in count.rows() {
        assert_eq!(count.get(dtype), row.parameters);
        let of_dtype = tensors().filter(|tensor| tensor.dtype == *dtype);
        assert_eq!(of_dtype.map(|tensor| tensor.byte_length()).sum::<u64>(), row.bytes);
    }
}

fn check_sizes(header: &SafetensorsFileHeader, json: &[u8]) {
    assert_eq!(header.length(), json.len() as u64);
    let before = PREFIX_LENGTH + header.length();
    assert_eq!(header.file_size(), before.saturating_add(header.data_length()));
    assert_eq!(header.check_file_size(header.file_size()), Ok(()));
    let error = header.check_file_size(0).expect_err("no header is that short");
    check_messages(&error);
    let declared = header.metadata().and_then(|metadata| metadata.get("total_parameters"));
    assert_eq!(header.declared_total(), declared.and_then(|total| total.parse().ok()));
}

/// A reparsed header equals the original, except for its length: whitespace and unknown fields add to it.
fn check_round_trip(header: &SafetensorsFileHeader) {
    let written = serde_json::to_vec(header).expect("a header can be written");
    let again = SafetensorsFileHeader::from_json(&written).expect("what was written can be read");
    assert!(again.tensors().iter().eq(header.tensors()));
    assert_eq!(again.metadata(), header.metadata());
    assert_eq!(again.data_length(), header.data_length());
    let rewritten = serde_json::to_vec(&again).expect("a header can be written");
    assert!(rewritten == written, "the second writing differs from the first");
}

/// The `safetensors` crate found the same tensors.
fn check_same(header: &SafetensorsFileHeader, reference: &Metadata) {
    let theirs = reference.tensors();
    assert_eq!(theirs.len(), header.tensors().len());
    for (name, tensor) in header.tensors() {
        let their = theirs[name];
        assert_eq!(tensor.dtype.as_str(), their.dtype.to_string());
        assert!(tensor.shape.iter().copied().eq(their.shape.iter().map(|&length| length as u64)));
        let (begin, end) = their.data_offsets;
        assert_eq!(tensor.data_offsets, (begin as u64, end as u64));
    }
    assert_eq!(reference.data_len() as u64, header.data_length());
    let theirs = reference.metadata().as_ref();
    assert_eq!(theirs.map(HashMap::len), header.metadata().map(BTreeMap::len));
    for (key, value) in header.metadata().into_iter().flatten() {
        assert_eq!(theirs.and_then(|pairs| pairs.get(key)), Some(value));
    }
}

/// Returns whether a header contains something that only the `safetensors` crate refuses: an
/// unknown dtype, a shape that overflows before its 0, or a field that no value can be made of.
fn may_be_refused(header: &SafetensorsFileHeader, json: &[u8]) -> bool {
    let is_unknown = |dtype: &Dtype| {
        dtype.bits().is_none() || matches!(dtype, Dtype::FP4 | Dtype::E8M0 | Dtype::UE8)
    };
    let product = |shape: &[u64]| shape.iter().copied().try_fold(1, u64::checked_mul);
    header
        .tensors()
        .iter()
        .any(|(_, tensor)| is_unknown(&tensor.dtype) || product(&tensor.shape).is_none())
        || serde_json::from_slice::<serde_json::Value>(json).is_err()
}

/// Returns whether an error is one that only we report, and not the `safetensors` crate: a name or
/// a metadata key that occurs twice, an array for an entry, an object for a dtype, or a count that leaves
/// 64 bits.
fn may_refuse(error: &HeaderError) -> bool {
    let has = |part: &str| error.message.contains(part);
    match error.kind {
        HeaderErrorKind::DuplicateTensor | HeaderErrorKind::Overflow => true,
        HeaderErrorKind::InvalidJson => has("appears twice"),
        HeaderErrorKind::InvalidEntry => has(", found an array") || has(", found an object"),
        _ => false,
    }
}
