//! Hostile input, and input of another kind.

use std::error::Error;

use hf_meta::{
    CommitSha, Endpoint, RepoId, RepoPath, Revision, SafetensorsFileHeader, SafetensorsIndexJson,
    Source,
};
use hf_meta_format::formats::safetensors::{DEFAULT_HEADER_LIMIT, header_range};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::json;

use super::{config, shard_name, stays_inside};

/// The longest error message, in characters.
const MAX_MESSAGE_CHARS: usize = 2_000;

/// Parts of headers, indexes, addresses and paths, valid and invalid.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u0000",
    "\\ud83d\\ude00",
    " ",
    "\n",
    "\0",
    "null",
    "-",
    "0",
    "1",
    "2.5e9",
    "1e999",
    "18446744073709551616",
    "\"__metadata__\":",
    "\"weight_map\":",
    "\"metadata\":{\"total_size\":",
    "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}",
    "\"dtype\":\"F32\"",
    "\"shape\":[0]",
    "\"data_offsets\":[0,0]",
    "\"w\":\"a.safetensors\"",
    "<<<<<<< ",
    "version https://git-lfs",
    "<!DOCTYPE",
    "hf://",
    "https://",
    "http://",
    "file://",
    "ftp://",
    "huggingface.co/",
    "hf.co",
    "[::1]:8080/",
    "user:pass@",
    "org",
    "name",
    "gpt2",
    "/",
    "//",
    "models/",
    "datasets/",
    "spaces/",
    "@",
    "main",
    "refs/pr/1",
    "refs%2Fpr%2F1",
    "/tree/",
    "/blob/",
    "/resolve/",
    "..",
    ".",
    "%2e%2e",
    "%",
    "%ff",
    "%00",
    "~",
    "~/",
    "C:",
    "\\\\x",
    "?q=1",
    "#f",
    ".safetensors",
    ".safetensors.index.json",
    "ü",
    "😀",
    "\u{2028}",
    "\u{85}",
    "--",
    "_",
];

/// Generates text of these parts, some of them repeated many times.
fn text() -> impl Strategy<Value = String> {
    let piece = || prop_oneof![8 => select(PIECES).prop_map(str::to_owned), 1 => any::<String>()];
    let times = prop_oneof![9 => Just(1), 1 => 1_usize..3_000];
    (vec(piece(), 0..12), any::<Index>(), times).prop_map(|(mut pieces, at, times)| {
        if !pieces.is_empty() {
            let repeated = at.get_mut(&mut pieces);
            *repeated = repeated.repeat(times);
        }
        pieces.concat()
    })
}

/// Generates text that starts like the JSON of a header or an index, with names of any length.
fn nearly_json() -> impl Strategy<Value = String> {
    const VALUES: &[&str] = &[
        "null",
        "\"../x\"",
        "\"x.bin\"",
        "{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,1]}",
        "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}",
    ];
    const STARTS: &[&str] = &["{", "{\"weight_map\":{", "{\"metadata\":{", "{\"__metadata__\":{"];
    let value = prop_oneof![select(VALUES).prop_map(str::to_owned), text()];
    (select(STARTS), text(), value, select(&["}", "}}", ""][..]))
        .prop_map(|(start, name, value, end)| format!("{start}{}:{value}{end}", json!(name)))
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => vec(any::<u8>(), 0..100),
        1 => text().prop_map(String::into_bytes),
        2 => nearly_json().prop_map(String::into_bytes),
    ]
}

/// Returns the errors of all parsers of files and responses.
fn refusals_of_bytes(bytes: &[u8], number: u64) -> impl Iterator<Item = Box<dyn Error>> {
    let errors: [Option<Box<dyn Error>>; 4] = [
        SafetensorsFileHeader::from_json(bytes).err().map(Into::into),
        SafetensorsIndexJson::from_json(bytes).err().map(Into::into),
        header_range(bytes, Some(number), DEFAULT_HEADER_LIMIT).err().map(Into::into),
        header_range(bytes, Some(u64::MAX), number).err().map(Into::into),
    ];
    errors.into_iter().flatten()
}

/// Returns the errors of all parsers of user input.
fn refusals_of_text(text: &str) -> impl Iterator<Item = Box<dyn Error>> {
    let mirror = Endpoint::parse("https://mirror.example/hub").unwrap();
    let errors: [Option<Box<dyn Error>>; 7] = [
        text.parse::<Source>().err().map(Into::into),
        Source::parse(text, &mirror).err().map(Into::into),
        text.parse::<RepoPath>().err().map(Into::into),
        text.parse::<RepoId>().err().map(Into::into),
        text.parse::<Revision>().err().map(Into::into),
        text.parse::<CommitSha>().err().map(Into::into),
        Endpoint::parse(text).err().map(Into::into),
    ];
    errors.into_iter().flatten()
}

/// Returns the messages of an error and of its causes.
fn messages(error: &dyn Error) -> Vec<String> {
    std::iter::successors(Some(error), |&error| error.source()).map(ToString::to_string).collect()
}

fn is_short(error: &dyn Error) -> bool {
    messages(error).iter().all(|message| message.chars().count() < MAX_MESSAGE_CHARS)
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn errors_about_bytes_are_short(bytes in bytes(), number: u64) {
        for error in refusals_of_bytes(&bytes, number) {
            prop_assert!(is_short(&*error), "{error}");
        }
    }

    #[test]
    fn errors_about_text_are_short(text in text()) {
        for error in refusals_of_text(&text) {
            prop_assert!(is_short(&*error), "{error}");
        }
    }

    #[test]
    fn parsed_text_displays_unchanged(text in prop_oneof![text(), shard_name()]) {
        if let Ok(path) = text.parse::<RepoPath>() {
            prop_assert_eq!(path.to_string(), text.clone());
            prop_assert!(stays_inside(path.as_str()));
        }
        if let Ok(repo) = text.parse::<RepoId>() {
            prop_assert_eq!(repo.to_string(), text.clone());
        }
        if let Ok(revision) = text.parse::<Revision>() {
            prop_assert_eq!(revision.to_string(), text);
        }
    }
}
