//! GGUF headers: any bytes, in pieces of any length, give the same header or an error; and a header is consistent.

#![no_main]

use hf_meta_count::count::Counter;
use hf_meta_format::formats::gguf::Gguf;
use hf_meta_format::formats::{FileHeader, Format, HeaderError, Step};
use hf_meta_fuzz::check_messages;
use libfuzzer_sys::fuzz_target;

/// The size of the data that is assumed to follow the bytes, in bytes.
const DATA: u64 = 1 << 30;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, file)) = bytes.split_first() else { return };
    let size = Some(file.len() as u64 + DATA);
    let whole = parse(file, size, usize::MAX);
    let pieces = parse(file, size, usize::from(first) + 1);
    match (&whole, &pieces) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        (Err(whole), Err(pieces)) => {
            check_messages(whole);
            check_messages(pieces);
        }
        _ => panic!("{whole:?} or in pieces {pieces:?}"),
    }
    if let Ok(header) = &whole {
        check_spans(header);
        check_counts(header);
    }
    // A file without data, and one of unknown size.
    let _ = parse(file, Some(file.len() as u64), usize::MAX);
    let _ = parse(file, None, usize::MAX);
});

fn parse(file: &[u8], size: Option<u64>, most: usize) -> Result<FileHeader, HeaderError> {
    let mut parser = Gguf.parser(&"model.gguf".parse().expect("a path"), 1 << 24);
    let mut range = parser.first_range();
    loop {
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
        let (start, end) = (at(range.start), at(range.end));
        let bytes = file[start..end.min(start.saturating_add(most))].to_vec();
        match parser.advance(range.start, bytes, size)? {
            Step::Read(next) => {
                assert!(next.start < next.end);
                assert!(next.start > range.start || next.end > range.end || most < file.len());
                range = next;
            }
            Step::Done(header) => return Ok(header),
        }
    }
}

/// Spans follow each other at multiples of the alignment, each as long as its tensor.
fn check_spans(header: &FileHeader) {
    let mut end = 0;
    for (name, tensor) in header.tensors() {
        assert!(tensor.data_offsets.0 >= end, "{name}");
        assert!((1..64).contains(&name.len()) && tensor.shape.len() <= 4);
        end = tensor.data_offsets.1;
        let elements = tensor.elements().expect("elements that were checked");
        if let Some(block) = tensor.dtype.block() {
            let bytes = u128::from(elements / block.elements) * u128::from(block.bytes);
            assert_eq!(bytes, u128::from(tensor.byte_length()), "{name}");
        }
    }
    assert_eq!(header.data_length(), end);
    assert!(header.file_size() >= header.header_range().end.saturating_add(end));
}

/// Each element is one parameter.
fn check_counts(header: &FileHeader) {
    let mut counter = Counter::new();
    let counted = counter.add_file(header).and_then(|()| counter.finish());
    let Ok((count, breakdown)) = counted else { return };
    assert!(breakdown.is_exact());
    assert_eq!(count.total(), count.totals().elements);
    let bytes: u64 = header.tensors().iter().map(|(_, tensor)| tensor.byte_length()).sum();
    assert_eq!(count.totals().bytes, bytes);
}
