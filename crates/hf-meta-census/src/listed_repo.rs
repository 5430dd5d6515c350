//! Repositories to read, as a Hub lists them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, StringArray, new_null_array};
use arrow_schema::{DataType, Field, FieldRef, Schema};
use serde::{Deserialize, Serialize};

use super::CensusError;
use super::arrow::{ArrowRow, from_batch};

/// A repository to read. Only the name is required.
///
/// The fields are the columns of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListedRepo {
    /// The repository name, such as `bigscience/bloom`.
    pub repo: String,
    /// The commit to read; if absent, `main` is read.
    pub commit: Option<String>,
    /// The paths of all files at this commit. If absent, the standard weight file names are tried.
    pub files: Option<Vec<String>>,
    /// The user or organization that owns the repository.
    pub author: Option<String>,
    /// The time of the first commit, in milliseconds since the Unix epoch.
    pub created_at: Option<i64>,
    /// The time of the last commit, in milliseconds since the Unix epoch.
    pub last_modified: Option<i64>,
    /// The number of downloads in the last 30 days.
    pub downloads: Option<i64>,
    /// The type of gate, `auto` or `manual`; absent if the repository is not gated.
    pub gated: Option<String>,
    /// The number of parameters that the Hub reports.
    pub hub_total: Option<i64>,
    /// The task, such as `text-generation`.
    pub pipeline_tag: Option<String>,
    /// The library, such as `transformers`.
    pub library: Option<String>,
    /// The license tag, such as `apache-2.0`.
    pub license: Option<String>,
    /// The first architecture in `config.json`, such as `LlamaForCausalLM`.
    pub architecture: Option<String>,
    /// The base model, as tagged.
    pub base_model: Option<String>,
}

impl ListedRepo {
    /// Possible names of the commit column.
    pub(super) const COMMIT_COLUMNS: [&str; 2] = ["commit", "sha"];

    /// Creates a repository from its name.
    #[must_use]
    pub fn new(repo: impl Into<String>) -> Self {
        Self { repo: repo.into(), ..Self::default() }
    }
}

/// Returns the repositories of a table. `names` is the column with their names. Values of missing columns, and of
/// columns with another type, are unknown.
pub(super) fn from_columns(
    batch: &RecordBatch,
    names: &str,
) -> Result<Vec<ListedRepo>, CensusError> {
    let columns = ListedRepo::fields().iter().map(|field| -> (FieldRef, ArrayRef) {
        let text = match &**field.name() {
            // A missing name becomes a row with an error.
            "repo" => text_column(batch, &[names])
                .map(|names| names.iter().map(|name| Some(name.unwrap_or_default())).collect()),
            "commit" => text_column(batch, &ListedRepo::COMMIT_COLUMNS),
            _ => None,
        };
        let same = || {
            let column = batch.column_by_name(field.name());
            column.filter(|column| is_similar(column.data_type(), field.data_type()))
        };
        let column = match text {
            Some(text) => Arc::new(text),
            None => same()
                .cloned()
                .unwrap_or_else(|| new_null_array(field.data_type(), batch.num_rows())),
        };
        let found = Field::new(field.name(), column.data_type().clone(), field.is_nullable());
        (Arc::new(found), column)
    });
    let (fields, columns): (Vec<_>, _) = columns.unzip();
    from_batch(
        &RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
            .map_err(parquet::errors::ParquetError::from)?,
    )
}

/// Returns whether two types have the same values. Libraries use different types for text and lists, and different
/// names for list items.
fn is_similar(found: &DataType, expected: &DataType) -> bool {
    use DataType::{LargeList, LargeUtf8, List, Utf8, Utf8View};
    match (found, expected) {
        (List(found) | LargeList(found), List(expected)) => {
            is_similar(found.data_type(), expected.data_type())
        }
        (LargeUtf8 | Utf8View, Utf8) => true,
        (found, expected) => found == expected,
    }
}

/// Returns the first of the named columns that contains text.
pub(super) fn text_column(batch: &RecordBatch, names: &[&str]) -> Option<StringArray> {
    let column = names.iter().find_map(|name| batch.column_by_name(name))?;
    match column.data_type() {
        DataType::Utf8 => Some(column.as_string::<i32>().clone()),
        DataType::LargeUtf8 => Some(column.as_string::<i64>().iter().collect()),
        DataType::Utf8View => Some(column.as_string_view().iter().collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::LargeStringArray;
    use arrow_array::builder::{LargeListBuilder, StringViewBuilder};

    use super::*;

    #[test]
    fn other_types_of_text_and_lists_are_read() {
        let mut files = LargeListBuilder::new(StringViewBuilder::new());
        files.values().append_value("a.safetensors");
        files.append(true);
        let names: ArrayRef = Arc::new(LargeStringArray::from(vec!["org/model"]));
        let columns = [("id", names), ("files", Arc::new(files.finish()) as ArrayRef)];
        let repos = from_columns(&RecordBatch::try_from_iter(columns).unwrap(), "id").unwrap();
        let files = Some(vec!["a.safetensors".to_owned()]);
        assert_eq!(repos, [ListedRepo { files, ..ListedRepo::new("org/model") }]);
    }
}
