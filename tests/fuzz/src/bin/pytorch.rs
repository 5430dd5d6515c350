//! `PyTorch` checkpoints: any bytes, in pieces of any length, give the same header or an error; and no header describes
//! more data than the file contains.

#![no_main]

use hf_meta_format::formats::pytorch::PyTorch;
use hf_meta_format::formats::{FileHeader, Format, HeaderError, Step};
use hf_meta_fuzz::check_messages;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let size = Some(file.len() as u64);
    let whole = parse(file, size, usize::MAX);
    // At most 17 pieces, because the pickle is interpreted again after each of them.
    let pieces = parse(file, size, file.len() / (file.len() % 15 + 2) + 1);
    match (&whole, &pieces) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        (Err(whole), Err(pieces)) => {
            check_messages(whole);
            check_messages(pieces);
        }
        _ => panic!("{whole:?} or in pieces {pieces:?}"),
    }
    if let Ok(header) = &whole {
        check(header, file.len() as u64);
    }
    // A file of unknown size.
    let _ = parse(file, None, usize::MAX);
});

fn parse(file: &[u8], size: Option<u64>, most: usize) -> Result<FileHeader, HeaderError> {
    let mut parser = PyTorch.parser(&"model.bin".parse().expect("a path"), 1 << 24);
    let mut range = parser.first_range();
    loop {
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
        let (start, end) = (at(range.start), at(range.end));
        let bytes = file[start..end.min(start.saturating_add(most))].to_vec();
        match parser.advance(range.start, bytes, size)? {
            Step::Read(next) => {
                assert!(next.start < next.end && next != range);
                range = next;
            }
            Step::Done(header) => return Ok(header),
        }
    }
}

/// Each stored element is in one tensor, and each alias names a stored tensor.
fn check(header: &FileHeader, file_size: u64) {
    assert_eq!(header.file_size(), file_size);
    let mut end = 0;
    for (_, tensor) in header.tensors() {
        assert_eq!(tensor.data_offsets.0, end);
        end = tensor.data_offsets.1;
    }
    assert_eq!(header.data_length(), end);
    let pickle = header.pickle.as_deref().expect("a pickle");
    for alias in pickle.aliases() {
        assert!(header.tensors().get(&alias.name).is_none(), "{}", alias.name);
    }
}
