//! The deliberate differences from the `safetensors` crate.

use std::collections::HashSet;

use hf_meta_format::formats::safetensors::{HeaderError, HeaderErrorKind};

use super::reading::{Entry, Reading};
use super::tree::reference_knows;

/// One way in which our verdict differs from that of the `safetensors` crate.
#[derive(Debug)]
pub(super) struct Allowed {
    pub(super) what: &'static str,
    pub(super) reason: &'static str,
    /// Headers on which the verdicts differ only for this reason.
    pub(super) examples: &'static [&'static str],
    /// Returns whether a header contains the cause of the difference.
    pub(super) present: fn(&Reading) -> bool,
    /// Returns whether our error is this one; `None` if the `safetensors` crate refuses and we accept.
    pub(super) refusal: Option<fn(&HeaderError) -> bool>,
}

pub(super) const ALLOWED: [Allowed; 7] = [
    Allowed {
        what: "a dtype that the crate does not know is accepted",
        reason: "a new dtype must not make a repo unreadable",
        examples: &[
            r#"{"x":{"dtype":"NEW3","shape":[5],"data_offsets":[0,2]}}"#,
            r#"{"x":{"dtype":"E8M0","shape":[5],"data_offsets":[0,5]}}"#,
            r#"{"x":{"dtype":"FP4","shape":[6],"data_offsets":[0,3]}}"#,
        ],
        present: |header| any(header, |entry| !reference_knows(&entry.dtype)),
        refusal: None,
    },
    Allowed {
        what: "a shape with a 0 in it does not overflow",
        reason: "the crate takes `[0, n, n]` and refuses `[n, n, 0]`, which is the same number",
        examples: &[
            r#"{"x":{"dtype":"U8","shape":[18446744073709551615,2,0],"data_offsets":[0,0]}}"#,
            r#"{"x":{"dtype":"F4","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}}"#,
        ],
        present: |header| any(header, Entry::overflows_before_zero),
        refusal: None,
    },
    Allowed {
        what: "a field that the format does not know is skipped",
        reason: "the crate makes a value of it first, and so refuses numbers past a float, escapes \
                 of half a character and nesting past its parser's limit, where nobody looks",
        examples: &[
            r#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"extra":1e999}}"#,
            r#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"extra":"\ud800"}}"#,
        ],
        present: |header| header.unreadable_extra,
        refusal: None,
    },
    Allowed {
        what: "a name that occurs twice is refused",
        reason: "the crate keeps the last and forgets the other, so that one is not counted",
        examples: &[
            r#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#,
            r#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[7,9]},"\u0078":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#,
        ],
        present: |header| repeats(header.tensors.iter().map(|(name, _)| name)),
        refusal: Some(|error| error.kind == HeaderErrorKind::DuplicateTensor),
    },
    Allowed {
        what: "a key of `__metadata__` that occurs twice is refused",
        reason: "the crate keeps the last, others the first: readers would see different files",
        examples: &[r#"{"__metadata__":{"a":"1","a":"2"}}"#],
        present: |header| repeats(header.metadata.iter().flatten().map(|(key, _)| key)),
        refusal: Some(|error| json_error(error, "appears twice")),
    },
    Allowed {
        what: "an entry that is an array is refused",
        reason: "the format knows objects only; the crate's derived code takes the fields in order",
        examples: &[r#"{"x":["U8",[1],[0,1]]}"#],
        present: |header| any(header, |entry| entry.is_array),
        refusal: Some(|error| entry_error(error, "found an array")),
    },
    Allowed {
        what: "a dtype that is an object is refused",
        reason: "the format knows names only; the crate's derived code takes a variant of an enum",
        examples: &[r#"{"x":{"dtype":{"U8":null},"shape":[1],"data_offsets":[0,1]}}"#],
        present: |header| any(header, |entry| entry.dtype_is_object),
        refusal: Some(|error| entry_error(error, "found an object")),
    },
];

fn any(header: &Reading, test: impl Fn(&Entry) -> bool) -> bool {
    header.tensors.iter().any(|(_, entry)| test(entry))
}

fn repeats<'a>(mut names: impl Iterator<Item = &'a String>) -> bool {
    let mut seen = HashSet::new();
    !names.all(|name| seen.insert(name))
}

fn json_error(error: &HeaderError, part: &str) -> bool {
    error.kind == HeaderErrorKind::InvalidJson && error.message.contains(part)
}

fn entry_error(error: &HeaderError, part: &str) -> bool {
    error.kind == HeaderErrorKind::InvalidEntry && error.message.contains(part)
}
