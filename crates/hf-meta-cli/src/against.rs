//! `hf-meta verify --against`: the files of a folder, compared with the hashes that the Hub lists.

mod advice;
mod compare;
mod hash;
mod select;

use std::error::Error as StdError;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hf_meta::{CommitSha, Error, Manifest, Model, RepoPath, Source};
use hf_meta_count::results::text::{bytes, counted, escape, thousands};
use serde::Serialize;

use self::advice::advice;
use self::compare::{Comparison, Difference, HashProgress, compare};
use self::select::{NotListed, select};
use super::context::{CommandContext, SelectionArgs, Sources};
use super::error_report::print_source_error;
use super::exit::{CommandError, CommandResult, ExitStatus, failed_to};
use super::hints::{Hints, local_twin};
use super::output::{FailedSource, Page, print_json};
use super::part_file::PartFile;
use super::repos::RepoArg;
use super::terminal::{CYAN, GREEN, RED};

/// The maximum size of a manifest in bytes: 100,000 files of 300 bytes, twice.
const MAX_MANIFEST: u64 = 64_000_000;

/// The maximum number of files to print per kind. The JSON has all of them.
const MAX_FILES: usize = 20;

/// The options that have no effect on a comparison of files.
const OTHER_CHECKS: [&str; 10] =
    ["all", "base", "changed", "engine", "junit", "path", "sarif", "strict", "values", "weights"];

/// The options of a comparison.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Comparison")]
pub(crate) struct AgainstArgs {
    /// Compare the files of a folder with this repository, by size and hash
    ///
    /// Reads every local file, and no weights of the repository. Hidden files are ignored.
    #[arg(long, value_name = "REPO", conflicts_with = "manifest", conflicts_with_all = OTHER_CHECKS)]
    against: Option<std::ffi::OsString>,

    /// Compare a folder with this list of files, or write the list of a repository to it
    ///
    /// For machines without network access.
    #[arg(long, value_name = "FILE", conflicts_with_all = OTHER_CHECKS)]
    manifest: Option<PathBuf>,
}

impl AgainstArgs {
    /// Returns whether files are compared instead of headers.
    pub(crate) fn is_selected(&self) -> bool {
        self.against.is_some() || self.manifest.is_some()
    }
}

/// Compares a folder, or writes a list of files.
pub(crate) async fn run(
    args: &AgainstArgs,
    repos: &[RepoArg],
    selection: &SelectionArgs,
    is_json: bool,
    context: &CommandContext,
) -> CommandResult {
    let [repo] = repos else {
        return Err(CommandError::usage(
            "`--against` and `--manifest` require a single repository",
        ));
    };
    let endpoint = context.client.endpoint();
    let report = Report { repo, is_json, context };
    if let Some(against) = &args.against {
        let local = local_path(repo)?;
        let mut other = RepoArg::new(against, None, endpoint);
        if let (Some(revision), Ok(Source::Repo { .. })) = (selection.revision(), &other.source) {
            other = other.with_selection(Some(revision), None);
            other.display = other.source.as_ref().map_or(other.display, Source::to_string);
        }
        return match read_manifest(&other, selection, is_json, context).await? {
            Ok(manifest) => report.compare(&local, &manifest, None),
            Err(status) => Ok(status),
        };
    }
    let Some(file) = &args.manifest else { return Ok(ExitStatus::Success) };
    if let Ok(local) = local_path(repo) {
        if selection.revision().is_some() {
            let message = "`--revision` requires a repository: a list has a single revision";
            return Err(CommandError::usage(message));
        }
        return report.compare(&local, &load(file)?, Some(file));
    }
    check_free(file, repo)?;
    let manifest = match read_manifest(repo, selection, is_json, context).await? {
        Ok(manifest) => manifest,
        Err(status) => return Ok(status),
    };
    if let Ok(Source::Repo { path: Some(path), .. }) = &repo.source
        && !select::has(&manifest, path.as_str())
    {
        return report.not_listed(&manifest, path.as_str());
    }
    save(file, &manifest)?;
    let files = counted(manifest.files.len() as u64, "file");
    context
        .print(|page| page.line(&format!("{}: {files}", escape(&file.display().to_string()))))?;
    Ok(ExitStatus::Success)
}

fn local_path(repo: &RepoArg) -> CommandResult<PathBuf> {
    if let Ok(Source::Local(path)) = &repo.source {
        return Ok(path.clone());
    }
    let text = "`--against` requires a local folder or file, not";
    Err(CommandError::usage(format!("{text} `{}`{}", repo.display, twin_hint(repo))))
}

/// Checks that a list can be written. A name without a slash is often meant as a folder to compare with an existing list.
fn check_free(file: &Path, repo: &RepoArg) -> CommandResult<()> {
    if fs::symlink_metadata(file).is_err() {
        return Ok(());
    }
    let text = format!("`{}` exists; remove it to write a new list", file.display());
    Err(CommandError::usage(format!("{text}{}", twin_hint(repo))))
}

/// Explains a repository whose name is also the name of a local file or folder.
fn twin_hint(repo: &RepoArg) -> String {
    let hint = |path| format!("; for the local file or folder, use {path}");
    local_twin(repo).map_or_else(String::new, hint)
}

/// Lists the files of a repository. Returns the exit status if that fails.
async fn read_manifest(
    repo: &RepoArg,
    selection: &SelectionArgs,
    is_json: bool,
    context: &CommandContext,
) -> CommandResult<Result<Manifest, ExitStatus>> {
    let repos = std::slice::from_ref(repo);
    let sources = Sources { repos, selection, is_json, is_streamed: false };
    let mut found = None;
    let collect = |_: &RepoArg, manifest: Result<Manifest, Error>| {
        found = Some(manifest?);
        Ok(ExitStatus::Success)
    };
    let status = context.for_each(sources, |model: Model| model.manifest(), collect).await?;
    Ok(found.ok_or(status))
}

/// Reads a list of files that `--manifest` wrote.
fn load(file: &Path) -> CommandResult<Manifest> {
    let action = || format!("read `{}`", file.display());
    let mut json = Vec::new();
    let opened = fs::File::open(file).map_err(|error| failed_to(action())(error))?;
    let read = opened.take(MAX_MANIFEST).read_to_end(&mut json);
    read.map_err(|error| failed_to(action())(error))?;
    serde_json::from_slice(&json).map_err(|error| {
        let message = format!("`{}` is not a list of files: {error}", file.display());
        CommandError::usage(message)
    })
}

/// Writes a list of files.
fn save(file: &Path, manifest: &Manifest) -> io::Result<()> {
    let mut json = serde_json::to_vec_pretty(manifest)?;
    json.push(b'\n');
    let mut part = PartFile::create(file, false)?;
    part.write(&json)?;
    part.finish()
}

/// The result as JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgainstDocument<'a> {
    source: &'a str,
    against: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'a CommitSha>,
    equal: bool,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

/// A comparison with a list, which is printed.
#[derive(Clone, Copy)]
struct Report<'a> {
    /// The local folder or file.
    repo: &'a RepoArg,
    is_json: bool,
    context: &'a CommandContext,
}

impl Report<'_> {
    /// Compares a folder or a file with a list, which may come from a file.
    fn compare(self, local: &Path, manifest: &Manifest, list: Option<&Path>) -> CommandResult {
        let Self { repo, is_json, context } = self;
        let other = RepoArg::new(manifest.source.as_ref(), None, context.client.endpoint());
        let (id, within) = match &other.source {
            Ok(Source::Repo { repo, path, .. }) => (Some(repo), path.as_ref()),
            _ => (None, None),
        };
        let selection = match select(local, manifest, within.map(RepoPath::as_str))? {
            Ok(selection) => selection,
            Err(NotListed(Some(path))) => return self.not_listed(manifest, &path),
            Err(NotListed(None)) => return Err(nothing_listed(manifest, list)),
        };
        let progress = Arc::new(HashProgress::default());
        let (shown, name) = (Arc::clone(&progress), escape(&repo.display));
        let line = context.line.show(None, move |_| shown.describe(&name));
        let comparison = compare(&selection, &progress)?;
        drop(line);
        let document = AgainstDocument {
            source: &repo.display,
            against: &manifest.source,
            commit: manifest.commit.as_ref(),
            equal: comparison.is_equal(),
            comparison: &comparison,
        };
        if is_json {
            print_json(&document)?;
        } else if !(document.equal && context.line.is_quiet) {
            let advice = id.map(|repo| advice(repo, document.commit, &selection, &comparison));
            context.print(|page| write(page, &document, advice.as_deref()))?;
        }
        Ok(if document.equal { ExitStatus::Success } else { ExitStatus::CheckFailed })
    }

    /// Reports a path that a list does not have.
    fn not_listed(self, manifest: &Manifest, path: &str) -> CommandResult {
        let other = RepoArg::new(manifest.source.as_ref(), None, self.context.client.endpoint());
        let name = match &other.source {
            Ok(Source::Repo { repo, .. }) => repo.as_str(),
            _ => &other.display,
        };
        let source =
            Arc::from(Box::<dyn StdError + Send + Sync>::from("it is not in the list of files"));
        let error = Error::FileNotFound { file: format!("{name}/{path}"), source };
        if self.is_json {
            print_json(&FailedSource::new(&self.repo.display, &error))?;
        }
        // The path is a part of the name of the repository.
        let hints = Hints { has_path: false, ..self.context.hints() };
        print_source_error(&other, &error, false, hints.hint(&other, &error).as_deref());
        Ok(ExitStatus::from(&error))
    }
}

/// Returns the error of a list without files that are not hidden.
fn nothing_listed(manifest: &Manifest, list: Option<&Path>) -> CommandError {
    if let Some(list) = list {
        return CommandError::usage(format!("`{}` lists no file to compare", list.display()));
    }
    let message = format!("`{}` has no file to compare", manifest.source);
    CommandError::new(ExitStatus::CheckFailed, message)
}

/// Writes the files that differ, a summary, and what to do.
fn write(
    page: &mut Page<'_>,
    document: &AgainstDocument<'_>,
    advice: Option<&str>,
) -> io::Result<()> {
    let Comparison { files, bytes: size, differing, missing, extra, .. } = document.comparison;
    page.heading(document.source)?;
    for Difference { path, reason } in differing.iter().take(MAX_FILES) {
        page.labeled(RED, "differs", &escape(&format!("{path}: {reason}")))?;
    }
    for path in missing.iter().take(MAX_FILES) {
        page.labeled(RED, "missing", &escape(path))?;
    }
    for path in extra.iter().take(MAX_FILES) {
        page.labeled(CYAN, "extra", &escape(path))?;
    }
    let hidden = [differing.len(), missing.len(), extra.len()];
    let hidden: usize = hidden.iter().map(|count| count.saturating_sub(MAX_FILES)).sum();
    if hidden > 0 {
        page.line(&format!("{} more; --json lists them all", counted(hidden as u64, "file")))?;
    }
    let against = escape(document.against);
    let commit = document.commit.map(|commit| format!(" at commit {commit}")).unwrap_or_default();
    let same = format!("{}, {}", counted(*files, "file"), bytes(*size));
    let how = document.comparison.methods();
    if document.equal {
        return page.line(&format!("{GREEN}same{GREEN:#}: {same}, as in {against}{commit}; {how}"));
    }
    let counts =
        [(differing.len(), "differing"), (missing.len(), "missing"), (extra.len(), "extra")];
    let counts = counts.map(|(count, kind)| format!("{} {kind}", thousands(count as u64)));
    let counts = counts.join(", ");
    page.line(&format!("{RED}not the same{RED:#} as {against}{commit}: {counts}; same: {same}"))?;
    advice.map_or(Ok(()), |advice| page.line(advice))
}
