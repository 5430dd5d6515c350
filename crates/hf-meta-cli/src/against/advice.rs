//! The command that replaces local files.

use std::path::{Path, PathBuf};

use hf_meta::{CommitSha, RepoId};
use hf_meta_count::results::text::escape;
use hf_meta_format::RepoKind;

use super::compare::Comparison;
use super::select::Selection;

/// The maximum number of files in a command. Of more, the whole folder is downloaded.
const MAX_NAMES: usize = 10;

/// Returns the command that replaces the files that differ or are missing.
pub(super) fn advice(
    repo: &RepoId,
    commit: Option<&CommitSha>,
    selection: &Selection<'_>,
    comparison: &Comparison,
) -> String {
    let mut words = vec![format!("hf download {}", repo.name())];
    match repo.kind() {
        RepoKind::Dataset => words.push("--repo-type dataset".to_owned()),
        RepoKind::Space => words.push("--repo-type space".to_owned()),
        _ => {}
    }
    let prefix = &*selection.prefix;
    let differing = comparison.differing.iter().map(|found| &found.path);
    let paths: Vec<_> = differing.chain(&comparison.missing).collect();
    if paths.len() <= MAX_NAMES {
        words.extend(paths.iter().map(|path| quoted(&format!("{prefix}{path}"))));
    } else if !prefix.is_empty() {
        words.push(format!("--include {}", quoted(&format!("{prefix}*"))));
    }
    words.extend(commit.map(|commit| format!("--revision {commit}")));
    let target = selection.folder.as_deref().and_then(|folder| download_folder(folder, prefix));
    let Some(target) = target else {
        let text = "to replace them, copy them from the folder that this command prints";
        return format!("{text}: {}", words.join(" "));
    };
    if !comparison.differing.is_empty() {
        // A file with the noted time and commit is not read again (huggingface_hub 2.4.0, file_download.py,
        // `_hf_hub_download_to_local_dir`).
        words.push("--force-download".to_owned());
    }
    let (option, folder) = match hub_cache_of(&target) {
        Some(cache) => ("--cache-dir", cache),
        None => ("--local-dir", &*target),
    };
    words.push(format!("{option} {}", quoted(&folder.display().to_string())));
    format!("to replace them: {}", words.join(" "))
}

/// Returns the folder into which a repository is downloaded so that its files below `prefix` are in `folder`; `None` if
/// the folder has another name.
fn download_folder(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let below = Path::new(prefix);
    let mut target: PathBuf = folder.components().collect();
    if !target.ends_with(below) {
        return None;
    }
    for _ in below.components() {
        target.pop();
    }
    Some(if target.as_os_str().is_empty() { PathBuf::from(".") } else { target })
}

/// Returns the cache of `huggingface_hub` that contains a folder `models--org--name/snapshots/commit`: a download to the
/// folder itself would replace its links by files.
fn hub_cache_of(folder: &Path) -> Option<&Path> {
    let snapshots = folder.parent().filter(|parent| parent.ends_with("snapshots"))?;
    let repo = snapshots.parent()?;
    let (kind, _) = repo.file_name()?.to_str()?.split_once("--")?;
    repo.parent().filter(|_| matches!(kind, "models" | "datasets" | "spaces"))
}

/// Quotes a word for a shell, if it needs that.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./@:+=,%".contains(c);
    let word = escape(word);
    if !word.is_empty() && word.chars().all(is_plain) {
        word
    } else if cfg!(windows) {
        format!("\"{word}\"")
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
