//! The function `edit_metadata`: edits of local files.

use std::path::{Path, PathBuf};

use hf_meta::{Client, Source};
use hf_meta_census::CensusError;
use hf_meta_edit::{
    EditProgress, FileEdit, FileEditError, Recovery, complete_interrupted, weight_files,
};
use hf_meta_format::formats::safetensors::MetadataEdit;
use pyo3::prelude::*;
use serde::Serialize;

use crate::help::{CallError, about};

/// The arguments of an edit.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct EditArguments {
    path: PathBuf,
    /// The keys and patterns to delete before others are set.
    delete: Vec<String>,
    delete_all: bool,
    set: Vec<(String, String)>,
    reserve: Option<usize>,
    dry_run: bool,
}

/// The result of the edit of a file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EditedFile {
    path: String,
    added: usize,
    changed: usize,
    deleted: usize,
    in_place: bool,
    free_bytes: usize,
}

/// Stops the copy of a file when the call is cancelled.
struct StopOnDrop(EditProgress);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl EditArguments {
    fn edits(&self) -> Vec<MetadataEdit> {
        let all = self.delete_all.then_some(MetadataEdit::DeleteAll);
        let deleted = self.delete.iter().cloned().map(MetadataEdit::Delete);
        let set = self.set.iter().cloned().map(|(key, value)| MetadataEdit::Set { key, value });
        all.into_iter().chain(deleted).chain(set).collect()
    }

    /// Edits the file, or all shards of the folder or index. All files are checked before the first one changes.
    pub(crate) async fn run(self, client: &Client) -> Result<Vec<EditedFile>, CallError> {
        let files = self.files(client).await?;
        let progress = EditProgress::default();
        let _stop = StopOnDrop(progress.clone());
        let edited = tokio::task::spawn_blocking(move || self.edit(&files, &progress)).await;
        match edited {
            Ok(edited) => Ok(edited?),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(CensusError::Stopped.into()),
            },
        }
    }

    async fn files(&self, client: &Client) -> Result<Vec<PathBuf>, CallError> {
        let is_index = self.path.extension().is_some_and(|extension| extension == "json");
        if !self.path.is_dir() && !is_index {
            return Ok(vec![self.path.clone()]);
        }
        let model = client.source(Source::Local(self.path.clone())).format("safetensors");
        let report = model.count().await.map_err(about(0))?;
        Ok(weight_files(&self.path, &report.filepaths))
    }

    fn edit(
        &self,
        files: &[PathBuf],
        progress: &EditProgress,
    ) -> Result<Vec<EditedFile>, FileEditError> {
        let edits = self.edits();
        let plan = |path: &PathBuf| FileEdit::new(path, &edits, self.reserve);
        let plans = files.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
        let apply = |plan: FileEdit| {
            let counts = plan.changes().counts();
            let edited = EditedFile {
                path: plan.path().display().to_string(),
                added: counts.added,
                changed: counts.changed,
                deleted: counts.deleted,
                in_place: !plan.is_new_file(),
                free_bytes: plan.free_bytes(),
            };
            if !self.dry_run {
                plan.apply(progress)?;
            }
            Ok(edited)
        };
        plans.into_iter().map(apply).collect()
    }
}

/// Completes or undoes interrupted edits of a local file, or of the files in a folder. Returns a description of each.
pub(crate) fn complete_edits(path: &Path) -> Vec<String> {
    let describe = |(file, completed): (PathBuf, Result<Recovery, FileEditError>)| {
        let file = file.display();
        match completed {
            Ok(recovery) => format!("{} `{file}`", recovery.describe()),
            Err(error) => format!("an edit of `{file}` was interrupted: {error}"),
        }
    };
    complete_interrupted(path).into_iter().map(describe).collect()
}
