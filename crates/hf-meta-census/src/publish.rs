//! Publishes a census as a data set: tables, a data card, and a schema page.

use std::path::Path;
use std::{fs, io};

use chrono::DateTime;
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::card;
use super::census::Census;
use super::error::{Result, failed_to};
use super::row::CensusRow;
use super::run::{CensusRun, read_runs};
use super::stored_header::StoredHeader;
use super::table::{TableRow, documentation, integer, publish, rows};
use hf_meta_format::formats::TensorInfo;

/// The settings of a publication.
#[derive(Clone, Debug, Default)]
pub struct PublishOptions {
    /// The title of the data set.
    pub title: Option<String>,
    /// The license of the tables, such as `cc0-1.0`.
    pub license: Option<String>,
    /// `true` to add the table `tensors`, which is by far the largest.
    pub tensors: bool,
}

/// A tensor in a stored header.
///
/// The fields are the columns of the `tensors` table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TensorRow {
    /// The repository name in the list.
    pub repo: String,
    /// The commit.
    pub commit: String,
    /// The path of the file.
    pub path: String,
    /// The name of the tensor.
    pub name: String,
    /// The dtype, such as `BF16`.
    pub dtype: String,
    /// The size of each dimension; empty for a scalar.
    pub shape: Vec<i64>,
    /// The offset of the data in bytes, relative to the end of the header.
    pub offset: i64,
    /// The size of the data in bytes.
    pub bytes: i64,
}

impl TableRow for TensorRow {
    const NAME: &str = "The table `tensors`";
    const KEY: &[&str] = &["repo", "path", "name"];
    const BATCH_ROWS: usize = 2_048;
}

/// A published table.
struct PublishedTable {
    name: &'static str,
    key: &'static [&'static str],
    documentation: &'static str,
    rows: usize,
}

impl PublishedTable {
    fn new<Row: TableRow>(rows: usize) -> Self {
        let name = Row::NAME.split('`').nth(1).unwrap_or_default();
        Self { name, key: Row::KEY, documentation: documentation::<Row>(), rows }
    }

    /// Returns the first sentence of the documentation.
    fn content(&self) -> String {
        let paragraph = self.documentation.split("\n\n").next().unwrap_or_default();
        let paragraph = paragraph.replace('\n', " ");
        paragraph.split(". ").next().unwrap_or_default().trim_end_matches('.').to_owned()
    }
}

impl Census {
    /// Writes a data set to a local folder: the tables `repos`, `files` and `runs`, a data card, and a schema page.
    /// Returns the number of repositories. An existing `README.md` keeps its text: only its tables, its provenance and the
    /// metadata of this data set are replaced.
    ///
    /// # Errors
    ///
    /// Returns an error if the target contains no census or only part of one, if a file cannot be read or written, or if
    /// the run is stopped.
    pub async fn publish(&self, folder: &Path, options: &PublishOptions) -> Result<usize> {
        fs::create_dir_all(folder).map_err(failed_to("create", folder))?;
        let readme = folder.join("README.md");
        if readme.exists() && !folder.join("SCHEMA.md").exists() {
            let error = io::Error::other("`census publish` did not write the existing file");
            return Err(failed_to("write", readme)(error));
        }
        let existing = match fs::read_to_string(&readme) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // Such as text in another encoding, which must not be replaced.
            Err(error) => return Err(failed_to("read", readme)(error)),
        };
        let file = |name: &str| folder.join(format!("{name}.parquet"));
        let repos = self.pack(&file("repos").display().to_string()).await?;
        // The rules may have changed since the files were read.
        let headers = self.sorted_headers().await?.map_ok(StoredHeader::with_counts);
        let files = publish(&file("files"), &(), headers)?;
        let runs = read_runs(&self.storage).await?;
        publish(&file("runs"), &(), runs.iter().cloned().map(Ok))?;
        let mut tables = vec![
            PublishedTable::new::<CensusRow>(repos),
            PublishedTable::new::<StoredHeader>(files),
            PublishedTable::new::<CensusRun>(runs.len()),
        ];
        if options.tensors {
            let headers = rows::<StoredHeader>(&file("files"))?;
            let tensors = headers.map_ok(|header| header.tensors()).flatten_ok();
            let tensors = publish(&file("tensors"), &(), tensors)?;
            tables.push(PublishedTable::new::<TensorRow>(tensors));
        } else if file("tensors").exists() {
            // It belongs to an earlier publication.
            fs::remove_file(file("tensors")).map_err(failed_to("delete", file("tensors")))?;
        }
        let write = |name: &str, text: String| {
            fs::write(folder.join(name), text).map_err(failed_to("write", folder.join(name)))
        };
        write("SCHEMA.md", schema_page(&tables))?;
        let card = data_card(&tables, &runs, options);
        let options = [("pretty_name", &options.title), ("license", &options.license)];
        let given = options.iter().filter(|(_, value)| value.is_some());
        let given: Vec<_> = given.map(|(key, _)| *key).collect();
        let card = match existing {
            Some(text) => card::update(&text, &card, &given),
            None => card,
        };
        write("README.md", card)?;
        Ok(repos)
    }
}

impl StoredHeader {
    /// Returns the tensors in a header; none if the file has no header.
    fn tensors(&self) -> Vec<TensorRow> {
        let Some(header) = self.parse() else { return Vec::new() };
        let row = |(name, tensor): (&str, TensorInfo)| TensorRow {
            repo: self.repo.clone(),
            commit: self.commit.clone(),
            path: self.path.clone(),
            name: name.to_owned(),
            dtype: tensor.dtype.to_string(),
            shape: tensor.shape.iter().copied().map(integer).collect(),
            offset: integer(tensor.data_offsets.0),
            bytes: integer(tensor.data_offsets.1.saturating_sub(tensor.data_offsets.0)),
        };
        header.tensors().iter().map(row).collect()
    }
}

/// The text of the data card. Its first lines are metadata for the Hub.
const DATA_CARD: &str = include_str!("data_card.md");

/// Returns the data card.
fn data_card(tables: &[PublishedTable], runs: &[CensusRun], options: &PublishOptions) -> String {
    let config = |table: &PublishedTable| {
        let default = if table.name == "repos" { "  default: true\n" } else { "" };
        format!("- config_name: {0}\n  data_files: {0}.parquet\n{default}", table.name)
    };
    let row = |table: &PublishedTable| {
        let key = table.key.iter().map(|column| format!("`{column}`")).join(", ");
        format!("| `{}` | {} | {key} | {} |\n", table.name, table.rows, table.content())
    };
    let distinct = |value: fn(&CensusRun) -> &str| runs.iter().map(value).unique().join(", ");
    let day = |time: Option<i64>| time.and_then(day).unwrap_or_default();
    let first = day(runs.iter().map(|run| run.started_at).min());
    let last = day(runs.iter().map(|run| run.ended_at).max());
    let days =
        if first == last { format!("on {first}") } else { format!("between {first} and {last}") };
    let (license, license_sentence) =
        options.license.as_ref().map_or_else(Default::default, |id| {
            let sentence = format!("The counts are published under the license `{id}`. ");
            (format!("license: {}\n", json!(id)), sentence)
        });
    let title = options.title.as_deref();
    let title = title.unwrap_or("Parameter counts of models on the Hugging Face Hub");
    // The texts of the user come last, because they could contain names in braces.
    let values = [
        ("{configs}", tables.iter().map(config).collect()),
        ("{tables}", tables.iter().map(row).collect()),
        ("{endpoints}", distinct(|run| &run.endpoint)),
        ("{days}", days),
        ("{tools}", distinct(|run| &run.tool)),
        ("{rules}", distinct(|run| &run.rules)),
        ("{license}", license),
        ("{license_sentence}", license_sentence),
        ("{quoted_title}", json!(title).to_string()),
        ("{title}", title.to_owned()),
    ];
    let fill = |card: String, (name, value): (&str, String)| card.replace(name, &value);
    values.into_iter().fold(DATA_CARD.to_owned(), fill)
}

/// Returns the date of a time in milliseconds since 1970.
fn day(time: i64) -> Option<String> {
    Some(DateTime::from_timestamp_millis(time)?.date_naive().to_string())
}

/// Returns a page with the columns of all tables.
fn schema_page(tables: &[PublishedTable]) -> String {
    let section =
        |table: &PublishedTable| format!("\n## {}\n\n{}\n", table.name, table.documentation);
    format!("# Columns\n{}", tables.iter().map(section).format(""))
}
