//! Repositories to read, as a Hub lists them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, StringArray, new_null_array};
use arrow_schema::DataType;
use serde::{Deserialize, Serialize};

use super::CensusError;
use super::arrow::{ArrowRow, from_batch, schema};

/// A repository to read. Everything but its name may be unknown.
///
/// The fields are the columns of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListedRepo {
    /// The name of the repository, such as `bigscience/bloom`.
    pub repo: String,
    /// The commit to read; `main` is read if it is unknown.
    pub commit: Option<String>,
    /// The paths of all files of this commit. The weights are probed for if they are unknown.
    pub files: Option<Vec<String>>,
    /// The user or the organization.
    pub author: Option<String>,
    /// The time of the first commit, in milliseconds since 1970.
    pub created_at: Option<i64>,
    /// The time of the last commit, in milliseconds since 1970.
    pub last_modified: Option<i64>,
    /// Downloads in the last 30 days.
    pub downloads: Option<i64>,
    /// The kind of gate: `auto` or `manual`; absent if the repository is open.
    pub gated: Option<String>,
    /// The number of parameters that the Hub shows.
    pub hub_total: Option<i64>,
    /// The task, such as `text-generation`.
    pub pipeline_tag: Option<String>,
    /// The library, such as `transformers`.
    pub library: Option<String>,
    /// The license by its tag, such as `apache-2.0`.
    pub license: Option<String>,
    /// The first architecture of `config.json`, such as `LlamaForCausalLM`.
    pub architecture: Option<String>,
    /// The repository that this model was made from, by its tag.
    pub base_model: Option<String>,
}

impl ListedRepo {
    /// The names that the column of repositories may have.
    pub(super) const NAME_COLUMNS: [&str; 3] = ["repo", "id", "modelId"];

    /// The names that the column of commits may have.
    pub(super) const COMMIT_COLUMNS: [&str; 2] = ["commit", "sha"];

    /// Creates a repository of which nothing but the name is known.
    #[must_use]
    pub fn new(repo: impl Into<String>) -> Self {
        Self { repo: repo.into(), ..Self::default() }
    }
}

/// Returns the repositories of a table. `names` is the column of their names. Columns that are missing, or have another
/// type, are unknown.
pub(super) fn from_columns(
    batch: &RecordBatch,
    names: &str,
) -> Result<Vec<ListedRepo>, CensusError> {
    let columns = ListedRepo::fields().iter().map(|field| -> ArrayRef {
        let text = match &**field.name() {
            // A repository without a name becomes a row that says so.
            "repo" => text_column(batch, &[names])
                .map(|names| names.iter().map(|name| Some(name.unwrap_or_default())).collect()),
            "commit" => text_column(batch, &ListedRepo::COMMIT_COLUMNS),
            _ => None,
        };
        let same = || {
            batch.column_by_name(field.name()).filter(|same| same.data_type() == field.data_type())
        };
        match text {
            Some(text) => Arc::new(text),
            None => same()
                .cloned()
                .unwrap_or_else(|| new_null_array(field.data_type(), batch.num_rows())),
        }
    });
    let columns = columns.collect();
    from_batch(
        &RecordBatch::try_new(schema::<ListedRepo>(), columns)
            .map_err(parquet::errors::ParquetError::from)?,
    )
}

/// Returns the first of some columns that has text.
pub(super) fn text_column(batch: &RecordBatch, names: &[&str]) -> Option<StringArray> {
    let column = names.iter().find_map(|name| batch.column_by_name(name))?;
    match column.data_type() {
        DataType::Utf8 => Some(column.as_string::<i32>().clone()),
        DataType::LargeUtf8 => Some(column.as_string::<i64>().iter().collect()),
        DataType::Utf8View => Some(column.as_string_view().iter().collect()),
        _ => None,
    }
}
