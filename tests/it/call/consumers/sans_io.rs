//! An own reader: the parameters of any file that can be read and sought, without the client.

use std::io::{Read, Seek, SeekFrom};

use hf_meta_count::count::Counter;
use hf_meta_format::formats::safetensors::Safetensors;
use hf_meta_format::formats::{Format, read_header};

use super::object_store::Result;

/// Counts the parameters of a file that is not quantized, and reads nothing but its header.
pub(crate) fn count(file: &mut (impl Read + Seek)) -> Result<u64> {
    let size = file.seek(SeekFrom::End(0))?;
    let parser = Safetensors.parser(&"model.safetensors".parse()?, 100_000_000);
    let header = read_header(parser, Some(size), |range| -> Result<_> {
        file.seek(SeekFrom::Start(range.start))?;
        let mut bytes = Vec::new();
        file.by_ref().take(range.end - range.start).read_to_end(&mut bytes)?;
        Ok(bytes)
    })?;
    let mut counter = Counter::new();
    counter.add_file(&header)?;
    let (count, _) = counter.finish()?;
    Ok(count.total())
}
