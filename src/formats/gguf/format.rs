//! The implementation of [`Format`] for GGUF.

use super::file_name;
use super::parser::GgufParser;
use crate::formats::weight_sets::NumberedName;
use crate::formats::{Format, HeaderParser, NameParts, RepoPath};

/// The GGUF format.
#[derive(Clone, Copy, Debug)]
pub struct Gguf;

/// The first range of a file, in bytes. Of the headers of one file, those without a vocabulary are much shorter and those
/// with one are longer, so a larger range saves a request for few of them.
const FIRST_RANGE: u64 = 512 << 10;

/// The first range of a file of a split model after the first one, in bytes. The first one has the vocabulary.
const LATER_FILE: u64 = 64 << 10;

impl Format for Gguf {
    fn name(&self) -> &'static str {
        "gguf"
    }

    fn extension(&self) -> &'static str {
        ".gguf"
    }

    fn parser(&self, path: &RepoPath, header_limit: u64) -> Box<dyn HeaderParser> {
        let number = |name: NumberedName<'_>| name.number.parse::<u64>().ok();
        let is_later = NumberedName::split(path.as_str()).filter_map(number).any(|file| file > 1);
        let first_range = if is_later { LATER_FILE } else { FIRST_RANGE };
        Box::new(GgufParser::new(first_range, header_limit))
    }

    fn split_name(&self, stem: &str) -> NameParts {
        file_name::split(stem)
    }
}
