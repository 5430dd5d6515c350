//! An own reader: the parameters of any file that can be read and sought, without the client.

use std::io::{Read, Seek, SeekFrom};

use hf_meta::count::Counter;
use hf_meta::formats::safetensors::Safetensors;
use hf_meta::formats::{Format, Step};

use super::object_store::Result;

/// Counts the parameters of a file that is not quantized, and reads nothing but its header.
pub(crate) fn count(file: &mut (impl Read + Seek)) -> Result<u64> {
    let size = file.seek(SeekFrom::End(0))?;
    let mut parser = Safetensors.parser(&"model.safetensors".parse()?, 100_000_000);
    let mut range = parser.first_range();
    let header = loop {
        file.seek(SeekFrom::Start(range.start))?;
        let mut bytes = Vec::new();
        file.by_ref().take(range.end - range.start).read_to_end(&mut bytes)?;
        match parser.advance(range.start, bytes, Some(size))? {
            Step::Read(next) => range = next,
            Step::Done(header) => break header,
        }
    };
    let mut counter = Counter::new();
    counter.add_file(&header)?;
    let (count, _) = counter.finish()?;
    Ok(count.total())
}
