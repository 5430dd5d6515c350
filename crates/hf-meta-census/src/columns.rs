//! Converts the columns of tables that other programs write to the columns of a list.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array as _, ArrayRef, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use itertools::Itertools;

use super::error::BoxError;
use super::manifest::unusable;
use super::table::schema;
use super::{CensusError, ListedRepo};

/// The possible names of the commit column.
const COMMIT_COLUMNS: [&str; 2] = ["commit", "sha"];

/// Returns the column with the names of the repositories: the first candidate that contains text. Checks the types of all
/// columns that are read.
pub(super) fn name_column(
    table: &str,
    found: &Schema,
    candidates: &[&str],
) -> Result<String, CensusError> {
    let columns = candidates.iter().filter_map(|name| found.field_with_name(name).ok());
    let is_text = |field: &&Field| is_similar(field.data_type(), &DataType::Utf8);
    let names = match columns.clone().find(is_text).or_else(|| columns.clone().next()) {
        Some(field) if is_text(&field) => field.name().clone(),
        Some(field) => {
            return Err(unusable(table, &format!("has no text in column `{}`", field.name())));
        }
        None => {
            return Err(unusable(table, &format!("has no column `{}`", candidates.join("`, `"))));
        }
    };
    for field in schema::<ListedRepo>().fields() {
        let Some(at) = find_column(found, field, &names) else { continue };
        let (column, expected) = (found.field(at), field.data_type());
        if !is_similar(column.data_type(), expected) {
            let (name, data_type) = (column.name(), column.data_type());
            let reason = format!("has the type {data_type} in column `{name}`, not {expected}");
            return Err(unusable(table, &reason));
        }
    }
    Ok(names)
}

/// Returns the repositories of a table. `names` is the column with their names. Values of missing columns are unknown.
pub(super) fn from_columns(batch: &RecordBatch, names: &str) -> Result<Vec<ListedRepo>, BoxError> {
    let (found, wanted) = (batch.schema(), schema::<ListedRepo>());
    let columns = wanted.fields().iter().filter_map(|field| {
        let at = find_column(&found, field, names)?;
        let column = converted(found.field(at).name(), batch.column(at));
        Some(column.map(|column| match &**field.name() {
            // A missing name becomes a row with an error.
            "repo" => {
                let names = text(&column);
                let names = names.iter().map(|name| Some(name.unwrap_or_default()));
                (field.name(), Arc::new(names.collect::<StringArray>()) as ArrayRef)
            }
            _ => (field.name(), column),
        }))
    });
    let columns: Vec<_> = columns.try_collect()?;
    Ok(serde_arrow::from_record_batch(&RecordBatch::try_from_iter(columns)?)?)
}

/// Returns the index of the column with the values of a field; `None` if there is none.
pub(super) fn find_column(schema: &Schema, field: &Field, names: &str) -> Option<usize> {
    let (at, _) = match &**field.name() {
        "repo" => schema.column_with_name(names),
        "commit" => COMMIT_COLUMNS.iter().find_map(|name| schema.column_with_name(name)),
        name => schema.column_with_name(name),
    }?;
    Some(at)
}

/// Returns whether the values of a type have equivalents in the expected type. Libraries use different types for text,
/// lists and times, dictionaries for repeated text, and floating-point numbers for integers with missing values.
fn is_similar(found: &DataType, expected: &DataType) -> bool {
    use DataType::{
        Dictionary, Float64, Int64, LargeList, LargeUtf8, List, Null, Timestamp, Utf8, Utf8View,
    };
    match (found, expected) {
        (List(found) | LargeList(found), List(expected)) => {
            !matches!(found.data_type(), Dictionary(..))
                && is_similar(found.data_type(), expected.data_type())
        }
        (Dictionary(_, values), Utf8) => is_similar(values, expected),
        (Null, _) | (LargeUtf8 | Utf8View, Utf8) | (Timestamp(..), Timestamp(..)) => true,
        (found, Int64) => found.is_integer() || *found == Float64,
        (found, expected) => found == expected,
    }
}

/// Converts a column to a type that can be deserialized: dictionaries to text, times to milliseconds, and floating-point
/// numbers to integers.
fn converted(name: &str, column: &ArrayRef) -> Result<ArrayRef, BoxError> {
    Ok(match column.data_type() {
        DataType::Dictionary(..) => Arc::new(dictionary_text(column)),
        DataType::Timestamp(unit, _) => {
            let raw = column.to_data().into_builder().data_type(DataType::Int64).build()?;
            let raw: PrimitiveArray<Int64Type> = raw.into();
            Arc::new(match unit {
                TimeUnit::Second => raw.unary(|time| time.saturating_mul(1_000)),
                TimeUnit::Millisecond => raw,
                TimeUnit::Microsecond => raw.unary(|time| time.div_euclid(1_000)),
                TimeUnit::Nanosecond => raw.unary(|time| time.div_euclid(1_000_000)),
            })
        }
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>();
            let is_integer = |value: &f64| value.fract() == 0.0 && value.abs() < MAX_EXACT_INTEGER;
            let numbers = values.iter().flatten().filter(|value| !value.is_nan());
            if let Some(other) = numbers.into_iter().find(|value| !is_integer(value)) {
                return Err(format!("column `{name}` contains {other}, not an integer").into());
            }
            #[expect(clippy::cast_possible_truncation, reason = "the values are small integers")]
            let integer = |value: f64| (!value.is_nan()).then_some(value as i64);
            Arc::new(values.unary_opt::<_, Int64Type>(integer))
        }
        _ => Arc::clone(column),
    })
}

/// The smallest power of two above which a floating-point number may not be the integer that was meant.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Returns the text in a dictionary column.
fn dictionary_text(column: &ArrayRef) -> StringArray {
    let dictionary = column.as_any_dictionary();
    let values = text(dictionary.values());
    if values.is_empty() {
        return StringArray::new_null(column.len());
    }
    let keys = dictionary.normalized_keys().into_iter().enumerate();
    let value = |(row, key)| {
        (column.is_valid(row) && values.is_valid(key)).then(|| values.value(key).to_owned())
    };
    keys.map(value).collect()
}

/// Returns the text in a column.
fn text(column: &ArrayRef) -> StringArray {
    match column.data_type() {
        DataType::LargeUtf8 => column.as_string::<i64>().iter().collect(),
        DataType::Utf8View => column.as_string_view().iter().collect(),
        DataType::Utf8 => column.as_string::<i32>().clone(),
        _ => StringArray::new_null(column.len()),
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

    /// The types that `DuckDB`, pandas and Polars write.
    #[test]
    fn equivalent_types_are_converted_and_others_are_rejected() {
        use arrow_array::types::Int8Type;
        use arrow_array::{
            BooleanArray, DictionaryArray, Float64Array, NullArray, TimestampMicrosecondArray,
            UInt32Array,
        };
        let names: DictionaryArray<Int8Type> = ["a/b", "c/d", "a/b"].into_iter().collect();
        let library: DictionaryArray<Int8Type> = [None, Some("x"), None].into_iter().collect();
        let time =
            TimestampMicrosecondArray::from(vec![Some(1_704_164_645_123_456), None, Some(-1)]);
        let columns: [(&str, ArrayRef); 6] = [
            ("id", Arc::new(names)),
            ("library", Arc::new(library)),
            ("last_modified", Arc::new(time)),
            ("downloads", Arc::new(Float64Array::from(vec![Some(7.0), None, Some(f64::NAN)]))),
            ("hub_total", Arc::new(UInt32Array::from(vec![1, 2, 3]))),
            ("license", Arc::new(NullArray::new(3))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        assert_eq!(name_column("x", &batch.schema(), &["repo", "id"]).unwrap(), "id");
        let repos = from_columns(&batch, "id").unwrap();
        let expected = [
            ListedRepo {
                last_modified: Some(1_704_164_645_123),
                downloads: Some(7),
                hub_total: Some(1),
                ..ListedRepo::new("a/b")
            },
            ListedRepo {
                library: Some("x".to_owned()),
                hub_total: Some(2),
                ..ListedRepo::new("c/d")
            },
            ListedRepo { last_modified: Some(-1), hub_total: Some(3), ..ListedRepo::new("a/b") },
        ];
        assert_eq!(repos, expected);
        let names: ArrayRef = Arc::new(StringArray::from(vec!["a/b"]));
        let of = |name, column: ArrayRef| {
            RecordBatch::try_from_iter([("repo", Arc::clone(&names)), (name, column)]).unwrap()
        };
        let gated = of("gated", Arc::new(BooleanArray::from(vec![false])));
        let error = name_column("x", &gated.schema(), &["repo"]).unwrap_err();
        assert!(error.to_string().contains("Boolean in column `gated`"), "{error}");
        let half = of("downloads", Arc::new(Float64Array::from(vec![0.5])));
        let error = from_columns(&half, "repo").unwrap_err();
        assert!(error.to_string().contains("`downloads` contains 0.5"), "{error}");
    }
}
