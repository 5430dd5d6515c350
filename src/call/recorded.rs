//! Files that are recorded for the header cache.

use std::ops::Range;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, TryFutureExt};
use hf_meta_format::formats::weight_sets::WeightSet;
use hf_meta_format::formats::{FileHeader, RepoPath};
use hf_meta_inspect::{Files, HeldRam, Listing, Loaded, OpenIndex, Part, Work};

use super::forward::forward;
use crate::cache::{HeaderBytes, Recorder, Recording};
use crate::error::Error;
use crate::hub::{CommitSha, RepoId};

/// Files whose bytes are recorded as they are read. Clones share the recording.
#[derive(Clone, Debug)]
pub(super) struct RecordedFiles {
    files: Arc<dyn Files>,
    recorder: Recorder,
}

impl RecordedFiles {
    pub(super) fn new(files: impl Files) -> Self {
        Self { files: Arc::new(files), recorder: Recorder::default() }
    }

    /// Takes the recorded bytes. Returns `None` if they must not be cached or the commit is unknown.
    pub(super) async fn take(&self) -> Option<HeaderBytes> {
        self.recorder.finish_files().await;
        self.recorder.update(|recording| recording.finish(self.renamed()))
    }
}

impl Files for RecordedFiles {
    forward! {
        run_work file_name commit is_repo renamed may_guess admit_requests admit_bytes hold on_header on_progress
        reported_count missing_shards
    }

    fn read<'a>(
        &'a self,
        path: &'a RepoPath,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Part, Error>> {
        let start = range.start;
        let record = move |part: &Part| {
            self.recorder.update(|recording| recording.add_range(path, start, part));
        };
        self.files.read(path, range).inspect_ok(record).boxed()
    }

    /// Records a whole file. If access is denied or the file is over the limit, another reader could get another
    /// result, so the commit is not cached.
    fn load<'a>(&'a self, path: &'a RepoPath, limit: u64) -> BoxFuture<'a, Result<Loaded, Error>> {
        let record = |loaded: &Result<Loaded, Error>| match loaded {
            Ok(loaded) => self.recorder.add_file(path, &loaded.bytes),
            Err(error) if error.is_denied() || matches!(error, Error::TooLarge { .. }) => {
                self.recorder.update(Recording::discard);
            }
            Err(_) => {}
        };
        self.files.load(path, limit).inspect(record).boxed()
    }

    /// Records an index once it is complete.
    fn open_index<'a>(
        &'a self,
        path: &'a RepoPath,
        limit: u64,
    ) -> BoxFuture<'a, Result<OpenIndex, Error>> {
        let record = |opened: OpenIndex| {
            let (recorder, path) = (self.recorder.clone(), path.clone());
            let record = move |index: &Loaded| recorder.start_file(path, &index.bytes);
            OpenIndex { rest: opened.rest.inspect_ok(record).boxed(), ..opened }
        };
        self.files.open_index(path, limit).map_ok(record).boxed()
    }

    /// Records a listing. A missing one may be temporary, so the commit is then not cached.
    fn list<'a>(
        &'a self,
        folder: Option<&'a RepoPath>,
    ) -> BoxFuture<'a, Result<Option<Listing>, Error>> {
        let record = move |listed: &Option<Listing>| {
            self.recorder.update(|recording| match listed {
                Some(Listing { files, is_complete, .. }) => {
                    recording.add_listing(folder, files, *is_complete);
                }
                None => recording.discard(),
            });
        };
        self.files.list(folder).inspect_ok(record).boxed()
    }

    fn at_commit(&self, commit: &CommitSha) -> Option<Arc<dyn Files>> {
        let (files, recorder) = (self.files.at_commit(commit)?, self.recorder.clone());
        recorder.update(|recording| recording.commit = Some(commit.clone()));
        Some(Arc::new(Self { files, recorder }))
    }

    fn end_header<'a>(&'a self, path: &'a RepoPath, header: &'a FileHeader) -> BoxFuture<'a, ()> {
        self.recorder.end_header(path, header.header_range().end).boxed()
    }

    /// The response contains no header bytes, so the commit is not cached.
    fn parsed_headers<'a>(
        &'a self,
        index: &'a RepoPath,
        limit: u64,
    ) -> BoxFuture<'a, Result<Option<Loaded>, Error>> {
        let discard = |found: &Option<Loaded>| {
            if found.is_some() {
                self.recorder.update(Recording::discard);
            }
        };
        self.files.parsed_headers(index, limit).inspect_ok(discard).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Mutex;

    use hf_meta_format::formats::Formats;
    use hf_meta_format::formats::safetensors::SafetensorsFileHeader;
    use hf_meta_format::formats::weight_sets::{ListedFile, ListedWeights};

    use super::super::limited::LimitedFiles;
    use super::*;
    use crate::base::budget::CallBudget;

    /// Files that note which of their methods are called.
    #[derive(Clone, Debug, Default)]
    struct Noted(Arc<Mutex<Vec<&'static str>>>);

    impl Noted {
        fn note(&self, method: &'static str) {
            self.0.lock().unwrap().push(method);
        }
    }

    impl Files for Noted {
        fn read<'a>(
            &'a self,
            _: &'a RepoPath,
            _: Range<u64>,
        ) -> BoxFuture<'a, Result<Part, Error>> {
            self.note("read");
            ready(Ok(Part { file_size: Some(2), bytes: vec![1, 2], ..Part::default() })).boxed()
        }

        fn load<'a>(&'a self, _: &'a RepoPath, _: u64) -> BoxFuture<'a, Result<Loaded, Error>> {
            self.note("load");
            ready(Ok(Loaded::default())).boxed()
        }

        fn list<'a>(
            &'a self,
            _: Option<&'a RepoPath>,
        ) -> BoxFuture<'a, Result<Option<Listing>, Error>> {
            self.note("list");
            ready(Ok(Some(Listing { is_complete: true, ..Listing::default() }))).boxed()
        }

        fn run_work(&self, _: usize, work: Work) -> BoxFuture<'static, ()> {
            self.note("run_work");
            work();
            ready(()).boxed()
        }

        fn file_name(&self, _: &RepoPath) -> String {
            self.note("file_name");
            String::new()
        }

        fn open_index<'a>(
            &'a self,
            _: &'a RepoPath,
            _: u64,
        ) -> BoxFuture<'a, Result<OpenIndex, Error>> {
            self.note("open_index");
            ready(Ok(OpenIndex::complete(Loaded::default()))).boxed()
        }

        fn at_commit(&self, _: &CommitSha) -> Option<Arc<dyn Files>> {
            self.note("at_commit");
            Some(Arc::new(self.clone()))
        }

        fn commit(&self) -> Option<CommitSha> {
            self.note("commit");
            None
        }

        fn is_repo(&self) -> bool {
            self.note("is_repo");
            true
        }

        fn renamed(&self) -> Option<RepoId> {
            self.note("renamed");
            None
        }

        fn may_guess(&self, _: &RepoPath, _: usize) -> bool {
            self.note("may_guess");
            true
        }

        fn on_header(&self, _: &FileHeader) {
            self.note("on_header");
        }

        fn on_progress(&self, _: usize, _: usize) -> Result<(), Error> {
            self.note("on_progress");
            Ok(())
        }

        fn reported_count(&self) -> BoxFuture<'_, Result<Option<u64>, String>> {
            self.note("reported_count");
            ready(Ok(None)).boxed()
        }

        fn missing_shards(&self, _: &WeightSet) -> Option<Error> {
            self.note("missing_shards");
            None
        }
    }

    fn header() -> FileHeader {
        SafetensorsFileHeader::from_json(b"{}").unwrap().into()
    }

    #[tokio::test]
    async fn what_a_call_reads_through_both_decorators_is_recorded_at_its_commit() {
        let (noted, budget) = (Noted::default(), CallBudget::default());
        let recorded = RecordedFiles::new(noted.clone());
        let files: Arc<dyn Files> = Arc::new(LimitedFiles::new(recorded.clone(), budget));
        let commit: CommitSha = "1".repeat(40).parse().unwrap();
        let files = files.at_commit(&commit).unwrap();
        let path: RepoPath = "model.safetensors".parse().unwrap();
        files.read(&path, 0..2).await.unwrap();
        files.end_header(&path, &header()).await;
        files.load(&"config.json".parse().unwrap(), 9).await.unwrap();
        let index = "model.safetensors.index.json".parse().unwrap();
        files.open_index(&index, 9).await.unwrap().rest.await.unwrap();
        files.list(None).await.unwrap();
        assert!(files.run(0, || true).await && files.may_guess(&path, 1) && files.is_repo());
        assert!(files.commit().is_none() && files.renamed().is_none());
        files.on_header(&header());
        files.on_progress(1, 1).unwrap();
        assert_eq!(files.reported_count().await, Ok(None));
        let listed = [ListedFile { path: path.clone(), size: 2 }];
        let sets = ListedWeights::new(Formats::built_in(), None, &listed).sets;
        assert!(files.missing_shards(&sets[0]).is_none() && files.file_name(&path).is_empty());
        let mut called = noted.0.lock().unwrap().clone();
        called.sort_unstable();
        called.dedup();
        let all = [
            "at_commit",
            "commit",
            "file_name",
            "is_repo",
            "list",
            "load",
            "may_guess",
            "missing_shards",
            "on_header",
            "on_progress",
            "open_index",
            "read",
            "renamed",
            "reported_count",
            "run_work",
        ];
        assert_eq!(called, all);
        let bytes = recorded.take().await.unwrap();
        assert_eq!(bytes.commit(), &commit);
        let files = bytes.into_files().map(|file| file.path.to_string()).collect::<Vec<_>>();
        assert_eq!(files, ["config.json", "model.safetensors", index.as_str()]);
    }
}
