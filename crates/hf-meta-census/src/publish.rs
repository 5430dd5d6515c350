//! Publishes a census as a data set: tables, a data card, a schema page, and metadata for search engines.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use chrono::DateTime;
use itertools::Itertools;
use parquet::file::properties::WriterPropertiesBuilder;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::census::Census;
use super::error::failed_to;
use super::layout_digest::hexadecimal;
use super::row::integer;
use super::run::{CensusRun, read_runs};
use super::table::{DESCRIPTION, TableRow, open_rows, publish, schema, sorted_by};
use super::{CensusError, CensusRow, StoredHeader};
use hf_meta::formats::TensorInfo;

/// The settings of a publication.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
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

    fn memory(&self) -> usize {
        512
    }

    fn published(properties: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
        sorted_by(&[0, 2], properties)
    }
}

/// A published table.
struct PublishedTable {
    name: &'static str,
    schema: SchemaRef,
    /// The columns that identify a row.
    key: &'static [&'static str],
    rows: usize,
}

impl PublishedTable {
    fn new<Row: TableRow>(name: &'static str, key: &'static [&'static str], rows: usize) -> Self {
        Self { name, schema: schema::<Row>(), key, rows }
    }
}

impl Census {
    /// Writes a data set to a local folder: the tables `repos`, `files` and `runs`, a data card, a schema page, and a
    /// Croissant file. Returns the number of repositories.
    ///
    /// # Errors
    ///
    /// Returns an error if the target contains no census or only part of one, if a file cannot be read or written, or if
    /// the run is stopped.
    pub async fn publish(
        &self,
        folder: &Path,
        options: &PublishOptions,
    ) -> Result<usize, CensusError> {
        fs::create_dir_all(folder).map_err(failed_to("create", folder))?;
        let file = |name: &str| folder.join(format!("{name}.parquet"));
        let repos = self.pack(&file("repos").display().to_string()).await?;
        // The rules may have changed since the files were read.
        let headers = self.sorted_headers().await?.map_ok(StoredHeader::with_counts);
        let files = publish(&file("files"), &(), headers)?;
        let runs = read_runs(&self.storage).await?;
        publish(&file("runs"), &(), runs.iter().cloned().map(Ok))?;
        let mut tables = vec![
            PublishedTable::new::<CensusRow>("repos", &["repo"], repos),
            PublishedTable::new::<StoredHeader>("files", &["repo", "path"], files),
            PublishedTable::new::<CensusRun>("runs", &["started_at", "slice"], runs.len()),
        ];
        if options.tensors {
            let headers = open_rows(&file("files"))?;
            let tensors = headers.map_ok(|header: StoredHeader| header.tensors()).flatten_ok();
            let tensors = publish(&file("tensors"), &(), tensors)?;
            let key = &["repo", "path", "name"];
            tables.push(PublishedTable::new::<TensorRow>("tensors", key, tensors));
        } else if file("tensors").exists() {
            // It belongs to an earlier publication.
            fs::remove_file(file("tensors")).map_err(failed_to("delete", file("tensors")))?;
        }
        let write = |name: &str, text: String| {
            fs::write(folder.join(name), text).map_err(failed_to("write", folder.join(name)))
        };
        write("SCHEMA.md", schema_page(&tables))?;
        write("croissant.json", format!("{:#}\n", croissant(folder, &tables, &runs, options)?))?;
        write("README.md", data_card(&tables, &runs, options))?;
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

/// Returns the title of the data set.
fn title(options: &PublishOptions) -> &str {
    options.title.as_deref().unwrap_or("Parameter counts of models on the Hugging Face Hub")
}

/// Returns the data card, whose first lines are metadata for the Hub.
fn data_card(tables: &[PublishedTable], runs: &[CensusRun], options: &PublishOptions) -> String {
    let title = title(options);
    let mut card = format!("---\npretty_name: {}\n", json!(title));
    if let Some(license) = &options.license {
        let _ = writeln!(card, "license: {}", json!(license));
    }
    card.push_str("configs:\n");
    for PublishedTable { name, .. } in tables {
        let _ = writeln!(card, "- config_name: {name}\n  data_files: {name}.parquet");
        if *name == "repos" {
            card.push_str("  default: true\n");
        }
    }
    let _ = write!(card, "---\n\n# {title}\n\n{CARD_INTRODUCTION}\n");
    card.push_str("| table | rows | key | content |\n|---|---:|---|---|\n");
    for PublishedTable { name, key, rows, .. } in tables {
        let content = TABLE_CONTENTS.iter().find(|(table, _)| table == name);
        let content = content.map_or("", |(_, content)| content);
        let key = key.iter().map(|column| format!("`{column}`")).join(", ");
        let _ = writeln!(card, "| `{name}` | {rows} | {key} | {content} |");
    }
    let distinct = |value: fn(&CensusRun) -> &str| runs.iter().map(value).unique().join(", ");
    let day = |time: Option<i64>| time.and_then(day).unwrap_or_default();
    let _ = write!(
        card,
        "\n[SCHEMA.md](SCHEMA.md) describes the columns, and `croissant.json` is metadata in the Croissant format.\n\n\
         # Provenance\n\nRead from {} between {} and {} with {} (counting rules: {}).\n\n# License\n\n{}{LICENSE_NOTE}",
        distinct(|run| &run.endpoint),
        day(runs.iter().map(|run| run.started_at).min()),
        day(runs.iter().map(|run| run.ended_at).max()),
        distinct(|run| &run.tool),
        distinct(|run| &run.rules),
        options.license.as_ref().map_or_else(String::new, |license| format!(
            "The counts are published under the license `{license}`. "
        )),
    );
    card
}

/// Returns the date of a time in milliseconds since 1970.
fn day(time: i64) -> Option<String> {
    Some(DateTime::from_timestamp_millis(time)?.date_naive().to_string())
}

const CARD_INTRODUCTION: &str = "\
A census of model repositories: one row per repository, with parameters per dtype, quantization, mixture of experts and
size, computed from the headers of the weight files. Every listed repository has a row; without counts, `status` is the
reason. A sum over models needs `WHERE is_complete`, because adapters are a part of a model.

```python
import datasets

repos = datasets.load_dataset(\"path/of/this/dataset\", split=\"train\")
files = datasets.load_dataset(\"path/of/this/dataset\", \"files\", split=\"train\")
```
";

/// The tables and their contents.
const TABLE_CONTENTS: [(&str, &str); 4] = [
    ("repos", "one row per repository: its counts, or the reason why there are none"),
    ("files", "the header bytes from which the counts were computed"),
    ("runs", "the runs that read the repositories"),
    ("tensors", "the tensors in the headers"),
];

const LICENSE_NOTE: &str = "\
The stored headers and the metadata from the Hub (tags, author, downloads) belong to the authors of the repositories; the
column `license` of `repos` states their license.
";

/// Returns a page with the columns of all tables.
fn schema_page(tables: &[PublishedTable]) -> String {
    let mut page = "# Columns\n".to_owned();
    for PublishedTable { name, schema, .. } in tables {
        let _ = write!(page, "\n## {name}\n\n| column | type | content |\n|---|---|---|\n");
        for field in schema.fields() {
            let nullable = if field.is_nullable() { ", nullable" } else { "" };
            let (column, description) = (field.name(), description(field));
            let data_type = type_name(field.data_type());
            let _ = writeln!(page, "| `{column}` | {data_type}{nullable} | {description} |");
        }
    }
    page
}

fn description(field: &Field) -> &str {
    field.metadata().get(DESCRIPTION).map_or("", String::as_str)
}

/// Returns the name of a type on the schema page.
fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8 => "string".to_owned(),
        DataType::Boolean => "bool".to_owned(),
        DataType::Timestamp(..) => "timestamp".to_owned(),
        DataType::FixedSizeBinary(32) => "digest".to_owned(),
        DataType::List(item) => format!("list of {}", type_name(item.data_type())),
        DataType::Struct(fields) => {
            let fields = fields.iter();
            format!("struct ({})", fields.map(|field| format!("`{}`", field.name())).join(", "))
        }
        other => other.to_string().to_lowercase(),
    }
}

/// Returns the metadata of the data set in the Croissant format, version 1.0.
fn croissant(
    folder: &Path,
    tables: &[PublishedTable],
    runs: &[CensusRun],
    options: &PublishOptions,
) -> Result<Value, CensusError> {
    let file_object = |table: &PublishedTable| {
        let file = format!("{}.parquet", table.name);
        Ok::<_, CensusError>(json!({
            "@type": "cr:FileObject",
            "@id": file,
            "name": file,
            "contentUrl": file,
            "encodingFormat": "application/x-parquet",
            "sha256": sha256(&folder.join(&file))?,
        }))
    };
    let record_set = |table: &PublishedTable| {
        let key = table.key.iter().map(|key| json!({"@id": format!("{}/{key}", table.name)}));
        json!({
            "@type": "cr:RecordSet",
            "@id": table.name,
            "name": table.name,
            "key": key.collect::<Vec<_>>(),
            "field": fields(table.name, &table.schema),
        })
    };
    let mut dataset = json!({
        "@context": serde_json::from_str::<Value>(CONTEXT).unwrap_or_default(),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "census",
        "description": title(options),
        "distribution": tables.iter().map(file_object).collect::<Result<Vec<_>, _>>()?,
        "recordSet": tables.iter().map(record_set).collect::<Vec<_>>(),
    });
    let last = runs.iter().map(|run| run.ended_at).max();
    if let Some(day) = last.and_then(day) {
        dataset["datePublished"] = day.into();
    }
    if let Some(license) = &options.license {
        dataset["license"] = license.as_str().into();
    }
    Ok(dataset)
}

/// The definitions of the names in a Croissant file.
const CONTEXT: &str = include_str!("croissant_context.json");

/// Returns the columns of a table in the Croissant format, which has no types for bytes and for lists of structs.
fn fields(table: &str, schema: &Schema) -> Vec<Value> {
    let field = |field: &Field| {
        let (data_type, repeated) = match field.data_type() {
            DataType::List(item) => (item.data_type(), true),
            other => (other, false),
        };
        let data_type = match data_type {
            DataType::Int64 => "cr:Int64",
            DataType::Float64 => "sc:Float",
            DataType::Boolean => "sc:Boolean",
            DataType::Timestamp(..) => "sc:DateTime",
            DataType::Utf8 => "sc:Text",
            _ => return None,
        };
        let name = field.name();
        let mut json = json!({
            "@type": "cr:Field",
            "@id": format!("{table}/{name}"),
            "name": name,
            "description": description(field),
            "dataType": data_type,
            "source": {
                "fileObject": {"@id": format!("{table}.parquet")},
                "extract": {"column": name},
            },
        });
        if repeated {
            json["repeated"] = true.into();
        }
        if table != "repos" && name == "repo" {
            json["references"] = json!({"field": {"@id": "repos/repo"}});
        }
        Some(json)
    };
    schema.fields().iter().filter_map(|column| field(column)).collect()
}

/// Returns the SHA-256 hash of a file.
fn sha256(file: &Path) -> Result<String, CensusError> {
    let cannot_read = failed_to::<io::Error>("read", file);
    let mut reader = BufReader::new(File::open(file).map_err(&cannot_read)?);
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match reader.read(&mut buffer).map_err(&cannot_read)? {
            0 => return Ok(hexadecimal(&hasher.finalize())),
            read => hasher.update(&buffer[..read]),
        }
    }
}
