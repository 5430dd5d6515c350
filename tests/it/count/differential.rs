//! For generated and damaged headers, our verdict is equal to that of the `safetensors` crate, except for a
//! short list of deliberate differences.
//!
//! Each difference has a test that recognizes it in a header. It excuses a verdict only if both readers agree
//! on the header without the difference.

mod allowed;
mod damage;
mod reading;
mod tree;
mod verdict;

use std::cell::RefCell;
use std::collections::HashSet;

use hf_meta_format::formats::safetensors::HeaderErrorKind;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use self::allowed::{ALLOWED, Allowed};
use self::damage::{Change, Pick, bytes, changes, listing};
use self::reading::Reading;
use self::tree::{Fields, Header, Node};
use self::verdict::{Verdicts, whole};

const CASES: u32 = 8_000;

/// The number of error kinds of headers, and of error kinds of files.
const REFUSALS_OF_HEADERS: usize = 13;
const REFUSALS_OF_FILES: usize = REFUSALS_OF_HEADERS + 5;

/// A valid header, and the damage done to it.
#[derive(Clone, Debug)]
struct Case {
    header: Header,
    of_header: Vec<(Change<Fields>, Pick)>,
    of_text: Vec<(Change<Vec<u8>>, Pick)>,
    of_file: Vec<(Change<Vec<u8>>, Pick)>,
}

impl Case {
    fn any() -> impl Strategy<Value = Self> {
        let undamaged = || Just(Vec::new());
        let of_header = changes(listing::OF_HEADER, 2);
        let of_text = prop_oneof![2 => undamaged(), 1 => changes(bytes::OF_TEXT, 2)];
        let of_file = prop_oneof![2 => undamaged(), 1 => changes(bytes::OF_FILE, 1)];
        (tree::header(), of_header, of_text, of_file).prop_map(
            |(header, of_header, of_text, of_file)| Self { header, of_header, of_text, of_file },
        )
    }

    fn text(&self) -> Vec<u8> {
        let mut fields = self.header.fields.clone();
        apply(&self.of_header, &mut fields);
        let mut text = Node::Object(fields).to_string().into_bytes();
        apply(&self.of_text, &mut text);
        text
    }

    fn file(&self, text: &[u8]) -> Vec<u8> {
        let mut file = whole(text, &vec![0; self.header.data_length]);
        apply(&self.of_file, &mut file);
        file
    }
}

fn apply<T>(changes: &[(Change<T>, Pick)], to: &mut T) {
    for (change, pick) in changes {
        change(to, pick);
    }
}

/// The results of all cases, so that a run with few interesting cases fails.
#[derive(Debug, Default)]
struct Counter {
    accepted: u32,
    /// The kinds of our errors.
    refusals: HashSet<HeaderErrorKind>,
    /// Per allowed difference, the number of cases in which it alone made one reader accept and the other refuse.
    differed: [u32; ALLOWED.len()],
}

impl Counter {
    fn add(&mut self, verdicts: &Verdicts, differences: &[usize]) {
        self.accepted += u32::from(verdicts.ours.is_ok() && verdicts.reference.is_ok());
        self.refusals.extend(verdicts.ours.as_ref().err().map(|error| error.kind));
        if let [at] = *differences {
            let one_accepts = verdicts.ours.is_ok() != verdicts.reference.is_ok();
            self.differed[at] += u32::from(one_accepts);
        }
    }

    fn assert_enough(&self, kinds: usize) {
        assert!(self.accepted > CASES / 4, "{self:?}");
        assert!(self.refusals.len() >= kinds, "{self:?}");
    }

    /// Fails if a difference for which `could` is true never changed a verdict.
    fn assert_needed(&self, could: fn(&Allowed) -> bool) {
        for (allowed, met) in ALLOWED.iter().zip(self.differed) {
            let is_needed = met > 0 || !could(allowed);
            assert!(is_needed, "never met: {} ({})", allowed.what, allowed.reason);
        }
    }
}

fn differences_of_header(json: &[u8]) -> Result<(Verdicts, Vec<usize>), String> {
    let verdicts = Verdicts::of_header(json);
    let differences = verdicts.differences(json, Verdicts::of_header)?;
    Ok((verdicts, differences))
}

fn differences_of_file(file: &[u8]) -> Result<(Verdicts, Vec<usize>), String> {
    let verdicts = Verdicts::of_file(file);
    let (header, data) = split_file(file);
    let differences =
        verdicts.differences(header, |header| Verdicts::of_file(&whole(header, data)))?;
    Ok((verdicts, differences))
}

/// Returns the header and the data of a file; both are empty if the length of the header is invalid.
fn split_file(file: &[u8]) -> (&[u8], &[u8]) {
    let parts = file.split_first_chunk().and_then(|(prefix, rest)| {
        rest.split_at_checked(u64::from_le_bytes(*prefix).try_into().ok()?)
    });
    parts.unwrap_or_default()
}

/// Returns whether the size of the file fits in 64 bits: the reference adds it without checks.
fn can_be_read_whole(header: &[u8]) -> bool {
    let end = Reading::parse(header).map_or(0, |header| header.data_end());
    end.checked_add(1 << 32).is_some()
}

/// Returns whether a file can be generated that is valid except for this difference.
fn fits_in_memory(allowed: &Allowed) -> bool {
    let fits = |json: &&str| Reading::parse(json.as_bytes()).unwrap().data_end() < 1 << 20;
    allowed.examples.iter().any(fits)
}

fn check(case: &Case, headers: &mut Counter, files: &mut Counter) -> Result<(), String> {
    let text = case.text();
    let shown = || String::from_utf8_lossy(&text);
    let (verdicts, differences) =
        differences_of_header(&text).map_err(|error| format!("header {}: {error}", shown()))?;
    headers.add(&verdicts, &differences);
    let file = case.file(&text);
    if can_be_read_whole(split_file(&file).0) {
        let (verdicts, differences) = differences_of_file(&file)
            .map_err(|error| format!("file of header {}: {error}", shown()))?;
        files.add(&verdicts, &differences);
    }
    Ok(())
}

#[test]
fn verdicts_differ_only_by_the_allowed_differences() {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::XorShift);
    let tallies = RefCell::new((Counter::default(), Counter::default()));
    let found = TestRunner::new_with_rng(config, rng).run(&Case::any(), |case| {
        let (headers, files) = &mut *tallies.borrow_mut();
        check(&case, headers, files).map_err(TestCaseError::fail)
    });
    assert!(found.is_ok(), "{}", found.unwrap_err());
    let (headers, files) = tallies.into_inner();
    headers.assert_enough(REFUSALS_OF_HEADERS);
    files.assert_enough(REFUSALS_OF_FILES);
    headers.assert_needed(|_| true);
    files.assert_needed(fits_in_memory);
}

#[test]
fn each_allowed_difference_has_an_example() {
    for (at, allowed) in ALLOWED.iter().enumerate() {
        for header in allowed.examples {
            let (verdicts, differences) = differences_of_header(header.as_bytes()).unwrap();
            assert_eq!(differences, [at], "{header}: {}", allowed.what);
            assert_eq!(
                verdicts.ours.is_err(),
                allowed.refusal.is_some(),
                "{header}: {}",
                allowed.what
            );
        }
    }
}
