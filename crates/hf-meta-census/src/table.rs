//! Tables: rows as Arrow record batches and as Parquet files.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
use parquet::file::properties::{
    CdcOptions, EnabledStatistics, WriterProperties, WriterPropertiesBuilder,
};
use parquet::file::reader::ChunkReader;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_arrow::schema::{SchemaLike, TracingOptions};

use super::error::{BoxError, CensusError, Result, failed_to};

/// The documentation of all tables, which the descriptions of the columns come from.
const TABLES: &str = include_str!("tables.md");

/// The key of our metadata in the footer.
const FOOTER_KEY: &str = "hf-meta";

/// The compression level of `zstd`. Headers shrink to a tenth, and higher levels gain little.
const ZSTD_LEVEL: i32 = 3;

/// The number of bytes of a row group, all of which is in memory before it is written.
const MAX_ROW_GROUP_BYTES: usize = 12 << 20;

/// A row of a table. Its fields are the columns.
pub trait TableRow: Serialize + DeserializeOwned + Send + 'static {
    /// The heading of the table in [`docs::census`](hf_meta::docs::census).
    const NAME: &str;

    /// The columns that identify a row. A published table is sorted by the first two; empty for a table that is not
    /// sorted.
    const KEY: &[&str] = &[];

    /// The number of rows in memory while a table is read or written.
    const BATCH_ROWS: usize = 64;

    /// The number of rows per row group of a published table.
    const ROWS_PER_GROUP: usize = 100_000;
}

/// A row of a table that is merged from sorted parts.
pub(super) trait SortedRow: TableRow {
    /// Returns the values by which the table is sorted.
    fn key(&self) -> (&str, &str);
}

/// Returns the schema of a table: the fields of its rows, with the types and descriptions of the documentation.
pub fn schema<Row: TableRow>() -> SchemaRef {
    // Schemas are needed for each batch, and building one takes milliseconds.
    static SCHEMAS: Mutex<BTreeMap<&str, SchemaRef>> = Mutex::new(BTreeMap::new());
    let mut schemas = lock(&SCHEMAS);
    Arc::clone(schemas.entry(Row::NAME).or_insert_with(new_schema::<Row>))
}

fn new_schema<Row: TableRow>() -> SchemaRef {
    let options = TracingOptions::default()
        .strings_as_large_utf8(false)
        .sequence_as_large_list(false)
        .bytes_as_large_binary(false);
    // Cannot fail: the row types are fixed, and a test covers them.
    let fields = Vec::<FieldRef>::from_type::<Row>(options).unwrap_or_default();
    let fields = fields.into_iter().map(|field| {
        let name = field.name();
        let start = format!("| `{name}` |");
        let row = documentation::<Row>().lines().find(|line| line.starts_with(&start));
        let mut cells = row.unwrap_or_default().split('|').map(str::trim).skip(2);
        let data_type = match cells.next() {
            Some(cell) if cell.starts_with("timestamp") => {
                DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
            }
            // pandas cannot read lists of hashes of a fixed size.
            Some(cell) if cell.starts_with("digest") => DataType::FixedSizeBinary(32),
            _ => field.data_type().clone(),
        };
        let description = cells.next().unwrap_or_default().to_owned();
        let field = Field::new(name, data_type, field.is_nullable());
        field.with_metadata(HashMap::from([("description".to_owned(), description)]))
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Returns the description of a table, with a row for each column.
pub(super) fn documentation<Row: TableRow>() -> &'static str {
    let (_, section) = TABLES.split_once(&format!("\n# {}\n", Row::NAME)).unwrap_or_default();
    section.split("\n# ").next().unwrap_or_default().trim()
}

/// Locks a value. A panic of another holder does not matter.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts a number. The totals of a row were checked, and no other number is larger.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts rows to a record batch.
pub(super) fn to_batch<Row: TableRow>(rows: &[Row]) -> Result<RecordBatch, serde_arrow::Error> {
    serde_arrow::to_record_batch(schema::<Row>().fields(), &rows)
}

fn writer_properties() -> WriterPropertiesBuilder {
    let level = ZstdLevel::try_new(ZSTD_LEVEL).unwrap_or_default();
    WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_bytes(Some(MAX_ROW_GROUP_BYTES))
        // Headers do not repeat, and their first bytes are just their length.
        .set_column_dictionary_enabled("header".into(), false)
        .set_column_statistics_enabled("header".into(), EnabledStatistics::None)
}

/// Returns the settings of a sorted table. Most queries look for single repositories or owners.
fn sorted_properties<Row: TableRow>() -> WriterPropertiesBuilder {
    let schema = schema::<Row>();
    // The tensors of a file are in the order of its header.
    let columns = Row::KEY.iter().take(2).filter_map(|name| schema.index_of(name).ok());
    let columns = columns.filter_map(|column| i32::try_from(column).ok());
    let ascending =
        |column_idx| SortingColumn { column_idx, descending: false, nulls_first: false };
    let columns: Vec<_> = columns.map(ascending).collect();
    let is_sorted = !columns.is_empty();
    writer_properties()
        .set_sorting_columns(is_sorted.then_some(columns))
        .set_column_bloom_filter_enabled("repo".into(), is_sorted)
}

/// Writes a table in batches of rows.
pub(super) struct TableWriter<W: Write + Send, Row> {
    writer: ArrowWriter<W>,
    /// The name of the file, for error messages.
    name: PathBuf,
    row: PhantomData<Row>,
}

impl<W: Write + Send, Row: TableRow> TableWriter<W, Row> {
    /// Starts a table with metadata in its footer.
    fn new(
        output: W,
        name: PathBuf,
        footer: &impl Serialize,
        properties: WriterPropertiesBuilder,
    ) -> Result<Self> {
        let footer = KeyValue::new(FOOTER_KEY.to_owned(), serde_json::to_string(footer).ok());
        let properties = properties.set_key_value_metadata(Some(vec![footer])).build();
        let writer = ArrowWriter::try_new(output, schema::<Row>(), Some(properties));
        let writer = writer.map_err(|error| write_failed(&name, error))?;
        Ok(Self { writer, name, row: PhantomData })
    }

    fn write(&mut self, rows: &[Row]) -> Result<()> {
        let batch = to_batch(rows).map_err(failed_to("write", &self.name))?;
        self.writer.write(&batch).map_err(|error| write_failed(&self.name, error))
    }

    /// Writes all rows. Returns their number.
    pub(super) fn write_all(
        &mut self,
        rows: impl IntoIterator<Item = Result<Row>>,
    ) -> Result<usize> {
        let mut written = 0;
        for batch in &rows.into_iter().chunks(Row::BATCH_ROWS) {
            let batch: Vec<_> = batch.try_collect()?;
            written += batch.len();
            self.write(&batch)?;
        }
        Ok(written)
    }

    /// Ends the current row group. Returns the number of row groups.
    pub(super) fn end_row_group(&mut self) -> Result<usize> {
        self.writer.flush().map_err(|error| write_failed(&self.name, error))?;
        Ok(self.writer.flushed_row_groups().len())
    }

    fn finish(self) -> Result<W> {
        self.writer.into_inner().map_err(|error| write_failed(&self.name, error))
    }
}

impl<Row: TableRow> TableWriter<File, Row> {
    /// Starts a table in a temporary file, for rows in any order. It has no Bloom filters: filling one of 1 MB per row
    /// group would take longer than writing the rows.
    pub(super) fn unsorted() -> Result<Self> {
        Self::new(temporary_file()?, std::env::temp_dir(), &(), writer_properties())
    }

    /// Starts a sorted table in a temporary file.
    pub(super) fn sorted(footer: &impl Serialize) -> Result<Self> {
        let properties = sorted_properties::<Row>();
        Self::new(temporary_file()?, std::env::temp_dir(), footer, properties)
    }

    /// Returns the file, rewound to its start.
    pub(super) fn into_reader(self) -> Result<File> {
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
pub(super) fn temporary_file() -> Result<File> {
    tempfile::tempfile().map_err(failed_to("write", std::env::temp_dir()))
}

/// Encodes rows as a file, with metadata in its footer.
pub(super) fn encode<Row: TableRow>(
    name: &str,
    rows: &[Row],
    footer: &impl Serialize,
) -> Result<Vec<u8>> {
    let mut writer = TableWriter::new(Vec::new(), name.into(), footer, writer_properties())?;
    writer.write(rows)?;
    writer.finish()
}

/// Writes a table for publication to a local file. Returns the number of rows.
///
/// It has content-defined chunks, so that chunk-based storage deduplicates the common parts of two versions. It is
/// written to a temporary name and renamed, so that it is never incomplete. If writing fails, nothing remains. Links are
/// followed, and special files such as pipes are not replaced.
pub(super) fn publish<Row: TableRow>(
    file: &Path,
    footer: &impl Serialize,
    rows: impl IntoIterator<Item = Result<Row>>,
) -> Result<usize> {
    let target = replaceable(file)?;
    let temporary = with_suffix(&target, ".part");
    let cannot_write = failed_to::<io::Error>("write", file);
    let write = || {
        let output = File::create(&temporary).map_err(&cannot_write)?;
        let properties = sorted_properties::<Row>()
            .set_max_row_group_row_count(Some(Row::ROWS_PER_GROUP))
            .set_content_defined_chunking(Some(CdcOptions::default()));
        let mut writer = TableWriter::new(output, file.to_owned(), footer, properties)?;
        let written = writer.write_all(rows)?;
        writer.finish()?.sync_all().map_err(&cannot_write)?;
        fs::rename(&temporary, &target).map_err(&cannot_write)?;
        Ok(written)
    };
    write().inspect_err(|_| {
        // Otherwise a full disk would stay full. Errors are ignored, because the first error is reported.
        let _ = fs::remove_file(&temporary);
    })
}

/// Returns the file with all links resolved, if it can be replaced.
pub(super) fn replaceable(file: &Path) -> Result<PathBuf> {
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

/// Returns the rows of a table in a local Parquet file: a part, a packed file, or the output of [`Listing::write`].
///
/// # Errors
///
/// Returns an error if the file cannot be read or is a different table. Each item can also be an error.
///
/// [`Listing::write`]: crate::Listing::write
pub fn rows<Row: TableRow>(file: &Path) -> Result<impl Iterator<Item = Result<Row>> + use<Row>> {
    let opened = File::open(file).map_err(failed_to("read", file))?;
    each_row(&file.display().to_string(), opened, None)
}

/// Iterates over the rows of a table, or over those of some row groups in this order. Errors contain the file name.
pub(super) fn each_row<Row: TableRow, Input: ChunkReader + 'static>(
    name: &str,
    file: Input,
    groups: Option<Vec<usize>>,
) -> Result<impl Iterator<Item = Result<Row>> + use<Row, Input>> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(table_failed(name))?;
    let builder = match groups {
        Some(groups) => builder.with_row_groups(groups),
        None => builder,
    };
    let batches = builder.with_batch_size(Row::BATCH_ROWS).build().map_err(table_failed(name))?;
    Ok(rows_of(name, batches, |batch| Ok(serde_arrow::from_record_batch(batch)?)))
}

/// Iterates over the rows of record batches.
pub(super) fn rows_of<Row, Batches, Convert>(
    name: &str,
    batches: Batches,
    convert: Convert,
) -> impl Iterator<Item = Result<Row>> + use<Row, Batches, Convert>
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
