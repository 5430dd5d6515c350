//! The part of a repository that a call reads, for the cache, which does not know calls.

use hf_meta_count::steps::Target;
use hf_meta_format::formats::safetensors::{Safetensors, WEIGHTS_NAME};
use hf_meta_format::formats::{Format, Formats, RepoPath};

use super::options::ReadOptions;

/// Returns the name of the part of a repository that a call reads. Calls that read different parts have different
/// names.
pub(crate) fn part_of_repo(target: &Target, formats: &Formats, options: &ReadOptions) -> String {
    let path = match target {
        Target::File(path) | Target::Shards(path) | Target::Quantization(path) => Some(path),
        Target::Folder(path) => path.as_ref(),
    };
    let path = path.map_or("", RepoPath::as_str);
    // Paths contain no line breaks, so names stay unique.
    let suffix = if options.list_sets { "\nand all sets" } else { "" };
    // A call that selects a format reads other files. Without a selection, safetensors comes first.
    let format = Some(formats.name(0)).filter(|name| *name != Safetensors.name());
    let format = format.map(|name| format!("\nformat {name}")).unwrap_or_default();
    let config = if options.memory.is_some() { "\nand the configuration" } else { "" };
    format!("{path}{suffix}{format}{config}")
}

/// Returns a path that is likely to exist. The commit of a branch is requested with it.
pub(crate) fn probe_path(target: &Target) -> RepoPath {
    match target {
        Target::File(path) => path.clone(),
        Target::Shards(path) => RepoPath::join(path.folder().as_ref(), WEIGHTS_NAME),
        Target::Folder(path) => RepoPath::join(path.as_ref(), WEIGHTS_NAME),
        Target::Quantization(_) => RepoPath::new_unchecked(WEIGHTS_NAME),
    }
}
