//! Manifests: the lists of repositories to read.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use arrow_array::{Array, RecordBatch};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use sha2::{Digest, Sha256};

use super::arrow::ArrowRow;
use super::error::failed_to;
use super::layout_digest::{hexadecimal, short_hash};
use super::listed_repo::{from_columns, text_column};
use super::{CensusError, ListedRepo};
use hf_meta_repo_list as repo_list;

/// The number of repositories per part. Eight parts are read concurrently. With the quota of an anonymous reader they
/// take four minutes, which is the most work lost if the process is killed.
pub(super) const PART: usize = 256;

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
    digest: String,
    /// The row numbers of repeated names.
    duplicates: HashSet<usize>,
}

#[derive(Debug)]
enum Repos {
    Names(Vec<String>),
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
    /// A file that starts with the Parquet magic bytes is a Parquet file. A file with the extension `.csv` is a CSV
    /// file with a header row, and so is any other file if `column` is given. Otherwise, each line is a name; lines
    /// that start with `#` are comments.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, has no such column, or contains no repositories.
    ///
    /// If the file cannot be read, has no such column, or has no repository.
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
    /// Returns an error if there are no names.
    pub fn from_names(names: impl IntoIterator<Item = String>) -> Result<Self, CensusError> {
        Self::from_repos("-".to_owned(), names.into_iter().collect())
    }

    fn from_text(path: &Path, text: &str, column: Option<&str>) -> Result<Self, CensusError> {
        let name = path.display().to_string();
        let names = repo_list::parse(path, text, column).map_err(|error| {
            CensusError::Manifest { name: name.clone(), reason: error.to_string() }
        })?;
        Self::from_repos(name, names)
    }

    fn from_repos(name: String, names: Vec<String>) -> Result<Self, CensusError> {
        let mut seen = Seen::default();
        for name in &names {
            seen.add(name, None);
        }
        let (rows, repos) = (names.len(), Repos::Names(names));
        Self::new(name, repos, rows, seen)
    }

    fn from_parquet(name: String, file: File, column: Option<&str>) -> Result<Self, CensusError> {
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::default());
        let metadata = metadata.map_err(|error| CensusError::from(error).in_table(&name))?;
        let names = repo_list::columns(column);
        let found = names.iter().find(|name| metadata.schema().index_of(name).is_ok());
        let missing = || format!("has no column `{}`", names.join("`, `"));
        let column =
            found.ok_or_else(|| CensusError::Manifest { name: name.clone(), reason: missing() })?;
        let column = (*column).to_owned();
        let table = ParquetTable { name: name.clone(), file, metadata, column };
        let (mut seen, mut rows) = (Seen::default(), 0);
        let is_read =
            |name: &str| name == table.column || ListedRepo::COMMIT_COLUMNS.contains(&name);
        for batch in table.batches(is_read, |reader| reader)? {
            let batch = batch?;
            let repos =
                text_column(&batch, &[&table.column]).ok_or_else(|| CensusError::Manifest {
                    name: name.clone(),
                    reason: format!("has no text in column `{}`", table.column),
                })?;
            let commits = text_column(&batch, &ListedRepo::COMMIT_COLUMNS);
            for (at, repo) in repos.iter().enumerate() {
                let commit = commits.as_ref().filter(|commits| commits.is_valid(at));
                seen.add(repo.unwrap_or_default(), commit.map(|commits| commits.value(at)));
            }
            rows += batch.num_rows();
        }
        Self::new(name, Repos::Parquet(table), rows, seen)
    }

    fn new(name: String, repos: Repos, rows: usize, seen: Seen) -> Result<Self, CensusError> {
        if rows == 0 {
            return Err(CensusError::Manifest {
                name,
                reason: "contains no repositories".to_owned(),
            });
        }
        let digest = hexadecimal(&seen.digest.finalize()[..8]);
        Ok(Self { repos, rows, digest, duplicates: seen.duplicates })
    }

    /// Returns the number of distinct repositories.
    #[must_use]
    pub fn repos(&self) -> usize {
        self.rows - self.duplicates.len()
    }

    /// Returns the number of repeated names. A repeated name is read once.
    #[must_use]
    pub fn duplicates(&self) -> usize {
        self.duplicates.len()
    }

    /// Returns all repository names, including repeated ones.
    ///
    /// # Errors
    ///
    /// Returns an error if a Parquet file cannot be read.
    pub fn names(&self) -> Result<Vec<String>, CensusError> {
        match &self.repos {
            Repos::Names(names) => Ok(names.clone()),
            Repos::Parquet(table) => table.names(),
        }
    }

    /// Returns the number of parts of up to 256 repositories.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.rows.div_ceil(PART)
    }

    /// Returns the number of repositories in a part.
    pub(super) fn part_len(&self, part: usize) -> usize {
        let rows = part * PART..self.rows.min((part + 1) * PART);
        rows.filter(|row| !self.duplicates.contains(row)).count()
    }

    /// Returns a short hash of all names and commits.
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the repositories in a part.
    pub(super) fn part(&self, part: usize) -> Result<Vec<ListedRepo>, CensusError> {
        let rows = part * PART..self.rows.min((part + 1) * PART);
        let repos = match &self.repos {
            Repos::Names(names) => names[rows.clone()].iter().map(ListedRepo::new).collect(),
            Repos::Parquet(table) => table.rows(&rows)?,
        };
        let repos = rows.zip(repos).filter(|(at, _)| !self.duplicates.contains(at));
        Ok(repos.map(|(_, repo)| repo).collect())
    }
}

impl ParquetTable {
    /// Returns the columns that `is_read` selects, of the rows that `choose` selects. Errors contain the file name.
    fn batches(
        &self,
        is_read: impl Fn(&str) -> bool,
        choose: impl FnOnce(TableReader) -> TableReader,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, CensusError>>, CensusError> {
        let failed = |error: ParquetError| CensusError::from(error).in_table(&self.name);
        let file = self.file.try_clone().map_err(failed_to("read", &self.name))?;
        let builder = TableReader::new_with_metadata(file, self.metadata.clone());
        let columns = self.metadata.schema().fields().iter().enumerate();
        let columns = columns.filter(|(_, field)| is_read(field.name())).map(|(at, _)| at);
        let mask = ProjectionMask::roots(builder.parquet_schema(), columns);
        let batches = choose(builder.with_projection(mask)).build().map_err(failed)?;
        Ok(batches.map(move |batch| batch.map_err(|error| failed(error.into()))))
    }

    /// Reads all names. Missing names are empty.
    fn names(&self) -> Result<Vec<String>, CensusError> {
        let mut names = Vec::new();
        for batch in self.batches(|name| name == self.column, |reader| reader)? {
            let batch = batch?;
            let column = text_column(&batch, &[&self.column]);
            let texts = column.iter().flat_map(|column| column.iter());
            names.extend(texts.map(|name| name.unwrap_or_default().to_owned()));
        }
        Ok(names)
    }

    /// Reads a range of rows. Other row groups are skipped.
    fn rows(&self, rows: &Range<usize>) -> Result<Vec<ListedRepo>, CensusError> {
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
        let is_known = |name: &str| {
            let known = ListedRepo::fields().iter().any(|field| field.name() == name);
            known || name == self.column || ListedRepo::COMMIT_COLUMNS.contains(&name)
        };
        let choose = |reader: TableReader| {
            let reader = reader.with_row_groups(groups).with_batch_size(rows.len());
            reader.with_offset(rows.start - skipped).with_limit(rows.len())
        };
        let mut repos = Vec::new();
        for batch in self.batches(is_known, choose)? {
            repos.append(&mut from_columns(&batch?, &self.column)?);
        }
        Ok(repos)
    }
}

/// The names and commits seen so far.
#[derive(Default)]
struct Seen {
    /// The first 16 bytes of the hash of each name. Shorter hashes could collide.
    names: HashSet<[u8; 16]>,
    duplicates: HashSet<usize>,
    digest: Sha256,
    rows: usize,
}

impl Seen {
    fn add(&mut self, name: &str, commit: Option<&str>) {
        let hash = short_hash(name);
        if !self.names.insert(hash) {
            self.duplicates.insert(self.rows);
        }
        self.rows += 1;
        self.digest.update(hash);
        self.digest.update(commit.unwrap_or_default());
        self.digest.update("\n");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::table_file::write_rows;

    fn open(name: &str, content: &[u8], column: Option<&str>) -> Result<Manifest, CensusError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        Manifest::open(&path, column)
    }

    #[test]
    fn lines_and_columns_are_names() {
        let lines = open("list.txt", b"gpt2\n# a comment\n\n a/b \ngpt2\n", None).unwrap();
        assert_eq!(lines.names().unwrap(), ["gpt2", "a/b", "gpt2"]);
        assert_eq!((lines.repos(), lines.duplicates()), (2, 1));
        let csv = b"likes,id\n1,gpt2\n2,a/b\n";
        assert_eq!(open("list.csv", csv, None).unwrap().names().unwrap(), ["gpt2", "a/b"]);
        assert_eq!(open("list.txt", csv, Some("likes")).unwrap().names().unwrap(), ["1", "2"]);
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
        let table = open("list", &write_rows(&repos, &()).unwrap(), None).unwrap();
        assert_eq!((table.parts(), table.repos()), (3, 700));
        let read: Vec<_> = (0..3).flat_map(|part| table.part(part).unwrap()).collect();
        assert_eq!(read, repos);
        assert!(table.names().unwrap().iter().eq(repos.iter().map(|repo| &repo.repo)));
        let other = open("list", &write_rows(&repos[1..], &()).unwrap(), None).unwrap();
        assert_ne!(other.digest(), table.digest());
    }
}
