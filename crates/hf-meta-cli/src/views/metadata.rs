//! `--metadata`: the metadata of the index and the files.

use std::collections::BTreeMap;
use std::io::{self, Write};

use hf_meta::formats::FileHeader;
use hf_meta::report::text::escape;
use hf_meta::{RepoPath, SafetensorsParseFromRepo, Weights};

use super::heading;
use crate::style::DIM;

/// Writes the metadata of the index, then each distinct entry of the files.
pub(crate) fn write(out: &mut impl Write, weights: &Weights) -> io::Result<()> {
    heading(out, &weights.report().source)?;
    if let Weights::Safetensors(SafetensorsParseFromRepo::Sharded(shards)) = weights {
        for (key, value) in shards.index.metadata().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            writeln!(out, "{} = {}", escape(key), escape(&value))?;
        }
    }
    let files = weights.files().count();
    for ((key, value), paths) in paths_by_entry(weights.files()) {
        write!(out, "{} = {}", escape(key), escape(value))?;
        if paths.len() < files {
            write!(out, "  {DIM}({}){DIM:#}", escape(&paths.join(", ")))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Returns each key and value with the paths of the files that contain it.
fn paths_by_entry<'a>(
    files: impl Iterator<Item = (RepoPath, &'a FileHeader)>,
) -> BTreeMap<(&'a str, &'a str), Vec<String>> {
    let mut entries = BTreeMap::<_, Vec<String>>::new();
    for (path, header) in files {
        for (key, value) in header.metadata().into_iter().flatten() {
            entries.entry((key.as_str(), value.as_str())).or_default().push(path.to_string());
        }
    }
    entries
}
