//! Reads and writes tables as Parquet files.

use std::fs::File;
use std::io::{self, Seek, Write};

use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{
    CdcOptions, EnabledStatistics, WriterProperties, WriterPropertiesBuilder,
};
use parquet::file::reader::ChunkReader;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::arrow::{ArrowRow, from_batch, schema, to_batch};
use super::storage::{temporary, temporary_failed, temporary_name};
use super::{CensusError, StoredHeader};

/// The key of our metadata in the footer.
const KEY: &str = "hf-meta";

/// The compression level of `zstd`. Headers shrink to a tenth, and higher levels gain little.
const LEVEL: i32 = 3;

/// The number of rows in memory while a table without headers is read.
pub(super) const ROWS_AT_ONCE: usize = 256;

/// The number of bytes of rows to buffer before they are encoded.
const MAX_WAITING: usize = 4 << 20;

/// The number of bytes of a row group to buffer before it is written.
const MAX_ROW_GROUP: usize = 16 << 20;

fn properties() -> WriterPropertiesBuilder {
    let level = ZstdLevel::try_new(LEVEL).unwrap_or_default();
    WriterProperties::builder().set_compression(Compression::ZSTD(level))
}

fn description(footer: &impl Serialize) -> Vec<KeyValue> {
    vec![KeyValue::new(KEY.to_owned(), serde_json::to_string(footer).ok())]
}

/// Encodes rows as a file, with metadata in its footer.
pub(super) fn write_rows<Row: ArrowRow>(
    rows: &[Row],
    footer: &impl Serialize,
) -> Result<Vec<u8>, CensusError> {
    let properties = properties().set_key_value_metadata(Some(description(footer))).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema::<Row>(), Some(properties))?;
    writer.write(&to_batch(rows)?)?;
    Ok(writer.into_inner()?)
}

/// Writes a table row by row. Buffers at most a few megabytes.
pub(super) struct TableWriter<W: Write + Send, Row> {
    writer: ArrowWriter<W>,
    /// The name of the file, for error messages.
    name: String,
    waiting: Vec<Row>,
    bytes: usize,
}

/// A header table in a temporary file, because the headers of a part may not fit in memory.
pub(super) type HeaderWriter = TableWriter<File, StoredHeader>;

impl<W: Write + Send, Row: ArrowRow> TableWriter<W, Row> {
    /// Starts a table for publication. It has a page index and content-defined chunks, so that chunk-based storage
    /// deduplicates the common parts of two versions.
    pub(super) fn published(
        output: W,
        name: String,
        footer: &impl Serialize,
        row_group: usize,
    ) -> Result<Self, CensusError> {
        let properties = properties()
            .set_max_row_group_row_count(Some(row_group))
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_content_defined_chunking(Some(CdcOptions::default()));
        Self::new(output, name, footer, properties)
    }

    fn new(
        output: W,
        name: String,
        footer: &impl Serialize,
        properties: WriterPropertiesBuilder,
    ) -> Result<Self, CensusError> {
        let properties = properties.set_key_value_metadata(Some(description(footer))).build();
        let writer = ArrowWriter::try_new(output, schema::<Row>(), Some(properties));
        let writer = writer.map_err(|error| write_failed(&name, error))?;
        Ok(Self { writer, name, waiting: Vec::new(), bytes: 0 })
    }

    pub(super) fn write(&mut self, row: Row) -> Result<(), CensusError> {
        self.bytes += row.size();
        self.waiting.push(row);
        if self.bytes >= MAX_WAITING { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), CensusError> {
        let mut written = self.writer.write(&to_batch(&self.waiting)?);
        self.waiting.clear();
        self.bytes = 0;
        if self.writer.in_progress_size() > MAX_ROW_GROUP {
            written = written.and_then(|()| self.writer.flush());
        }
        written.map_err(|error| write_failed(&self.name, error))
    }

    pub(super) fn finish(mut self) -> Result<W, CensusError> {
        self.flush()?;
        self.writer.into_inner().map_err(|error| write_failed(&self.name, error))
    }
}

impl HeaderWriter {
    /// Starts a header table.
    pub(super) fn headers(footer: &impl Serialize) -> Result<Self, CensusError> {
        // Headers do not repeat, and their first bytes are just their length.
        let properties = properties()
            .set_column_dictionary_enabled("header".into(), false)
            .set_column_statistics_enabled("header".into(), EnabledStatistics::None);
        Self::new(temporary()?, temporary_name(), footer, properties)
    }
}

impl<Row: ArrowRow> TableWriter<File, Row> {
    /// Returns the file, rewound to its start.
    pub(super) fn into_reader(self) -> Result<File, CensusError> {
        let mut file = self.finish()?;
        file.rewind().map_err(temporary_failed)?;
        Ok(file)
    }
}

/// Returns the error for a table that cannot be written. The library wraps file errors, such as a full disk.
fn write_failed(name: &str, error: ParquetError) -> CensusError {
    let source = match error {
        ParquetError::External(source) => source.downcast::<io::Error>(),
        error => return error.into(),
    };
    match source {
        Ok(source) => CensusError::File { action: "write", file: name.to_owned(), source: *source },
        Err(error) => ParquetError::External(error).into(),
    }
}

/// Returns the metadata in the footer of a file; `None` if it has none of this type.
pub(super) fn read_footer<Footer: DeserializeOwned>(file: &impl ChunkReader) -> Option<Footer> {
    let metadata = ArrowReaderMetadata::load(file, ArrowReaderOptions::default()).ok()?;
    let pairs = metadata.metadata().file_metadata().key_value_metadata()?;
    let text = pairs.iter().find(|pair| pair.key == KEY)?.value.as_ref()?;
    serde_json::from_str(text).ok()
}

/// Reads all rows of a table.
pub(super) fn read_all_rows<Row: ArrowRow>(
    name: String,
    file: Bytes,
) -> Result<Vec<Row>, CensusError> {
    each_row(name, file, ROWS_AT_ONCE)?.collect()
}

/// Iterates over the rows of a table, with `rows_at_once` rows in memory. Errors contain the file name.
pub(super) fn each_row<Row: ArrowRow>(
    name: String,
    file: impl ChunkReader + 'static,
    rows_at_once: usize,
) -> Result<impl Iterator<Item = Result<Row, CensusError>>, CensusError> {
    let failed = move |error: CensusError| error.in_table(&name);
    let builder = ParquetRecordBatchReaderBuilder::try_new(file);
    let batches = builder.and_then(|builder| builder.with_batch_size(rows_at_once).build());
    let batches = batches.map_err(|error| failed(error.into()))?;
    let rows = batches.map(|batch| from_batch(&batch.map_err(ParquetError::from)?));
    let rows = rows.map(move |rows| rows.map_err(&failed));
    Ok(rows.flat_map(|rows| match rows {
        Ok(rows) => rows.into_iter().map(Ok).collect::<Vec<_>>(),
        Err(error) => vec![Err(error)],
    }))
}
