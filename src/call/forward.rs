//! Decorators of [`Files`](hf_meta_inspect::Files): the methods that they do not change.

/// Implements methods of `Files` by calling them on the field `files`.
macro_rules! forward {
    ($($method:ident)*) => { $(forward!(@ $method);)* };
    (@ read) => {
        fn read<'a>(
            &'a self,
            path: &'a RepoPath,
            range: std::ops::Range<u64>,
        ) -> BoxFuture<'a, Result<Part, Error>> {
            self.files.read(path, range)
        }
    };
    (@ load) => {
        fn load<'a>(
            &'a self,
            path: &'a RepoPath,
            limit: u64,
        ) -> BoxFuture<'a, Result<Loaded, Error>> {
            self.files.load(path, limit)
        }
    };
    (@ list) => {
        fn list<'a>(
            &'a self,
            folder: Option<&'a RepoPath>,
        ) -> BoxFuture<'a, Result<Option<Listing>, Error>> {
            self.files.list(folder)
        }
    };
    (@ run_work) => {
        fn run_work(&self, bytes: usize, work: Work) -> BoxFuture<'static, ()> {
            self.files.run_work(bytes, work)
        }
    };
    (@ file_name) => {
        fn file_name(&self, path: &RepoPath) -> String {
            self.files.file_name(path)
        }
    };
    (@ open_index) => {
        fn open_index<'a>(
            &'a self,
            path: &'a RepoPath,
            limit: u64,
        ) -> BoxFuture<'a, Result<OpenIndex, Error>> {
            self.files.open_index(path, limit)
        }
    };
    (@ commit) => {
        fn commit(&self) -> Option<CommitSha> {
            self.files.commit()
        }
    };
    (@ is_repo) => {
        fn is_repo(&self) -> bool {
            self.files.is_repo()
        }
    };
    (@ renamed) => {
        fn renamed(&self) -> Option<RepoId> {
            self.files.renamed()
        }
    };
    (@ may_guess) => {
        fn may_guess(&self, path: &RepoPath, requests: usize) -> bool {
            self.files.may_guess(path, requests)
        }
    };
    (@ admit_requests) => {
        fn admit_requests(&self, requests: usize) -> Result<(), Error> {
            self.files.admit_requests(requests)
        }
    };
    (@ admit_bytes) => {
        fn admit_bytes(&self, bytes: u64) -> BoxFuture<'_, Result<(), Error>> {
            self.files.admit_bytes(bytes)
        }
    };
    (@ hold) => {
        fn hold(&self, bytes: u64) -> BoxFuture<'_, HeldRam> {
            self.files.hold(bytes)
        }
    };
    (@ end_header) => {
        fn end_header<'a>(
            &'a self,
            path: &'a RepoPath,
            header: &'a FileHeader,
        ) -> BoxFuture<'a, ()> {
            self.files.end_header(path, header)
        }
    };
    (@ on_header) => {
        fn on_header(&self, header: &FileHeader) {
            self.files.on_header(header);
        }
    };
    (@ on_progress) => {
        fn on_progress(&self, done: usize, total: usize) -> Result<(), Error> {
            self.files.on_progress(done, total)
        }
    };
    (@ parsed_headers) => {
        fn parsed_headers<'a>(
            &'a self,
            index: &'a RepoPath,
            limit: u64,
        ) -> BoxFuture<'a, Result<Option<Loaded>, Error>> {
            self.files.parsed_headers(index, limit)
        }
    };
    (@ reported_count) => {
        fn reported_count(&self) -> BoxFuture<'_, Result<Option<u64>, String>> {
            self.files.reported_count()
        }
    };
    (@ missing_shards) => {
        fn missing_shards(&self, set: &WeightSet) -> Option<Error> {
            self.files.missing_shards(set)
        }
    };
}

pub(super) use forward;
