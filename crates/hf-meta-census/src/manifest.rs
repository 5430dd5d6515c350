//! Manifests: the lists of repositories to read.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

use itertools::{Either, Itertools};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::CensusError;
use super::columns::{find_column, from_columns, name_column};
use super::error::failed_to;
use super::layout_digest::{hexadecimal, short_hash};
use super::table::{TableRow, rows_of, schema, table_failed};
use hf_meta::{Endpoint, Source};
use hf_meta_repo_list::{self as repo_list, ListedName};

/// The number of repositories per part. Parts are read one after the other.
pub(super) const REPOS_PER_PART: usize = 256;

/// The first bytes of a Parquet file.
const MAGIC: &[u8] = b"PAR1";

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
    #[must_use]
    pub fn new(repo: impl Into<String>) -> Self {
        Self { repo: repo.into(), ..Self::default() }
    }
}

impl From<&ListedName> for ListedRepo {
    fn from(listed: &ListedName) -> Self {
        Self { commit: listed.commit.clone(), ..Self::new(&listed.name) }
    }
}

static PUBLIC_HUB: LazyLock<Endpoint> = LazyLock::new(Endpoint::default);

/// Replaces the URL of a page of the public Hub, or `org/name@revision`, with the name and the revision. Returns whether
/// the result is a repository name.
pub(super) fn normalize(repo: &mut ListedRepo) -> bool {
    match Source::parse(&repo.repo, &PUBLIC_HUB) {
        Ok(Source::Repo { repo: name, revision, path: None }) => {
            repo.repo = name.to_string();
            repo.commit = repo.commit.take().or(revision.map(|revision| revision.to_string()));
            true
        }
        source => source.is_ok(),
    }
}

/// A list of repositories: a Parquet file, a CSV file, or one name per line.
///
/// The names of the tables depend on the order and content of the list, so a census can only be resumed with the same
/// list.
#[derive(Debug)]
pub struct Manifest {
    repos: Repos,
    rows: usize,
    digest: String,
    /// The indexes of repeated names.
    duplicates: HashSet<usize>,
    /// The number of repositories whose weights are GGUF files only, according to their tags.
    gguf: usize,
}

#[derive(Debug)]
enum Repos {
    Names(Vec<ListedName>),
    Parquet(ParquetTable),
}

type TableReader = ParquetRecordBatchReaderBuilder<File>;

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
    pub fn open(path: &Path, column: Option<&str>) -> Result<Self, CensusError> {
        let name = path.display().to_string();
        let cannot_read = failed_to("read", path);
        if path == Path::new("-") {
            let text = repo_list::read(io::stdin().lock()).map_err(&cannot_read)?;
            return Self::from_text(path, &text, column);
        }
        let mut file = File::open(path).map_err(&cannot_read)?;
        let mut start = Vec::new();
        (&mut file).take(MAGIC.len() as u64).read_to_end(&mut start).map_err(&cannot_read)?;
        if start == MAGIC {
            return Self::from_parquet(name, file, column);
        }
        let text = repo_list::read(start.chain(file)).map_err(cannot_read)?;
        Self::from_text(path, &text, column)
    }

    /// Creates a manifest from repository names.
    ///
    /// # Errors
    ///
    /// Returns an error if the list is empty, or if a repository has two revisions.
    pub fn from_names(names: impl IntoIterator<Item = String>) -> Result<Self, CensusError> {
        Self::new("-", Repos::Names(names.into_iter().map(ListedName::from).collect()))
    }

    fn from_text(path: &Path, text: &str, column: Option<&str>) -> Result<Self, CensusError> {
        let name = path.display().to_string();
        let names = repo_list::parse(path, text, column);
        let names = names.map_err(|error| unusable(path, &error.to_string()))?;
        Self::new(&name, Repos::Names(names))
    }

    fn from_parquet(name: String, file: File, column: Option<&str>) -> Result<Self, CensusError> {
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::default());
        let metadata = metadata.map_err(table_failed(&name))?;
        let column = name_column(&name, metadata.schema(), &repo_list::columns(column))?;
        Self::new(&name.clone(), Repos::Parquet(ParquetTable { name, file, metadata, column }))
    }

    fn new(name: &str, repos: Repos) -> Result<Self, CensusError> {
        let mut manifest =
            Self { repos, rows: 0, digest: String::new(), duplicates: HashSet::new(), gguf: 0 };
        let (mut names, mut digest) = (HashSet::new(), Sha256::new());
        let (mut has_names, mut repeated) = (false, HashMap::new());
        for repo in manifest.repos.names()? {
            let mut repo = repo?;
            has_names |= normalize(&mut repo);
            let ListedRepo { repo, commit, tags, .. } = repo;
            let has_tag = |name: &str| tags.iter().flatten().any(|tag| tag == name);
            manifest.gguf += usize::from(has_tag("gguf") && !has_tag("safetensors"));
            // Shorter hashes could collide.
            let hash: [u8; 16] = short_hash(&repo);
            digest.update(hash);
            digest.update(commit.as_deref().unwrap_or_default());
            digest.update("\n");
            if !names.insert(hash) {
                manifest.duplicates.insert(manifest.rows);
                repeated.insert(repo, commit);
            }
            manifest.rows += 1;
        }
        manifest.check_revisions(name, &repeated)?;
        if manifest.rows == 0 {
            return Err(unusable(name, "contains no repositories"));
        }
        if !has_names {
            return Err(unusable(name, "contains no repository names, only other text"));
        }
        manifest.digest = hexadecimal(&digest.finalize()[..8]);
        Ok(manifest)
    }

    /// Returns an error if a repeated name has two revisions, because a census has one row per name.
    fn check_revisions(
        &self,
        list: &str,
        repeated: &HashMap<String, Option<String>>,
    ) -> Result<(), CensusError> {
        if repeated.is_empty() {
            return Ok(());
        }
        for repo in self.repos.names()? {
            let mut repo = repo?;
            normalize(&mut repo);
            if repeated.get(&repo.repo).is_some_and(|commit| *commit != repo.commit) {
                let reason = format!("contains `{}` with two revisions", repo.repo);
                return Err(unusable(list, &reason));
            }
        }
        Ok(())
    }

    /// Returns the number of distinct repositories.
    #[must_use]
    pub fn repos(&self) -> usize {
        self.rows - self.duplicates.len()
    }

    /// Returns the number of repositories whose tags state that they have GGUF files and no safetensors files. The sizes of
    /// their files take a request to the API of the Hub.
    #[must_use]
    pub fn gguf_repos(&self) -> usize {
        self.gguf
    }

    /// Returns the number of repeated names. A repeated name is read once.
    #[must_use]
    pub fn duplicates(&self) -> usize {
        self.duplicates.len()
    }

    /// Returns all repository names, including repeated ones, without missing ones.
    ///
    /// # Errors
    ///
    /// Returns an error if a Parquet file cannot be read.
    pub fn names(&self) -> Result<Vec<ListedName>, CensusError> {
        let table = match &self.repos {
            Repos::Names(names) => return Ok(names.clone()),
            Repos::Parquet(table) => table.names()?,
        };
        let names = table.map_ok(|repo| ListedName::from(repo.repo));
        names.filter_ok(|repo| !repo.name.is_empty()).collect()
    }

    /// Returns the number of parts of up to 256 repositories.
    #[must_use]
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

    /// Returns a short hash of all names and commits.
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the repositories in a part.
    pub(super) fn part(&self, part: usize) -> Result<Vec<ListedRepo>, CensusError> {
        let rows = self.part_rows(part);
        let repos: Vec<_> = match &self.repos {
            Repos::Names(names) => names[rows.clone()].iter().map(ListedRepo::from).collect(),
            Repos::Parquet(table) => table.rows(&rows)?.try_collect()?,
        };
        let repos = rows.zip(repos).filter(|(at, _)| !self.duplicates.contains(at));
        let normalized = repos.map(|(_, mut repo)| {
            normalize(&mut repo);
            repo
        });
        Ok(normalized.collect())
    }
}

impl Repos {
    /// Iterates over all repositories, of which only the names, commits and tags are read.
    fn names(&self) -> Result<impl Iterator<Item = Result<ListedRepo, CensusError>>, CensusError> {
        Ok(match self {
            Self::Names(names) => Either::Left(names.iter().map(ListedRepo::from).map(Ok)),
            Self::Parquet(table) => Either::Right(table.names()?),
        })
    }
}

impl ParquetTable {
    /// Iterates over all rows, of which only the names, commits and tags are read.
    fn names(&self) -> Result<impl Iterator<Item = Result<ListedRepo, CensusError>>, CensusError> {
        self.read(|field| matches!(field, "repo" | "commit" | "tags"), |reader| reader)
    }

    /// Iterates over the rows that `choose` selects, of which only some columns are read.
    fn read(
        &self,
        is_read: impl Fn(&str) -> bool,
        choose: impl FnOnce(TableReader) -> TableReader,
    ) -> Result<impl Iterator<Item = Result<ListedRepo, CensusError>>, CensusError> {
        let file = self.file.try_clone().map_err(failed_to("read", &self.name))?;
        let reader = TableReader::new_with_metadata(file, self.metadata.clone());
        let (found, wanted) = (self.metadata.schema(), schema::<ListedRepo>());
        let fields = wanted.fields().iter().filter(|field| is_read(field.name()));
        let columns = fields.filter_map(|field| find_column(found, field, &self.column));
        let mask = ProjectionMask::roots(reader.parquet_schema(), columns);
        let batches = choose(reader.with_projection(mask)).build();
        let batches = batches.map_err(table_failed(&self.name))?;
        Ok(rows_of(&self.name, batches, |batch| from_columns(batch, &self.column)))
    }

    /// Iterates over a range of rows. Other row groups are skipped.
    fn rows(
        &self,
        rows: &Range<usize>,
    ) -> Result<impl Iterator<Item = Result<ListedRepo, CensusError>>, CensusError> {
        let (mut start, mut groups, mut skipped) = (0, Vec::new(), 0);
        for (at, group) in self.metadata.metadata().row_groups().iter().enumerate() {
            let end = start + usize::try_from(group.num_rows()).unwrap_or_default();
            if end <= rows.start {
                skipped = end;
            } else if start < rows.end {
                groups.push(at);
            }
            start = end;
        }
        self.read(
            |_| true,
            move |reader| {
                let reader = reader.with_row_groups(groups).with_batch_size(rows.len());
                reader.with_offset(rows.start - skipped).with_limit(rows.len())
            },
        )
    }
}

/// Returns the error for a list that cannot be used.
pub(super) fn unusable(name: impl AsRef<Path>, reason: &str) -> CensusError {
    let name = name.as_ref().display().to_string();
    CensusError::Manifest { name, reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, RecordBatch, StringArray};

    use super::*;
    use crate::table::encode;

    fn open(name: &str, content: &[u8], column: Option<&str>) -> Result<Manifest, CensusError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        Manifest::open(&path, column)
    }

    fn names(manifest: &Manifest) -> Vec<String> {
        manifest.names().unwrap().into_iter().map(|repo| repo.name).collect()
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
                tags: (n < 3).then(|| vec!["gguf".to_owned()]),
                ..ListedRepo::new(format!("a/{n}"))
            })
            .collect();
        let table = open("list", &encode("list", &repos, &()).unwrap(), None).unwrap();
        assert_eq!((table.parts(), table.repos(), table.gguf_repos()), (3, 700, 3));
        let read: Vec<_> = (0..3).flat_map(|part| table.part(part).unwrap()).collect();
        assert_eq!(read, repos);
        assert!(names(&table).iter().eq(repos.iter().map(|repo| &repo.repo)));
        let other = open("list", &encode("list", &repos[1..], &()).unwrap(), None).unwrap();
        assert_ne!(other.digest(), table.digest());
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
}
