//! The implementation of [`Format`] for GGUF.

use super::file_name;
use super::parser::GgufParser;
use crate::formats::weight_sets::NumberedName;
use crate::formats::{Format, HeaderParser, RepoPath, WeightFileName};

/// The GGUF format.
#[derive(Clone, Copy, Debug)]
pub struct Gguf;

/// The length of the first range of a file, in bytes. Headers with the smallest vocabularies in use, 32,000 tokens,
/// have about 0.7 MB. The next larger vocabularies give headers of 2 to 12 MB, and a range of that size would delay
/// all other files: at 100 Mbit/s, 1 MB takes as long as the two round trips of a second range at 40 ms.
const FIRST_RANGE: u64 = 1 << 20;

/// The length of the first range for all but the first file of a split model, in bytes. Only the first file contains
/// the vocabulary.
const LATER_FILE: u64 = 64 << 10;

impl Format for Gguf {
    fn name(&self) -> &'static str {
        "gguf"
    }

    fn title(&self) -> &'static str {
        "GGUF"
    }

    fn extension(&self) -> &'static str {
        ".gguf"
    }

    fn parser(&self, path: &RepoPath, max_header_bytes: u64) -> Box<dyn HeaderParser> {
        let number = |name: NumberedName<'_>| name.number.parse::<u64>().ok();
        let is_later = NumberedName::split(path.as_str()).filter_map(number).any(|file| file > 1);
        let first_range = if is_later { LATER_FILE } else { FIRST_RANGE };
        Box::new(GgufParser::new(first_range, max_header_bytes))
    }

    fn split_name(&self, stem: &str) -> WeightFileName {
        file_name::split(stem)
    }
}
