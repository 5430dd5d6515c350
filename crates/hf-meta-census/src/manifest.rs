//! Manifests: the lists of repositories to read.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array as _, ArrayRef, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use arrow_select::take::take;
use itertools::{Either, Itertools};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::{BoxError, Result, failed_to, unusable};
use super::stored_header::{hexadecimal, short_hash};
use super::table::{TableRow, rows_of, schema, table_failed};
use hf_meta::{Endpoint, Source};
use hf_meta_repo_list::{self as repo_list, ListedName};

/// The number of repositories per part.
pub(super) const REPOS_PER_PART: usize = 256;

/// The first bytes of a Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// A list of repositories: a Parquet file, a CSV file, or one name per line.
///
/// The names of the tables depend on the order and content of the list, so a census can only be resumed with the same
/// list.
#[derive(Debug)]
pub struct Manifest {
    repos: Repos,
    rows: usize,
    /// A short hash of all names and commits.
    pub(super) digest: String,
    /// The indexes of repeated names.
    duplicates: HashSet<usize>,
}

#[derive(Debug)]
enum Repos {
    Names(Vec<ListedName>),
    Parquet(ParquetTable),
}

/// A Parquet file and its name column.
#[derive(Debug)]
struct ParquetTable {
    name: String,
    file: File,
    metadata: ArrowReaderMetadata,
    column: String,
}

impl Manifest {
    /// Opens a file, or stdin if the path is `-`. In a table, the repository names are in `column`, which defaults to
    /// `repo`, `id`, `modelId` or `repository`.
    ///
    /// A file that starts with the Parquet magic bytes is a Parquet file. A file with the extension `.jsonl` or `.ndjson`
    /// has a JSON object on each line. A file with the extension `.csv` is a CSV file with a header row, and so is any
    /// other file if `column` is given. Otherwise, each line is a name; lines that start with `#` are comments. A name
    /// can have a revision, as in `org/name@main`, or be the URL of a page of the public Hub.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, has no such column, contains no repositories, contains a repository
    /// with two revisions, or has a column of a known name that cannot be read.
    pub fn open(path: &Path, column: Option<&str>) -> Result<Self> {
        let repos = Repos::open(path, column)?;
        if let Repos::Parquet(table) = &repos {
            check_columns(&table.name, table.metadata.schema(), &table.column)?;
        }
        Self::new(path, repos)
    }

    /// Creates a manifest from repository names.
    ///
    /// # Errors
    ///
    /// Returns an error if the list is empty, or if a repository has two revisions.
    pub fn from_names(names: impl IntoIterator<Item = String>) -> Result<Self> {
        let names = names.into_iter().map(ListedName::from).collect();
        Self::new(Path::new("-"), Repos::Names(names))
    }

    fn new(name: &Path, repos: Repos) -> Result<Self> {
        let mut manifest =
            Self { repos, rows: 0, digest: String::new(), duplicates: HashSet::new() };
        let (mut revisions, mut digest, mut has_names) = (HashMap::new(), Sha256::new(), false);
        for repo in manifest.repos.names()? {
            let mut repo = repo?;
            has_names |= repo.normalize();
            let ListedRepo { repo, commit, .. } = repo;
            let revision = commit.unwrap_or_default();
            // Shorter hashes could collide.
            let hash: [u8; 16] = short_hash(&repo);
            digest.update(hash);
            digest.update(&revision);
            digest.update("\n");
            let revision = short_hash(&revision).first_chunk::<8>().copied();
            if let Some(first) = revisions.insert(hash, revision) {
                // A census has one row per name.
                if first != revision {
                    return Err(unusable(name, &format!("contains `{repo}` with two revisions")));
                }
                manifest.duplicates.insert(manifest.rows);
            }
            manifest.rows += 1;
        }
        if manifest.rows == 0 {
            return Err(unusable(name, "contains no repositories"));
        }
        if !has_names {
            return Err(unusable(name, "contains no repository names, only other text"));
        }
        manifest.digest = hexadecimal(&digest.finalize()[..8]);
        Ok(manifest)
    }

    /// Returns the number of distinct repositories.
    pub fn repos(&self) -> usize {
        self.rows - self.duplicates.len()
    }

    /// Returns the number of repeated names. A repeated name is read once.
    pub fn duplicates(&self) -> usize {
        self.duplicates.len()
    }

    /// Returns the number of parts of up to 256 repositories.
    pub fn parts(&self) -> usize {
        self.part_numbers().count()
    }

    /// Returns the numbers of the parts. A part of nothing but repeated names does not exist.
    pub(super) fn part_numbers(&self) -> impl Iterator<Item = usize> {
        (0..self.rows.div_ceil(REPOS_PER_PART)).filter(|part| self.part_len(*part) > 0)
    }

    /// Returns the number of repositories in a part.
    pub(super) fn part_len(&self, part: usize) -> usize {
        self.part_rows(part).filter(|row| !self.duplicates.contains(row)).count()
    }

    fn part_rows(&self, part: usize) -> Range<usize> {
        part * REPOS_PER_PART..self.rows.min((part + 1) * REPOS_PER_PART)
    }

    /// Returns the repositories in a part.
    pub(super) fn part(&self, part: usize) -> Result<Vec<ListedRepo>> {
        let rows = self.part_rows(part);
        let repos: Vec<_> = match &self.repos {
            Repos::Names(names) => names[rows.clone()].iter().map(ListedRepo::from).collect(),
            Repos::Parquet(table) => table.read(Some(&rows))?.try_collect()?,
        };
        let repos = rows.zip(repos).filter(|(at, _)| !self.duplicates.contains(at));
        Ok(repos.map(|(_, repo)| repo).update(|repo| _ = repo.normalize()).collect())
    }
}

impl Repos {
    fn open(path: &Path, column: Option<&str>) -> Result<Self> {
        let cannot_read = failed_to("read", path);
        let (mut file, mut start) = (repo_list::open(path).map_err(&cannot_read)?, Vec::new());
        let is_file = path != Path::new("-");
        file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut start).map_err(&cannot_read)?;
        if is_file && start == MAGIC {
            return Ok(Self::Parquet(ParquetTable::open(path, column)?));
        }
        let text = repo_list::read(start.chain(file)).map_err(cannot_read)?;
        let names = repo_list::parse(path, &text, column);
        names.map(Self::Names).map_err(|error| unusable(path, &error.to_string()))
    }

    /// Returns all names, without missing ones.
    fn listed_names(&self) -> Result<Vec<ListedName>> {
        let table = match self {
            Self::Names(names) => return Ok(names.clone()),
            Self::Parquet(table) => table.read(None)?,
        };
        let names = table.map_ok(|repo| ListedName::from(repo.repo));
        names.filter_ok(|repo| !repo.name.is_empty()).collect()
    }

    /// Iterates over all repositories, of which only the names and commits are read.
    fn names(&self) -> Result<impl Iterator<Item = Result<ListedRepo>>> {
        Ok(match self {
            Self::Names(names) => Either::Left(names.iter().map(ListedRepo::from).map(Ok)),
            Self::Parquet(table) => Either::Right(table.read(None)?),
        })
    }
}

impl ParquetTable {
    fn open(path: &Path, column: Option<&str>) -> Result<Self> {
        let (name, file) = (path.display().to_string(), File::open(path));
        let file = file.map_err(failed_to("read", path))?;
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::default());
        let metadata = metadata.map_err(table_failed(&name))?;
        let column = name_column(&name, metadata.schema(), &repo_list::columns(column))?;
        Ok(Self { name, file, metadata, column })
    }

    /// Iterates over a range of rows; without one, over all rows, of which only the names and commits are read.
    fn read(
        &self,
        range: Option<&Range<usize>>,
    ) -> Result<impl Iterator<Item = Result<ListedRepo>> + use<'_>> {
        let file = self.file.try_clone().map_err(failed_to("read", &self.name))?;
        let mut reader =
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone());
        if let Some(rows) = range {
            reader = reader.with_offset(rows.start).with_limit(rows.len());
            reader = reader.with_batch_size(rows.len());
        }
        let is_read = |name: &str| range.is_some() || matches!(name, "repo" | "commit");
        let (found, wanted) = (self.metadata.schema(), schema::<ListedRepo>());
        let fields = wanted.fields().iter().filter(|field| is_read(field.name()));
        let columns = fields.filter_map(|field| find_column(found, field, &self.column));
        let mask = ProjectionMask::roots(reader.parquet_schema(), columns);
        let batches = reader.with_projection(mask).build().map_err(table_failed(&self.name))?;
        Ok(rows_of(&self.name, batches, |batch| from_columns(batch, &self.column)))
    }
}

/// Returns all names in a file that [`Manifest::open`] can open, including repeated ones. A Parquet file may have rows
/// without a name, which are left out.
///
/// # Errors
///
/// Returns an error if the file cannot be read or has no column of names.
pub fn read_names(path: &Path, column: Option<&str>) -> Result<Vec<ListedName>> {
    Repos::open(path, column)?.listed_names()
}

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
    /// The model type in `config.json`, such as `llama`.
    pub model_type: Option<String>,
    /// The base models, as tagged.
    pub base_models: Option<Vec<String>>,
    /// The relation to the base models: `adapter`, `finetune`, `merge` or `quantized`.
    pub base_model_relation: Option<String>,
    /// The number of likes.
    pub likes: Option<i64>,
    /// The tags of the Hub.
    pub tags: Option<Vec<String>>,
}

impl TableRow for ListedRepo {
    const NAME: &str = "A list of repositories";

    /// A part is read from one or two row groups.
    const ROWS_PER_GROUP: usize = 10_000;
}

impl ListedRepo {
    /// Creates a repository from its name.
    pub fn new(repo: impl Into<String>) -> Self {
        Self { repo: repo.into(), ..Self::default() }
    }

    /// Replaces the URL of a page of the public Hub, or `org/name@revision`, with the name and the revision. Returns
    /// whether the result is a repository name.
    pub(super) fn normalize(&mut self) -> bool {
        match Source::parse(&self.repo, &PUBLIC_HUB) {
            Ok(Source::Repo { repo: name, revision, path: None }) => {
                self.repo = name.to_string();
                self.commit = self.commit.take().or(revision.map(|revision| revision.to_string()));
                true
            }
            source => source.is_ok(),
        }
    }
}

impl From<&ListedName> for ListedRepo {
    fn from(listed: &ListedName) -> Self {
        Self { commit: listed.commit.clone(), ..Self::new(&listed.name) }
    }
}

static PUBLIC_HUB: LazyLock<Endpoint> = LazyLock::new(Endpoint::default);

/// Returns the column with the names of the repositories: the first candidate that contains text.
pub(super) fn name_column(table: &str, found: &Schema, candidates: &[&str]) -> Result<String> {
    let columns = candidates.iter().filter_map(|name| found.field_with_name(name).ok());
    let is_text = |field: &&Field| is_similar(field.data_type(), &DataType::Utf8);
    let Some(names) = columns.clone().find(is_text).or_else(|| columns.clone().next()) else {
        let existing: Vec<_> = found.fields().iter().map(|field| field.name().as_str()).collect();
        let [wanted, existing] = [candidates, &existing].map(|names| names.join("`, `"));
        return Err(unusable(table, &format!("has no column `{wanted}`, only `{existing}`")));
    };
    if !is_text(&names) {
        return Err(unusable(table, &format!("has no text in column `{}`", names.name())));
    }
    Ok(names.name().clone())
}

/// Checks the types of all columns that a manifest has. `names` is the column with the names of the repositories.
pub(super) fn check_columns(table: &str, found: &Schema, names: &str) -> Result<()> {
    for field in schema::<ListedRepo>().fields() {
        let Some(at) = find_column(found, field, names) else { continue };
        let (column, expected) = (found.field(at), field.data_type());
        if !is_similar(column.data_type(), expected) {
            let (name, data_type) = (column.name(), column.data_type());
            let reason = format!("has the type {data_type} in column `{name}`, not {expected}");
            return Err(unusable(table, &reason));
        }
    }
    Ok(())
}

/// Returns the repositories of a table. `names` is the column with their names. Values of missing columns are unknown.
pub(super) fn from_columns(batch: &RecordBatch, names: &str) -> Result<Vec<ListedRepo>, BoxError> {
    let (found, wanted) = (batch.schema(), schema::<ListedRepo>());
    let mut columns = Vec::new();
    for field in wanted.fields() {
        let Some(at) = find_column(&found, field, names) else { continue };
        let mut column = converted(found.field(at).name(), batch.column(at))?;
        if field.name() == "repo" {
            // A missing name becomes a row with an error.
            let repos = text(&column);
            let repos = repos.iter().map(|repo| Some(repo.unwrap_or_default()));
            column = Arc::new(repos.collect::<StringArray>());
        }
        columns.push((field.name(), column));
    }
    Ok(serde_arrow::from_record_batch(&RecordBatch::try_from_iter(columns)?)?)
}

/// Returns the index of the column with the values of a field; `None` if there is none.
pub(super) fn find_column(schema: &Schema, field: &Field, names: &str) -> Option<usize> {
    let (at, _) = match &**field.name() {
        "repo" => schema.column_with_name(names),
        // The tables of a census have the number of files in this column, and no paths.
        "files" => {
            schema.column_with_name("files").filter(|(_, found)| !found.data_type().is_integer())
        }
        "commit" => repo_list::COMMITS.iter().find_map(|name| schema.column_with_name(name)),
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
        DataType::Dictionary(..) => {
            let dictionary = column.as_any_dictionary();
            take(dictionary.values(), dictionary.keys(), None)?
        }
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
    use std::fs;

    use arrow_array::LargeStringArray;
    use arrow_array::builder::{LargeListBuilder, StringViewBuilder};

    use super::*;
    use crate::CensusError;
    use crate::table::encode;

    fn open(name: &str, content: &[u8], column: Option<&str>) -> Result<Manifest, CensusError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        Manifest::open(&path, column)
    }

    fn names(manifest: &Manifest) -> Vec<String> {
        manifest.repos.listed_names().unwrap().into_iter().map(|repo| repo.name).collect()
    }

    #[test]
    fn lines_and_columns_are_names() {
        let lines = open("list.txt", b"gpt2\n# a comment\n\n a/b \ngpt2\n", None).unwrap();
        assert_eq!(names(&lines), ["gpt2", "a/b", "gpt2"]);
        assert_eq!((lines.repos(), lines.duplicates()), (2, 1));
        let twice = open("list.txt", b"a/b@v1\na/b@v2\n", None).unwrap_err();
        assert!(twice.to_string().ends_with("contains `a/b` with two revisions"), "{twice}");
        // The second part has only repeated names.
        let all: Vec<_> = (0..256).map(|n| format!("a/{n}")).collect();
        let joined = Manifest::from_names([&all[..], &all, &["b".to_owned()]].concat()).unwrap();
        assert_eq!((joined.parts(), joined.part_numbers().collect::<Vec<_>>()), (2, vec![0, 2]));
        let csv = b"likes,id\n1,gpt2\n2,a/b\n";
        assert_eq!(names(&open("list.csv", csv, None).unwrap()), ["gpt2", "a/b"]);
        assert_eq!(names(&open("list.txt", csv, Some("likes")).unwrap()), ["1", "2"]);
        for (name, content, column) in
            [("x.csv", &b"likes\n1\n"[..], None), ("x", b"", None), ("x", b"a\n1\n", Some("b"))]
        {
            let error = open(name, content, column).unwrap_err();
            assert!(matches!(error, CensusError::Manifest { .. }), "{error}");
        }
    }

    #[test]
    fn the_parts_of_a_table_are_its_rows() {
        let commit = Some("1".repeat(40));
        let repos: Vec<_> = (0..700)
            .map(|n| ListedRepo {
                commit: commit.clone(),
                files: Some(vec![n.to_string()]),
                ..ListedRepo::new(format!("a/{n}"))
            })
            .collect();
        let table = open("list", &encode("list", &repos, &()).unwrap(), None).unwrap();
        assert_eq!((table.parts(), table.repos()), (3, 700));
        let read: Vec<_> = (0..3).flat_map(|part| table.part(part).unwrap()).collect();
        assert_eq!(read, repos);
        assert!(names(&table).iter().eq(repos.iter().map(|repo| &repo.repo)));
        let other = open("list", &encode("list", &repos[1..], &()).unwrap(), None).unwrap();
        assert_ne!(other.digest, table.digest);
    }

    #[test]
    fn names_may_be_urls_and_have_revisions() {
        let list = b"https://huggingface.co/a/b/tree/v1\nc/d@main\n{\"id\":1}\n";
        let manifest = open("list.txt", list, None).unwrap();
        let repos = manifest.part(0).unwrap();
        let named = |name, commit: &str| ListedRepo {
            commit: Some(commit.to_owned()),
            ..ListedRepo::new(name)
        };
        let expected = [named("a/b", "v1"), named("c/d", "main"), ListedRepo::new("{\"id\":1}")];
        assert_eq!(repos, expected);
        let json = b"{\"id\": \"a/b\", \"sha\": \"v1\"}\n\n\"c/d\"\n";
        let repos = open("list.jsonl", json, None).unwrap().part(0).unwrap();
        assert_eq!(repos, [named("a/b", "v1"), ListedRepo::new("c/d")]);
        let csv = b"commit,repo\nv1,a/b\n,c/d\n";
        let repos = open("list.csv", csv, None).unwrap().part(0).unwrap();
        assert_eq!(repos, [named("a/b", "v1"), ListedRepo::new("c/d")]);
        for (name, content) in
            [("x", &b"id,likes\na/b,1\n"[..]), ("x.jsonl", b"{\"name\":1}"), ("x.jsonl", b"{")]
        {
            let error = open(name, content, None).unwrap_err();
            assert!(matches!(error, CensusError::Manifest { .. }), "{error}");
        }
    }

    #[test]
    fn a_missing_name_is_not_a_repository() {
        let column: ArrayRef = Arc::new(StringArray::from(vec![Some("a/b"), None, Some("c/d")]));
        let batch = RecordBatch::try_from_iter([("id", column)]).unwrap();
        let mut table =
            parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
        table.write(&batch).unwrap();
        let table = open("list", &table.into_inner().unwrap(), None).unwrap();
        assert_eq!(names(&table), ["a/b", "c/d"]);
    }

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

    /// The table of a census is a list, too, although its column `files` is a number.
    #[test]
    fn the_tables_of_a_census_are_lists() {
        let row =
            crate::CensusRow { files: Some(3), ..crate::CensusRow::new(ListedRepo::new("a/b")) };
        let table = open("list", &encode("list", &[row], &()).unwrap(), None).unwrap();
        assert_eq!(names(&table), ["a/b"]);
        assert_eq!(table.part(0).unwrap(), [ListedRepo::new("a/b")]);
    }

    /// Only the names are read, so other columns may have any type.
    #[test]
    fn names_are_read_from_tables_with_other_columns() {
        let columns: [(&str, ArrayRef); 2] = [
            ("repo", Arc::new(StringArray::from(vec!["a/b"]))),
            ("gated", Arc::new(arrow_array::BooleanArray::from(vec![true]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut table =
            parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
        table.write(&batch).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), table.into_inner().unwrap()).unwrap();
        assert_eq!(read_names(file.path(), None).unwrap()[0].name, "a/b");
        assert!(Manifest::open(file.path(), None).is_err());
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
        let error = check_columns("x", &gated.schema(), "repo").unwrap_err();
        assert!(error.to_string().contains("Boolean in column `gated`"), "{error}");
        let half = of("downloads", Arc::new(Float64Array::from(vec![0.5])));
        let error = from_columns(&half, "repo").unwrap_err();
        assert!(error.to_string().contains("`downloads` contains 0.5"), "{error}");
    }
}
