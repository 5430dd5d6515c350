//! The columns of the tables, and record batches.

use std::collections::BTreeMap;
use std::sync::Arc;

use hf_meta_census::arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use hf_meta_census::arrow_schema::{DataType, Schema};
use hf_meta_census::{files_schema, manifest_schema, repos_schema, runs_schema, tensors_schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::support;

/// The name of a type in the documentation.
fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8 => "string".to_owned(),
        DataType::Int64 => "int64".to_owned(),
        DataType::Float64 => "float64".to_owned(),
        DataType::Boolean => "bool".to_owned(),
        DataType::Binary => "binary".to_owned(),
        DataType::Timestamp(_, zone) => {
            assert_eq!(zone.as_deref(), Some("UTC"));
            "timestamp".to_owned()
        }
        DataType::List(item) => format!("list of {}", type_name(item.data_type())),
        DataType::Struct(_) => "struct".to_owned(),
        DataType::FixedSizeBinary(32) => "digest".to_owned(),
        other => panic!("{other} has no name"),
    }
}

/// The rows of the table below a heading: the columns with their types.
fn documented(heading: &str) -> Vec<(String, String)> {
    let page = include_str!("../../../src/docs/census.md");
    let (_, section) = page.split_once(&format!("\n# {heading}\n")).unwrap();
    let section = section.split("\n# ").next().unwrap();
    let table = section.split("| column | type | content |\n").nth(1).unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = row.split('|').skip(1).map(|cell| cell.trim().trim_matches('`').to_owned());
        (cells.next().unwrap(), cells.next().unwrap())
    })
    .collect()
}

fn columns(schema: &Schema) -> Vec<(String, String)> {
    let fields = schema.fields().iter();
    fields
        .map(|field| {
            let nullable = if field.is_nullable() { ", nullable" } else { "" };
            (field.name().clone(), type_name(field.data_type()) + nullable)
        })
        .collect()
}

#[test]
fn the_columns_are_documented() {
    assert_eq!(documented("The table `repos`"), columns(&repos_schema()));
    assert_eq!(documented("The table `files`"), columns(&files_schema()));
    assert_eq!(documented("The table `runs`"), columns(&runs_schema()));
    assert_eq!(documented("The table `tensors`"), columns(&tensors_schema()));
    assert_eq!(documented("A list of repositories"), columns(&manifest_schema()));
    let schemas =
        [repos_schema(), files_schema(), runs_schema(), tensors_schema(), manifest_schema()];
    for schema in schemas {
        for field in schema.fields() {
            assert!(field.metadata()["description"].len() > 5, "{field}");
        }
    }
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

#[tokio::test]
async fn a_record_batch_of_names_gives_a_record_batch_of_rows() {
    let hub = support::fixtures_hub();
    let names = ["gpt2", "org/none", "bigscience/bloom", "not a name", "gpt2"];
    let names: ArrayRef = Arc::new(StringArray::from(names.to_vec()));
    let notes: ArrayRef = Arc::new(StringArray::from(vec!["1", "2", "3", "4", "5"]));
    let repos = batch(vec![("note", notes), ("id", names)]);
    let rows = hf_meta_census::read_batch(&support::client(&hub), &repos, 4, |_| ()).await.unwrap();
    assert_eq!(rows.schema(), repos_schema());
    let text = |column: &str| {
        let column = rows.column_by_name(column).unwrap().as_any();
        let column = column.downcast_ref::<StringArray>().unwrap();
        column.iter().map(|text| text.unwrap_or("").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(text("repo"), ["gpt2", "org/none", "bigscience/bloom", "not a name", "gpt2"]);
    assert_eq!(text("status"), ["ok", "gone", "ok", "invalid_name", "ok"]);
    assert_eq!(text("error_kind")[3], "invalidSource");
    let totals = rows.column_by_name("parameter_total").unwrap();
    assert_eq!(totals.null_count(), 2);
    let without_names = batch(vec![("likes", Arc::new(StringArray::from(vec!["1"])))]);
    let error = hf_meta_census::read_batch(&support::client(&hub), &without_names, 4, |_| ())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("has no column `repo`"), "{error}");
}

/// pandas, Polars, `DuckDB` and Spark compress by different codecs.
#[test]
fn every_common_compression_of_lists_is_supported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("list.parquet");
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ];
    for codec in codecs {
        let names: ArrayRef = Arc::new(StringArray::from(vec!["gpt2", "org/model"]));
        let repos = batch(vec![("id", names)]);
        let properties = WriterProperties::builder().set_compression(codec).build();
        let output = std::fs::File::create(&file).unwrap();
        let mut writer = ArrowWriter::try_new(output, repos.schema(), Some(properties)).unwrap();
        writer.write(&repos).unwrap();
        writer.close().unwrap();
        let manifest = hf_meta_census::Manifest::open(&file, None).unwrap();
        let names = manifest.names().unwrap().into_iter().map(|repo| repo.name);
        assert!(names.eq(["gpt2", "org/model"]), "{codec:?}");
    }
}

/// The rows of the fixtures are what the command shows.
#[tokio::test]
async fn rows_have_what_the_command_shows() {
    let hub = support::fixtures_hub();
    let client = support::client(&hub);
    let folder = tempfile::tempdir().unwrap();
    let names = ["gpt2", "bigscience/bloom", "example/Llama-3.2-1B-GGUF", "openai/gpt-oss-20b"];
    let manifest = hf_meta_census::Manifest::from_names(names.map(str::to_owned)).unwrap();
    let target = folder.path().display().to_string();
    hf_meta_census::Census::create(client.clone(), &target).unwrap().read(&manifest).await.unwrap();
    let rows: BTreeMap<_, _> = super::rows(folder.path());
    for name in names {
        let (row, report) = (&rows[name], client.model(name).count().await.unwrap());
        let total = u64::try_from(row.parameter_total.unwrap()).unwrap();
        assert_eq!(total, report.parameter_count.total(), "{name}");
        assert_eq!(row.format.as_deref(), Some(report.format));
        assert_eq!(row.commit, report.commit.as_ref().map(ToString::to_string));
        let files = u64::try_from(row.files.unwrap()).unwrap();
        assert_eq!(files, report.file_count() as u64);
        assert_eq!(row.file_sha256.as_ref().unwrap().len() as u64, files, "{name}");
        assert_eq!(row.moe.is_some(), report.breakdown.moe.is_some(), "{name}");
        assert_eq!(
            row.dtypes.as_ref().unwrap().len(),
            report.parameter_count.rows().len(),
            "{name}"
        );
    }
}
