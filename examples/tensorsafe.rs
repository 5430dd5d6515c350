//! A custom format: magic bytes, the data, the metadata, and its length at the very end, so that a writer needs one
//! pass. `cargo run --example tensorsafe -- ./x.tensorsafe [URL]...` writes the file, and reads each source in three
//! ranges.

use std::{collections::BTreeMap, io, io::Write, ops::Range};

use hf_meta::{Client, RepoPath, Source, TensorInfo, Tree};
use hf_meta_format::formats::{
    FileHeader, Format, HeaderError, HeaderErrorKind, HeaderParser, Step, TensorTableBuilder,
};

/// Magic bytes and version.
const START: &[u8; 8] = b"TSAFE\0\0\x01";
/// Tensors by name: dtype, shape, and the offsets of the data in the file.
type Metadata = BTreeMap<String, (String, Vec<u64>, (u64, u64))>;
/// Writes tensors of bytes in one pass.
pub(crate) fn write(out: &mut impl Write, tensors: &[(&str, &[u8])]) -> io::Result<()> {
    let (mut metadata, mut at) = (Metadata::new(), 8);
    out.write_all(START)?;
    for (name, data) in tensors {
        let (begin, length) = (at, data.len() as u64);
        out.write_all(data)?;
        at += length;
        metadata.insert((*name).to_owned(), ("U8".to_owned(), vec![length], (begin, at)));
    }
    let metadata = serde_json::to_vec(&metadata)?;
    out.write_all(&metadata)?;
    out.write_all(&(metadata.len() as u64).to_le_bytes())
}

/// The format.
#[derive(Debug)]
pub(crate) struct Tensorsafe;
impl Format for Tensorsafe {
    fn name(&self) -> &'static str {
        "tensorsafe"
    }
    fn extension(&self) -> &'static str {
        ".tensorsafe"
    }
    fn parser(&self, _path: &RepoPath, limit: u64) -> Box<dyn HeaderParser> {
        Box::new(Parser { limit, wanted: 0..8 })
    }
}
/// A parser of one header, with the range that it waits for.
struct Parser {
    limit: u64,
    wanted: Range<u64>,
}
impl HeaderParser for Parser {
    fn first_range(&self) -> Range<u64> {
        0..8
    }
    fn advance(&mut self, at: u64, read: Vec<u8>, size: Option<u64>) -> Result<Step, HeaderError> {
        let (size, Range { start, end }) = (size.unwrap_or_default(), self.wanted.clone());
        let index = |offset: u64| usize::try_from(offset.checked_sub(at)?).ok();
        let bytes = index(start).and_then(|start| read.get(start..index(end)?));
        let Some(bytes) = bytes else {
            let is_inside = end <= size && at != start;
            let missing = is_inside.then_some(Step::Read(start..end));
            return missing.ok_or_else(|| error("the file is too short"));
        };
        self.wanted = if start == 0 && bytes == START && size >= 16 {
            size - 8..size
        } else if start > 0 && end == size {
            let length = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
            if length > self.limit {
                return Err(HeaderError::new(
                    HeaderErrorKind::TooLarge,
                    "the metadata is too long",
                ));
            }
            let begin = start.checked_sub(length).filter(|at| *at >= 8);
            begin.ok_or_else(|| error("the metadata does not fit into the file"))?..start
        } else if start > 0 {
            return header(bytes, start..end, size).map(Step::Done);
        } else {
            return Err(error("it does not begin like a tensorsafe file"));
        };
        Ok(Step::Read(self.wanted.clone()))
    }
}

fn header(metadata: &[u8], range: Range<u64>, size: u64) -> Result<FileHeader, HeaderError> {
    let (metadata, data_length) = (serde_json::from_slice::<Metadata>(metadata), range.start - 8);
    let mut table = TensorTableBuilder::new();
    for (name, (dtype, shape, (begin, end))) in metadata.map_err(|e| error(&e.to_string()))? {
        let offsets = (begin.saturating_sub(8), end.saturating_sub(8));
        table.push(&name, &TensorInfo::new(dtype.as_str().into(), shape, offsets));
    }
    let header = FileHeader::new(table.finish()?, range).with_file_size(size);
    let is_whole = header.data_length() == data_length;
    is_whole.then_some(header).ok_or_else(|| error("the data does not end at the metadata"))
}

fn error(message: &str) -> HeaderError {
    HeaderError::new(HeaderErrorKind::Other, message)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sources: Vec<_> = std::env::args().skip(1).collect();
    let mut file = std::fs::File::create(sources.first().ok_or("name a file to write")?)?;
    write(&mut file, &[("h.0.w", &[1; 8]), ("h.1.w", &[2; 8])])?;
    let client = Client::builder().format(Tensorsafe).build()?;
    for source in sources {
        let model = client.source(Source::parse(&source, client.endpoint())?);
        let (weights, is_valid) = (model.inspect().await?, model.verify().await?.is_valid());
        let parameters = weights.report().parameter_count.total();
        writeln!(io::stdout(), "{parameters}, valid: {is_valid}, {:?}", Tree::new(&weights))?;
    }
    Ok(())
}
