//! The view `--metadata`: the metadata of the index and of each file, in groups.
//!
//! The texts come from strangers and can have megabytes. On a terminal, long values are shortened to a line, and a
//! thumbnail is described; a pipe receives everything.

use std::collections::BTreeMap;
use std::io;

use hf_meta::Weights;
use hf_meta_count::results::metadata::index_metadata;
use hf_meta_count::results::text::{bytes, counted, escape, thousands};
use hf_meta_format::metadata::{
    MAIN_TRAINING_KEYS, MODEL_SPEC_FIELDS, MODEL_SPEC_PREFIX, ModelSpec, TAG_FREQUENCY,
    TRAINING_PREFIX, TagFrequencies, Thumbnail,
};

use crate::output::{Page, joined, shortened};
use crate::table::{Shrink, Table};
use crate::terminal::{BOLD, DIM, YELLOW, width};

/// The maximum number of entries per group on a terminal. A header can have 100,000.
const MAX_ENTRIES: usize = 200;

/// The maximum number of tags in the table.
const MAX_TAGS: usize = 20;

/// The maximum number of files to name next to an entry that other files do not have.
const MAX_FILES: usize = 3;

/// The minimum useful width of the column of tags.
const MIN_TAG_WIDTH: usize = 16;

/// The key of the thumbnail.
const THUMBNAIL: &str = "modelspec.thumbnail";

/// An entry of the metadata, with the files that contain it.
struct MetadataEntry<'a> {
    key: &'a str,
    value: &'a str,
    files: Vec<String>,
}

/// The entries with the same purpose.
struct MetadataGroup<'a> {
    heading: &'static str,
    entries: Vec<MetadataEntry<'a>>,
}

/// Writes the metadata of the index, then each distinct entry of the files. Values are not shortened if `is_full`.
pub(crate) fn write(page: &mut Page<'_>, weights: &Weights, is_full: bool) -> io::Result<()> {
    page.heading(&weights.report().source)?;
    let index = index_metadata(weights);
    for (key, value) in &index {
        writeln!(page.out, "{} = {}", escape(key), escape(value))?;
    }
    let is_short = page.terminal.is_some() && !is_full;
    let groups = groups(weights);
    // A heading over everything says nothing.
    let has_headings = groups.iter().any(|group| group.heading != OTHER);
    let missing = missing(weights);
    let mut is_shortened = false;
    for MetadataGroup { heading, entries } in &groups {
        if has_headings {
            writeln!(page.out, "{BOLD}{heading}{BOLD:#}")?;
        }
        let shown = if is_short { MAX_ENTRIES } else { usize::MAX };
        for entry in entries.iter().take(shown) {
            is_shortened |= write_entry(page, entry, weights.files().count(), is_short)?;
        }
        if let more @ 1.. = entries.len().saturating_sub(shown) {
            is_shortened = true;
            writeln!(page.out, "{DIM}and {}{DIM:#}", counted(more as u64, "more entry"))?;
        }
        if *heading == MODEL_SPEC && !missing.is_empty() {
            page.labeled(YELLOW, "missing", &format!("{} (required)", missing.join(", ")))?;
        }
    }
    if is_shortened {
        page.styled_line(DIM, "long values are shortened; --full prints them")?;
    }
    Ok(())
}

const MODEL_SPEC: &str = "ModelSpec";
const TRAINING: &str = "training";
const OTHER: &str = "other";

/// Returns the distinct entries of all files: fields of the specification in its order, the main keys of a training
/// first, and the others by their keys.
fn groups(weights: &Weights) -> Vec<MetadataGroup<'_>> {
    let mut entries = BTreeMap::<_, Vec<String>>::new();
    for (path, header) in weights.files() {
        for (key, value) in header.metadata().into_iter().flatten() {
            entries.entry((&**key, &**value)).or_default().push(path.to_string());
        }
    }
    let mut groups =
        [MODEL_SPEC, TRAINING, OTHER].map(|heading| MetadataGroup { heading, entries: Vec::new() });
    for ((key, value), files) in entries {
        let group = match key {
            _ if key.starts_with(MODEL_SPEC_PREFIX) => 0,
            _ if key.starts_with(TRAINING_PREFIX) => 1,
            _ => 2,
        };
        groups[group].entries.push(MetadataEntry { key, value, files });
    }
    let field = |entry: &MetadataEntry<'_>| {
        let name = entry.key.strip_prefix(MODEL_SPEC_PREFIX).unwrap_or_default();
        let at = MODEL_SPEC_FIELDS.iter().position(|field| field.name == name);
        at.unwrap_or(usize::MAX)
    };
    let main = |entry: &MetadataEntry<'_>| {
        let at = MAIN_TRAINING_KEYS.iter().position(|key| *key == entry.key);
        at.unwrap_or(usize::MAX)
    };
    // The sort is stable, so other keys stay in order.
    groups[0].entries.sort_by_key(field);
    groups[1].entries.sort_by_key(main);
    groups.into_iter().filter(|group| !group.entries.is_empty()).collect()
}

/// Returns the required fields of the SAI Model Spec that a file with other fields of it does not have.
fn missing(weights: &Weights) -> Vec<String> {
    let mut missing = Vec::new();
    for (_, header) in weights.files() {
        let spec = header.metadata().and_then(ModelSpec::from_metadata);
        for name in spec.iter().flat_map(ModelSpec::missing) {
            let key = format!("{MODEL_SPEC_PREFIX}{name}");
            if !missing.contains(&key) {
                missing.push(key);
            }
        }
    }
    missing
}

/// Writes an entry. Returns whether its value was shortened.
fn write_entry(
    page: &mut Page<'_>,
    entry: &MetadataEntry<'_>,
    files: usize,
    is_short: bool,
) -> io::Result<bool> {
    let MetadataEntry { key, value, files: with } = entry;
    let key = escape(key);
    let with = if with.len() < files {
        let names = with.iter().map(|name| escape(name));
        format!("  ({})", joined(names, if is_short { MAX_FILES } else { usize::MAX }))
    } else {
        String::new()
    };
    if !is_short {
        writeln!(page.out, "{key} = {}{DIM}{with}{DIM:#}", escape(value))?;
        return Ok(false);
    }
    if entry.key == THUMBNAIL
        && let Ok(thumbnail) = Thumbnail::parse(value)
    {
        let text = describe_thumbnail(&thumbnail);
        page.line(&format!("{key} = {text}; --thumbnail FILE writes it{with}"))?;
        return Ok(false);
    }
    if entry.key == TAG_FREQUENCY
        && let Some(frequencies) = TagFrequencies::parse(value)
    {
        let folders = counted(frequencies.folders as u64, "folder");
        let tags = counted(frequencies.tags.len() as u64, "tag");
        writeln!(page.out, "{key} = {tags} in {folders}{DIM}{with}{DIM:#}")?;
        return write_tags(page, &frequencies);
    }
    let columns = page.terminal.map_or(usize::MAX, |size| size.width);
    let (text, size) = shortened(value, columns.saturating_sub(width(&key) + 3 + width(&with)));
    writeln!(page.out, "{key} = {text}{DIM}{size}{with}{DIM:#}")?;
    Ok(!size.is_empty())
}

/// Describes a thumbnail, such as `JPEG, 256 × 256, 48.0 kB`.
pub(crate) fn describe_thumbnail(thumbnail: &Thumbnail) -> String {
    let (image, size) = (thumbnail.image, bytes(thumbnail.bytes.len() as u64));
    let [width, height] = [image.width, image.height].map(|side| thousands(side.into()));
    format!("{}, {width} × {height}, {size}", image.image_type.name())
}

/// Writes the most frequent tags. Returns whether there are more.
fn write_tags(page: &mut Page<'_>, frequencies: &TagFrequencies) -> io::Result<bool> {
    let shown = &frequencies.tags[..frequencies.tags.len().min(MAX_TAGS)];
    let table = Table::new()
        .text("  tag", |(tag, _): &&(String, u64)| format!("  {}", escape(tag)))
        .shrink(Shrink::TruncateTo(MIN_TAG_WIDTH))
        .number("images", |(_, images)| thousands(*images));
    page.table(&table, || shown)?;
    let more = frequencies.tags.len() - shown.len();
    if more > 0 {
        writeln!(page.out, "  {DIM}and {}{DIM:#}", counted(more as u64, "more tag"))?;
    }
    Ok(more > 0)
}
