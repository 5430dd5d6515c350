//! Converts rows to Arrow record batches and back.

use std::sync::{Arc, LazyLock};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_arrow::schema::{SchemaLike, TracingOptions};

use super::{CensusError, CensusRow, ListedRepo, StoredHeader};

/// A row type with a fixed Arrow schema.
pub(super) trait ArrowRow: Serialize + DeserializeOwned {
    /// Returns the columns.
    fn fields() -> &'static [FieldRef];

    /// Returns the approximate size of the row in memory, in bytes. Rows without headers take a few kilobytes.
    fn size(&self) -> usize {
        16 << 10
    }
}

macro_rules! arrow_rows {
    ($($row:ty { $($methods:tt)* })*) => {
        $(impl ArrowRow for $row {
            fn fields() -> &'static [FieldRef] {
                static FIELDS: LazyLock<Vec<FieldRef>> = LazyLock::new(trace::<$row>);
                &FIELDS
            }

            $($methods)*
        })*
    };
}

arrow_rows! {
    CensusRow {}
    ListedRepo {}
    StoredHeader {
        fn size(&self) -> usize {
            self.header.len()
        }
    }
}

/// Columns with timestamps.
const TIMES: [&str; 3] = ["created_at", "last_modified", "read_at"];

/// Derives the columns of a row type from its fields.
fn trace<Row: ArrowRow>() -> Vec<FieldRef> {
    let options = TracingOptions::default()
        .strings_as_large_utf8(false)
        .sequence_as_large_list(false)
        .bytes_as_large_binary(false);
    // Cannot fail: the row types are fixed, and a test covers them.
    let fields = Vec::<FieldRef>::from_type::<Row>(options).unwrap_or_default();
    fields
        .into_iter()
        .map(|field| if TIMES.contains(&&**field.name()) { time(&field) } else { field })
        .collect()
}

fn time(field: &Field) -> FieldRef {
    let utc = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    Arc::new(Field::new(field.name(), utc, true))
}

/// Returns the schema of a row type.
pub(super) fn schema<Row: ArrowRow>() -> SchemaRef {
    Arc::new(Schema::new(Row::fields().to_vec()))
}

/// Converts rows to a record batch.
pub(super) fn to_batch<Row: ArrowRow>(rows: &[Row]) -> Result<RecordBatch, CensusError> {
    Ok(serde_arrow::to_record_batch(Row::fields(), &rows)?)
}

/// Converts a record batch to rows.
pub(super) fn from_batch<Row: ArrowRow>(batch: &RecordBatch) -> Result<Vec<Row>, CensusError> {
    Ok(serde_arrow::from_record_batch(batch)?)
}
