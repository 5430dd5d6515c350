//! The format of a file according to its content, which decides: names may be wrong, or come from old habits.

use super::buffer::{DETECTION_BYTES, FileParts, PartsParser, Stop};
use super::{
    DetectedFormat, FileHeader, Format, HeaderParser, RepoPath, WeightFileName, gguf, pytorch,
    safetensors,
};

/// A format whose files are recognized by their first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileContent {
    Safetensors,
    Gguf,
    PyTorch,
}

impl FileContent {
    /// Returns the format of a file; `None` if its first bytes do not show it.
    fn recognize(file: &FileParts) -> Option<Self> {
        let start = file.detection_bytes().ok()?;
        let length = start.first_chunk().map(|prefix| u64::from_le_bytes(*prefix))?;
        match DetectedFormat::recognize(start) {
            Some(DetectedFormat::Gguf) => return Some(Self::Gguf),
            Some(DetectedFormat::Zip) => return Some(Self::PyTorch),
            // The length of a header may begin with the bytes of a pickle: 640 is `80 02`. As a length, the first eight
            // bytes of a pickle are larger than any limit.
            Some(DetectedFormat::Pickle) if length > file.limit => return Some(Self::PyTorch),
            Some(DetectedFormat::Pickle) | None => {}
            Some(_) => return None,
        }
        // The length of the header, and a JSON object.
        let object = file.get(DETECTION_BYTES..DETECTION_BYTES + 2).ok()?;
        let is_object = object.starts_with(b"{\"") || object == b"{}";
        (is_object && (2..=file.limit).contains(&length)).then_some(Self::Safetensors)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Safetensors => safetensors::Safetensors.name(),
            Self::Gguf => gguf::Gguf.name(),
            Self::PyTorch => pytorch::PyTorch.name(),
        }
    }
}

/// Parses the header of a file in the format of its content, or else in the format of its name.
fn parse(file: &FileParts, named: FileContent) -> Result<FileHeader, Stop> {
    // The first bytes are missing until the first range has arrived.
    file.detection_bytes()?;
    let found = FileContent::recognize(file).unwrap_or(named);
    let mut header = match found {
        FileContent::Safetensors => safetensors::parse(file),
        FileContent::Gguf => gguf::parse(file),
        FileContent::PyTorch => pytorch::parse(file),
    }?;
    header.misnamed = (found != named).then(|| found.name());
    Ok(header)
}

/// A built-in format, whose files are parsed according to their content. The format decides what a name means.
#[derive(Debug)]
pub(super) struct ByContent<F>(pub(super) F, pub(super) FileContent);

impl<F: Format> Format for ByContent<F> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn title(&self) -> &'static str {
        self.0.title()
    }

    fn extension(&self) -> &'static str {
        self.0.extension()
    }

    fn match_extension(&self, path: &str) -> Option<&'static str> {
        self.0.match_extension(path)
    }

    fn parser(&self, path: &RepoPath, max_header_bytes: u64) -> Box<dyn HeaderParser> {
        let first_range = self.0.parser(path, max_header_bytes).first_range().end;
        PartsParser::boxed(
            first_range,
            max_header_bytes,
            match self.1 {
                FileContent::Safetensors => |file| parse(file, FileContent::Safetensors),
                FileContent::Gguf => |file| parse(file, FileContent::Gguf),
                FileContent::PyTorch => |file| parse(file, FileContent::PyTorch),
            },
        )
    }

    fn split_name(&self, stem: &str) -> Option<WeightFileName> {
        self.0.split_name(stem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::{Formats, HeaderError, read_header};

    fn read(path: &str, file: &[u8]) -> Result<FileHeader, HeaderError> {
        let path: RepoPath = path.parse().unwrap();
        let parser = Formats::built_in().find_or_safetensors(&path).parser(&path, 1 << 20);
        read_header(parser, Some(file.len() as u64), |range| {
            let [start, end] = [range.start, range.end].map(|at| at.min(file.len() as u64));
            let [start, end] = [start, end].map(|at| usize::try_from(at).unwrap());
            Ok(file[start..end].to_vec())
        })
    }

    #[test]
    fn the_content_decides_the_format() {
        let json = br#"{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}"#;
        let safetensors = [&(json.len() as u64).to_le_bytes()[..], json, b"ab"].concat();
        // No keys, and one tensor of two bytes.
        let counts = [1_u64, 0].map(u64::to_le_bytes).concat();
        let name = [&1_u64.to_le_bytes()[..], b"w"].concat();
        let entry =
            [&1_u32.to_le_bytes()[..], &2_u64.to_le_bytes(), &24_u32.to_le_bytes()].concat();
        let mut gguf = [b"GGUF\x03\0\0\0", &counts[..], &name, &entry, &[0; 8]].concat();
        gguf.resize(gguf.len().next_multiple_of(32) + 2, 0);
        for (path, file, misnamed) in [
            ("model.safetensors", &safetensors, None),
            ("pytorch_model.bin", &safetensors, Some("safetensors")),
            ("model.gguf", &safetensors, Some("safetensors")),
            ("model", &safetensors, None),
            ("model.weights", &gguf, Some("gguf")),
            ("model.gguf", &gguf, None),
            ("model.bin", &gguf, Some("gguf")),
            ("model.safetensors", &gguf, Some("gguf")),
        ] {
            let header = read(path, file).unwrap();
            assert_eq!((header.tensors().len(), header.misnamed), (1, misnamed), "{path}");
        }
        // The length of this header, 640, begins like a pickle of version 2.
        let long =
            [&640_u64.to_le_bytes()[..], json, &vec![b' '; 640 - json.len()], b"ab"].concat();
        for path in ["model.safetensors", "model.bin"] {
            assert_eq!(read(path, &long).unwrap().tensors().len(), 1, "{path}");
        }
        let error = read("model.safetensors", b"PK\x03\x04 and more").unwrap_err();
        assert!(error.message.contains("ZIP archive is malformed"), "{error}");
    }
}
