//! Tables: rows as Arrow record batches and as Parquet files.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use itertools::Itertools;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{CdcOptions, WriterProperties, WriterPropertiesBuilder};
use parquet::file::reader::ChunkReader;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_arrow::schema::{SchemaLike, TracingOptions};

use super::CensusError;
use super::error::{BoxError, failed_to};
use hf_meta::CENSUS_PAGE;

/// The key of our metadata in the footer.
const FOOTER_KEY: &str = "hf-meta";

/// The compression level of `zstd`. Headers shrink to a tenth, and higher levels gain little.
const ZSTD_LEVEL: i32 = 3;

/// The number of bytes of rows to buffer before they are encoded.
const MAX_BUFFERED_BYTES: usize = 1 << 20;

/// The number of bytes of a row group, all of which is in memory before it is written.
const MAX_ROW_GROUP_BYTES: usize = 12 << 20;

/// Columns with timestamps.
const TIMES: [&str; 4] = ["created_at", "ended_at", "last_modified", "started_at"];

/// Columns with SHA-256 hashes.
const DIGESTS: [&str; 5] =
    ["file_sha256", "header_sha256", "layout_digest", "sha256", "shape_digest"];

/// Returns whether a column contains SHA-256 hashes.
pub(super) fn is_digest(column: &str) -> bool {
    DIGESTS.contains(&column)
}

/// The key of the description of a column in its Arrow metadata.
pub(super) const DESCRIPTION: &str = "description";

/// A row of a table. Its fields are the columns.
pub(super) trait TableRow: Serialize + DeserializeOwned {
    /// The heading of the table in the documentation.
    const NAME: &str;

    /// The number of rows in memory while a table is read.
    const BATCH_ROWS: usize = 64;

    /// The number of rows per row group of a published table.
    const ROWS_PER_GROUP: usize = 100_000;

    /// Returns the approximate size of the row in memory, in bytes. Rows without headers take a few kilobytes.
    fn memory(&self) -> usize {
        16 << 10
    }

    /// Adds the settings of a published table.
    fn published(properties: WriterPropertiesBuilder) -> WriterPropertiesBuilder {
        properties
    }
}

/// Marks a table as sorted by columns. Most queries look for single repositories or owners.
pub(super) fn sorted_by(
    columns: &[i32],
    properties: WriterPropertiesBuilder,
) -> WriterPropertiesBuilder {
    let ascending = |column_idx: &i32| SortingColumn {
        column_idx: *column_idx,
        descending: false,
        nulls_first: false,
    };
    let properties = properties.set_sorting_columns(Some(columns.iter().map(ascending).collect()));
    properties.set_column_bloom_filter_enabled("repo".into(), true)
}

/// Returns the schema of a row type.
pub(super) fn schema<Row: TableRow>() -> SchemaRef {
    // Schemas are needed for each batch, and building one takes milliseconds.
    static SCHEMAS: Mutex<BTreeMap<&str, SchemaRef>> = Mutex::new(BTreeMap::new());
    let mut schemas = SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(schemas.entry(Row::NAME).or_insert_with(new_schema::<Row>))
}

fn new_schema<Row: TableRow>() -> SchemaRef {
    let options = TracingOptions::default()
        .strings_as_large_utf8(false)
        .sequence_as_large_list(false)
        .bytes_as_large_binary(false);
    // Cannot fail: the row types are fixed, and a test covers them.
    let fields = Vec::<FieldRef>::from_type::<Row>(options).unwrap_or_default();
    let (_, page) = CENSUS_PAGE.split_once(&format!("\n# {}\n", Row::NAME)).unwrap_or_default();
    let description = |name: &str| {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        row.and_then(|row| row.split('|').nth(3)).unwrap_or_default().trim().to_owned()
    };
    let fields = fields.into_iter().map(|field| {
        let data_type = match &**field.name() {
            name if TIMES.contains(&name) => {
                DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
            }
            // pandas cannot read lists of hashes of a fixed size.
            name if is_digest(name) && *field.data_type() == DataType::Binary => {
                DataType::FixedSizeBinary(32)
            }
            _ => field.data_type().clone(),
        };
        let description = (DESCRIPTION.to_owned(), description(field.name()));
        let field = Field::new(field.name(), data_type, field.is_nullable());
        field.with_metadata(HashMap::from([description]))
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Converts rows to a record batch.
pub(super) fn to_batch<Row: TableRow>(rows: &[Row]) -> Result<RecordBatch, serde_arrow::Error> {
    serde_arrow::to_record_batch(schema::<Row>().fields(), &rows)
}

pub(super) fn writer_properties() -> WriterPropertiesBuilder {
    let level = ZstdLevel::try_new(ZSTD_LEVEL).unwrap_or_default();
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_bytes(Some(MAX_ROW_GROUP_BYTES))
}

/// Writes a table row by row. Buffers at most a few megabytes.
pub(super) struct TableWriter<W: Write + Send, Row> {
    writer: ArrowWriter<W>,
    /// The name of the file, for error messages.
    name: PathBuf,
    buffered: Vec<Row>,
    bytes: usize,
}

impl<W: Write + Send, Row: TableRow> TableWriter<W, Row> {
    /// Starts a table with metadata in its footer.
    fn new(
        output: W,
        name: PathBuf,
        footer: &impl Serialize,
        properties: WriterPropertiesBuilder,
    ) -> Result<Self, CensusError> {
        let footer = KeyValue::new(FOOTER_KEY.to_owned(), serde_json::to_string(footer).ok());
        let properties = properties.set_key_value_metadata(Some(vec![footer])).build();
        let writer = ArrowWriter::try_new(output, schema::<Row>(), Some(properties));
        let writer = writer.map_err(|error| write_failed(&name, error))?;
        Ok(Self { writer, name, buffered: Vec::new(), bytes: 0 })
    }

    pub(super) fn write(&mut self, row: Row) -> Result<(), CensusError> {
        self.bytes += row.memory();
        self.buffered.push(row);
        if self.bytes >= MAX_BUFFERED_BYTES { self.flush() } else { Ok(()) }
    }

    /// Ends the current row group. Returns the number of row groups.
    pub(super) fn end_row_group(&mut self) -> Result<usize, CensusError> {
        self.flush()?;
        self.writer.flush().map_err(|error| write_failed(&self.name, error))?;
        Ok(self.writer.flushed_row_groups().len())
    }

    fn flush(&mut self) -> Result<(), CensusError> {
        self.bytes = 0;
        let rows = std::mem::take(&mut self.buffered);
        self.write_batch(&rows)
    }

    fn write_batch(&mut self, rows: &[Row]) -> Result<(), CensusError> {
        let batch = to_batch(rows).map_err(failed_to("write", &self.name))?;
        self.writer.write(&batch).map_err(|error| write_failed(&self.name, error))
    }

    fn finish(mut self) -> Result<W, CensusError> {
        self.flush()?;
        self.writer.into_inner().map_err(|error| write_failed(&self.name, error))
    }
}

impl<Row: TableRow> TableWriter<File, Row> {
    /// Starts a table in a temporary file.
    pub(super) fn temporary(
        footer: &impl Serialize,
        properties: WriterPropertiesBuilder,
    ) -> Result<Self, CensusError> {
        Self::new(temporary_file()?, std::env::temp_dir(), footer, properties)
    }

    /// Starts a table for publication.
    pub(super) fn published(
        output: File,
        name: &Path,
        footer: &impl Serialize,
    ) -> Result<Self, CensusError> {
        let properties = Row::published(writer_properties())
            .set_max_row_group_row_count(Some(Row::ROWS_PER_GROUP))
            .set_content_defined_chunking(Some(CdcOptions::default()));
        Self::new(output, name.to_owned(), footer, properties)
    }

    /// Ends the table, and waits until it is on the disk.
    pub(super) fn close(self) -> Result<(), CensusError> {
        let name = self.name.clone();
        self.finish()?.sync_all().map_err(failed_to("write", name))
    }

    /// Returns the file, rewound to its start.
    pub(super) fn into_reader(self) -> Result<File, CensusError> {
        let name = self.name.clone();
        let mut file = self.finish()?;
        file.rewind().map_err(failed_to("read", name))?;
        Ok(file)
    }
}

/// Returns the error for a table that cannot be written. The library wraps file errors, such as a full disk.
fn write_failed(name: &Path, error: ParquetError) -> CensusError {
    let source = match error {
        ParquetError::External(source) => source,
        error => error.into(),
    };
    failed_to("write", name)(source)
}

/// Creates an empty temporary file. It is deleted when it is closed, even if the process is killed.
pub(super) fn temporary_file() -> Result<File, CensusError> {
    tempfile::tempfile().map_err(failed_to("write", std::env::temp_dir()))
}

/// Encodes rows as a file, with metadata in its footer.
pub(super) fn encode<Row: TableRow>(
    name: &str,
    rows: &[Row],
    footer: &impl Serialize,
) -> Result<Vec<u8>, CensusError> {
    let mut writer = TableWriter::new(Vec::new(), name.into(), footer, writer_properties())?;
    writer.write_batch(rows)?;
    writer.finish()
}

/// Writes a table for publication to a local file. Returns the number of rows.
///
/// It has a page index and content-defined chunks, so that chunk-based storage deduplicates the common parts of two
/// versions. It is written to a temporary name and renamed, so that it is never incomplete. If writing fails, nothing
/// remains. Links are followed, and special files such as pipes are not replaced.
pub(super) fn publish<Row: TableRow>(
    file: &Path,
    footer: &impl Serialize,
    rows: impl IntoIterator<Item = Result<Row, CensusError>>,
) -> Result<usize, CensusError> {
    let target = replaceable(file)?;
    let temporary = with_suffix(&target, ".part");
    let written = write_published(&temporary, file, footer, rows);
    let renamed = written.and_then(|rows| {
        fs::rename(&temporary, &target).map_err(failed_to("write", file))?;
        Ok(rows)
    });
    if renamed.is_err() {
        // Otherwise a full disk would stay full. Errors are ignored, because the first error is reported.
        let _ = fs::remove_file(&temporary);
    }
    renamed
}

fn write_published<Row: TableRow>(
    output: &Path,
    name: &Path,
    footer: &impl Serialize,
    rows: impl IntoIterator<Item = Result<Row, CensusError>>,
) -> Result<usize, CensusError> {
    let output = File::create(output).map_err(failed_to("write", name))?;
    let mut writer = TableWriter::published(output, name, footer)?;
    let mut written = 0;
    for row in rows {
        writer.write(row?)?;
        written += 1;
    }
    writer.close()?;
    Ok(written)
}

/// Returns the file with all links resolved, if it can be replaced.
pub(super) fn replaceable(file: &Path) -> Result<PathBuf, CensusError> {
    let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    if target.exists() && !target.is_file() {
        return Err(failed_to("write", file)(io::Error::other("it is not a regular file")));
    }
    Ok(target)
}

/// Returns the path with text appended to its last name.
pub(super) fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns the metadata in the footer of a file; `None` if it has none of this type.
pub(super) fn read_footer<Footer: DeserializeOwned>(file: &impl ChunkReader) -> Option<Footer> {
    let metadata = ArrowReaderMetadata::load(file, ArrowReaderOptions::default()).ok()?;
    let pairs = metadata.metadata().file_metadata().key_value_metadata()?;
    let text = pairs.iter().find(|pair| pair.key == FOOTER_KEY)?.value.as_ref()?;
    serde_json::from_str(text).ok()
}

/// Iterates over the rows of a local table.
pub(super) fn open_rows<Row: TableRow>(
    file: &Path,
) -> Result<impl Iterator<Item = Result<Row, CensusError>> + use<Row>, CensusError> {
    let opened = File::open(file).map_err(failed_to("read", file))?;
    each_row(&file.display().to_string(), opened)
}

/// Iterates over the rows of a table. Errors contain the file name.
pub(super) fn each_row<Row: TableRow, Input: ChunkReader + 'static>(
    name: &str,
    file: Input,
) -> Result<impl Iterator<Item = Result<Row, CensusError>> + use<Row, Input>, CensusError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file);
    let batches = builder.and_then(|builder| builder.with_batch_size(Row::BATCH_ROWS).build());
    let batches = batches.map_err(table_failed(name))?;
    Ok(rows_in(name, batches))
}

/// Iterates over the rows of some row groups of a temporary table, in this order.
pub(super) fn row_groups<Row: TableRow>(
    file: File,
    groups: Vec<usize>,
) -> Result<impl Iterator<Item = Result<Row, CensusError>> + use<Row>, CensusError> {
    let name = std::env::temp_dir().display().to_string();
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).and_then(|builder| {
        builder.with_row_groups(groups).with_batch_size(Row::BATCH_ROWS).build()
    });
    let batches = builder.map_err(table_failed(&name))?;
    Ok(rows_in(&name, batches))
}

/// Iterates over the rows of record batches with the columns of a table.
pub(super) fn rows_in<Row: TableRow, Batches>(
    name: &str,
    batches: Batches,
) -> impl Iterator<Item = Result<Row, CensusError>> + use<Row, Batches>
where
    Batches: Iterator<Item = Result<RecordBatch, ArrowError>>,
{
    rows_of(name, batches, |batch| Ok(serde_arrow::from_record_batch(batch)?))
}

/// Iterates over the rows of record batches.
pub(super) fn rows_of<Row, Batches, Convert>(
    name: &str,
    batches: Batches,
    convert: Convert,
) -> impl Iterator<Item = Result<Row, CensusError>> + use<Row, Batches, Convert>
where
    Batches: Iterator<Item = Result<RecordBatch, ArrowError>>,
    Convert: Fn(&RecordBatch) -> Result<Vec<Row>, BoxError>,
{
    let failed = table_failed::<BoxError>(name);
    let rows = batches.map(move |batch| convert(&batch?));
    rows.map(move |rows| rows.map_err(&failed)).flatten_ok()
}

/// Returns a function that adds the name of the table to an error.
pub(super) fn table_failed<E: Into<BoxError>>(name: &str) -> impl Fn(E) -> CensusError + use<E> {
    let file = name.to_owned();
    move |source| CensusError::Table { file: file.clone(), source: source.into() }
}
