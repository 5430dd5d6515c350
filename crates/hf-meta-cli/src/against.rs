//! `hf-meta verify --against`: the files of a folder, compared with the hashes that the Hub lists.

mod compare;
mod hash;

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hf_meta::{CommitSha, Error, Manifest, Model, RepoPath, Source};
use hf_meta_count::results::text::{bytes, counted, escape};
use serde::Serialize;

use self::compare::{Comparison, Difference, HashProgress, compare};
use super::context::{CommandContext, SelectionArgs, Sources};
use super::exit::{CommandError, CommandResult, ExitStatus, failed_to};
use super::output::{Page, print_json};
use super::part_file::PartFile;
use super::repos::RepoArg;
use super::terminal::{CYAN, GREEN, RED};

/// The maximum size of a manifest in bytes: 100,000 files of 300 bytes, twice.
const MAX_MANIFEST: u64 = 64_000_000;

/// The maximum number of files to print per kind. The JSON has all of them.
const MAX_FILES: usize = 20;

/// The options of a comparison.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Comparison")]
pub(crate) struct AgainstArgs {
    /// Compare the files of a folder with this repository, by size and hash
    ///
    /// Reads every local file, and no weights of the repository. Hidden files are ignored.
    #[arg(long, value_name = "REPO", conflicts_with_all = ["all", "base", "changed", "sarif", "junit", "manifest"])]
    against: Option<std::ffi::OsString>,

    /// Compare a folder with this list of files, or write the list of a repository to it
    ///
    /// For machines without network access.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["all", "base", "changed", "sarif", "junit"])]
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
    if let Some(against) = &args.against {
        let local = local_path(repo)?;
        let other = RepoArg::new(against, None, context.client.endpoint());
        let folder = match &other.source {
            Ok(Source::Repo { path, .. }) => path.clone(),
            _ => None,
        };
        let read = read_manifest(&other, &SelectionArgs::default(), is_json, context).await?;
        let manifest = match read {
            Ok(manifest) => manifest,
            Err(status) => return Ok(status),
        };
        return report(
            &local,
            repo,
            &manifest,
            folder.as_ref().map(RepoPath::as_str),
            is_json,
            context,
        );
    }
    let Some(file) = &args.manifest else { return Ok(ExitStatus::Success) };
    if let Ok(local) = local_path(repo) {
        return report(&local, repo, &load(file)?, None, is_json, context);
    }
    let manifest = match read_manifest(repo, selection, is_json, context).await? {
        Ok(manifest) => manifest,
        Err(status) => return Ok(status),
    };
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
    Err(CommandError::usage(format!("{text} `{}`", repo.display)))
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

/// Writes a list of files. An old list is replaced.
fn save(file: &Path, manifest: &Manifest) -> io::Result<()> {
    let mut json = serde_json::to_vec_pretty(manifest)?;
    json.push(b'\n');
    let mut part = PartFile::create(file, true)?;
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

/// Compares a folder or a file with a list, and prints the result.
fn report(
    local: &Path,
    repo: &RepoArg,
    manifest: &Manifest,
    folder: Option<&str>,
    is_json: bool,
    context: &CommandContext,
) -> CommandResult {
    let progress = Arc::new(HashProgress::default());
    let (shown, name) = (Arc::clone(&progress), escape(&repo.display));
    let line = context.line.show(None, move |_| shown.describe(&name));
    let comparison = compare(local, manifest, folder, &progress)?;
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
    } else {
        context.print(|page| write(page, &document))?;
    }
    Ok(if document.equal { ExitStatus::Success } else { ExitStatus::CheckFailed })
}

/// Writes the files that differ, and a summary.
fn write(page: &mut Page<'_>, document: &AgainstDocument<'_>) -> io::Result<()> {
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
    let same = format!("{}, {},", counted(*files, "file"), bytes(*size));
    let how = document.comparison.methods();
    if document.equal {
        return page.line(&format!("{GREEN}same{GREEN:#}: {same} as in {against}{commit}; {how}"));
    }
    let counts =
        format!("{} differ, {} missing, {} extra", differing.len(), missing.len(), extra.len());
    page.line(&format!(
        "{RED}not the same{RED:#} as {against}{commit}: {counts}; {same} are the same"
    ))?;
    let revision =
        document.commit.map(|commit| format!(" --revision {commit}")).unwrap_or_default();
    let local = escape(document.source);
    page.line(&format!("to replace them: hf download {against}{revision} --local-dir {local}"))
}
