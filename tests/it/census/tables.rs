//! The columns of the tables, and record batches.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hf_meta_census::arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use hf_meta_census::arrow_schema::{DataType, Schema};
use hf_meta_census::{
    Census, CensusRow, CensusRun, ListedRepo, Listing, Manifest, StoredHeader, TableRow, TensorRow,
    schema,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, GzipLevel, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::json;

use crate::hub::{Fault, File, LocalHub, Repo};
use crate::support;

/// A limit on outages, which the tests never reach.
const OUTAGE: Duration = Duration::from_secs(600);

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
    let page = include_str!("../../../crates/hf-meta-census/src/tables.md");
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
            let nullable = if field.is_nullable() { "?" } else { "" };
            (field.name().clone(), type_name(field.data_type()) + nullable)
        })
        .collect()
}

fn assert_documented<Row: TableRow>() {
    let schema = schema::<Row>();
    assert_eq!(documented(Row::NAME), columns(&schema));
    for field in schema.fields() {
        assert!(field.metadata()["description"].len() > 5, "{field}");
    }
    for key in Row::KEY {
        schema.field_with_name(key).unwrap();
    }
}

#[test]
fn the_columns_are_documented() {
    assert_documented::<CensusRow>();
    assert_documented::<StoredHeader>();
    assert_documented::<CensusRun>();
    assert_documented::<TensorRow>();
    assert_documented::<ListedRepo>();
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
    let rows = hf_meta_census::read_batch(&support::client(&hub), &repos, 4, OUTAGE, |_| ())
        .await
        .unwrap();
    assert_eq!(rows.schema(), schema::<CensusRow>());
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
    let error =
        hf_meta_census::read_batch(&support::client(&hub), &without_names, 4, OUTAGE, |_| ())
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
        let names = hf_meta_census::read_names(&file, None).unwrap();
        let names = names.into_iter().map(|repo| repo.name);
        assert!(names.eq(["gpt2", "org/model"]), "{codec:?}");
    }
}

/// The number of parameters of each file of a repository; `None` if it depends on other files.
fn parameters_of_files(target: &Path) -> BTreeMap<String, Vec<(String, Option<i64>)>> {
    let mut repos = BTreeMap::<_, Vec<_>>::new();
    for file in fs::read_dir(target.join("files")).unwrap() {
        for header in hf_meta_census::rows::<StoredHeader>(&file.unwrap().path()).unwrap() {
            let header = header.unwrap();
            let is_config = Path::new(&header.path).extension().is_some_and(|end| end == "json");
            assert!(!is_config || header.tensors == Some(0), "{}", header.path);
            repos.entry(header.repo).or_default().push((header.path, header.parameters));
        }
    }
    repos
}

#[tokio::test]
async fn a_pipeline_is_the_sum_of_its_components_and_a_model_of_its_files() {
    let hub = support::fixtures_hub();
    let (client, folder) = (support::client(&hub), tempfile::tempdir().unwrap());
    let (list, target) = (folder.path().join("list"), folder.path().join("census"));
    Listing::new().write(&client, &list).await.unwrap();
    let name = target.display().to_string();
    let census = Census::create(client.clone(), &name).unwrap();
    census.read(&Manifest::open(&list, None).unwrap()).await.unwrap();
    let rows = super::rows(&target);
    let pipeline = &rows["CompVis/stable-diffusion-v1-4"];
    let components = pipeline.components.iter().flatten();
    let components: Vec<_> = components.map(|set| (&*set.path, set.parameters)).collect();
    let expected = [
        ("unet/diffusion_pytorch_model.safetensors", 859_520_964),
        ("text_encoder/model.safetensors", 123_060_557),
        ("vae/diffusion_pytorch_model.safetensors", 83_653_863),
    ];
    assert_eq!(components, expected);
    let sum = expected.iter().map(|(_, parameters)| parameters).sum();
    assert_eq!((pipeline.kind.as_deref(), pipeline.parameter_total), (Some("pipeline"), Some(sum)));
    assert_eq!((pipeline.files, pipeline.is_complete), (Some(3), Some(true)), "{pipeline:?}");
    assert_eq!(pipeline.other_sets.as_ref().unwrap().len(), 3, "{pipeline:?}");
    let encoder = rows["sentence-transformers/LaBSE"].parameter_total;
    assert_eq!(encoder, Some(470_926_848 + 512 + 590_592));
    for name in ["example/lora", "example/lora-without-weights"] {
        let row = &rows[name];
        assert_eq!(
            (row.kind.as_deref(), row.is_complete),
            (Some("adapter"), Some(false)),
            "{name}"
        );
    }
    // Each file has its count, and they add up.
    let (files, mut unknown) = (parameters_of_files(&target), Vec::new());
    for (repo, row) in &rows {
        let (Some(files), Some(_)) = (files.get(repo), &row.path) else { continue };
        match files.iter().map(|(_, parameters)| *parameters).sum::<Option<i64>>() {
            Some(sum) => assert_eq!(Some(sum), row.parameter_total, "{repo}"),
            None => unknown.push(repo.as_str()),
        }
    }
    assert_eq!(unknown, ["RedHatAI/Llama-3.3-70B-Instruct-quantized.w4a16"]);
    // The stored headers have all components, and the Hub confirms them.
    census.count().await.unwrap();
    assert_eq!(super::rows(&target), rows);
    let (_, changes) = hf_meta_census::verify(&client, &name, 100, 0).await.unwrap();
    assert_eq!(changes, []);
    // Without a list of files, the components are listed. A missing one is an error.
    let list = || Manifest::from_names([pipeline.repo.clone()]).unwrap();
    let read = async |target: &str| {
        let target = folder.path().join(target);
        let census = Census::create(client.clone(), &target.display().to_string()).unwrap();
        census.read(&list()).await.unwrap();
        super::rows(&target)[&pipeline.repo].clone()
    };
    let named = read("named").await;
    assert_eq!((&named.components, &named.kind), (&pipeline.components, &pipeline.kind));
    hub.inject(|request, _| request.path.contains("/vae/").then(|| Fault::Status(404, vec![])));
    let missing = read("missing").await;
    assert_eq!((&*missing.status, missing.parameter_total), ("gone", None), "{missing:?}");
}

/// Each component takes a few requests, so a repository cannot have any number of them.
#[tokio::test]
async fn a_model_has_at_most_a_hundred_components() {
    let weights = || File::safetensors([("a", "F32", &[2][..])]);
    let repo = |name: &str, modules: usize| {
        let paths = (0..modules).map(|at| format!("{at}_Dense")).chain([String::new()]);
        let listed =
            paths.map(|path| json!({ "type": "sentence_transformers.models.Dense", "path": path }));
        let listed = json!(listed.collect::<Vec<_>>()).to_string();
        let index = Repo::new(name).file("modules.json", File::from_bytes(listed));
        (0..modules).fold(index.file("model.safetensors", weights()), |repo, at| {
            repo.file(&format!("{at}_Dense/model.safetensors"), weights())
        })
    };
    let malformed =
        repo("a/bad", 1).file("1_Dense/model.safetensors", File::from_bytes("no header"));
    let repos = [repo("a/few", 100), repo("a/many", 101), malformed];
    let hub = LocalHub::builder().repos(repos).start().unwrap();
    let (client, folder) = (support::client(&hub), tempfile::tempdir().unwrap());
    let (list, target) = (folder.path().join("list"), folder.path().join("census"));
    Listing::new().write(&client, &list).await.unwrap();
    let census = Census::create(client, &target.display().to_string()).unwrap();
    census.read(&Manifest::open(&list, None).unwrap()).await.unwrap();
    let rows = super::rows(&target);
    assert_eq!(rows["a/few"].parameter_total, Some(202), "{:?}", rows["a/few"]);
    let many = &rows["a/many"];
    assert_eq!((&*many.status, many.parameter_total), ("too_large", None), "{many:?}");
    let bad = &rows["a/bad"];
    assert_eq!((&*bad.status, bad.parameter_total), ("malformed", None), "{bad:?}");
    // The main set alone is not the model.
    census.count().await.unwrap();
    assert_eq!(super::rows(&target), rows);
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
