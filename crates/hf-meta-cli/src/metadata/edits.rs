//! The edits that the arguments of the command describe.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use hf_meta::Weights;
use hf_meta_format::formats::safetensors::{MAX_METADATA_VALUE, MetadataEdit};
use hf_meta_format::metadata::Thumbnail;

use crate::exit::{CommandError, CommandResult, failed_to};

/// The key of the thumbnail in the SAI Model Spec.
const THUMBNAIL: &str = "modelspec.thumbnail";

/// Keys that describe the data of a file. `sshs_…` are the hashes of kohya-ss/sd-scripts (`library/train_util.py`,
/// `precalculate_safetensors_hashes`).
const KEYS_OF_DATA: [&str; 4] =
    ["format", "modelspec.hash_sha256", "sshs_legacy_hash", "sshs_model_hash"];

/// Parses `KEY=VALUE` arguments.
pub(super) fn of_entries(entries: &[String]) -> CommandResult<Vec<MetadataEdit>> {
    let parse = |entry: &String| {
        let Some((key, value)) = entry.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(CommandError::usage(format!("`{entry}` is not `KEY=VALUE`")));
        };
        let value = match value.strip_prefix('@') {
            None => value.to_owned(),
            Some(text) if text.starts_with('@') => text.to_owned(),
            Some(file) => read_value(key, file)?,
        };
        Ok(MetadataEdit::Set { key: key.to_owned(), value })
    };
    entries.iter().map(parse).collect()
}

/// Reads a value from a file. An image for the thumbnail becomes a data URL.
fn read_value(key: &str, file: &str) -> CommandResult<String> {
    let mut bytes = Vec::new();
    // One byte more than an edit accepts.
    let limit = MAX_METADATA_VALUE as u64 + 1;
    let read = File::open(file).and_then(|open| open.take(limit).read_to_end(&mut bytes));
    read.map_err(failed_to(format!("read `{file}`")))?;
    if bytes.len() > MAX_METADATA_VALUE {
        let message = format!("`{file}` has more than {MAX_METADATA_VALUE} bytes");
        return Err(CommandError::usage(message));
    }
    if key == THUMBNAIL
        && let Some(url) = Thumbnail::data_url(&bytes)
    {
        return Ok(url);
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        let kind = if key == THUMBNAIL { "an image (PNG, JPEG, WebP, GIF) or" } else { "" };
        let message = format!("`{file}` is not {kind} UTF-8 text").replace("  ", " ");
        CommandError::usage(message)
    })?;
    if key == THUMBNAIL && Thumbnail::parse(&text).is_err() {
        let message =
            format!("`{file}` is not an image (PNG, JPEG, WebP, GIF) or a data URL of one");
        return Err(CommandError::usage(message));
    }
    Ok(text)
}

/// Returns the edits that delete keys. The order matters: `--all` keeps `format`, unless it is a key, too.
pub(super) fn of_keys(keys: &[String], all: bool) -> Vec<MetadataEdit> {
    let all = all.then_some(MetadataEdit::DeleteAll);
    all.into_iter().chain(keys.iter().cloned().map(MetadataEdit::Delete)).collect()
}

/// Returns the edits that copy metadata: all keys with the same value in all files that have them.
pub(super) fn of_weights(weights: &Weights) -> Vec<MetadataEdit> {
    let mut entries = BTreeMap::<&str, Option<&str>>::new();
    for (_, header) in weights.files() {
        for (key, value) in header.metadata().into_iter().flatten() {
            let entry = entries.entry(key).or_insert(Some(value));
            *entry = entry.filter(|known| known == value);
        }
    }
    entries.retain(|key, _| !KEYS_OF_DATA.contains(key));
    let set = |(key, value): (&str, Option<&str>)| {
        Some(MetadataEdit::Set { key: key.to_owned(), value: value?.to_owned() })
    };
    entries.into_iter().filter_map(set).collect()
}
