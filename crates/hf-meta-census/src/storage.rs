//! Stores files in a local folder or in an object store.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::Path as LocalPath;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::TryStreamExt;
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, parse_url_opts};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use url::Url;

use super::CensusError;
use super::error::failed_to;
use super::table::temporary_file;

/// A local folder or a folder in an object store.
///
/// Files appear atomically: a local file is written to a temporary name, synced and renamed.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    objects: Arc<dyn ObjectStore>,
    folder: Path,
    name: String,
    is_remote: bool,
}

/// The time before the first retry of a request to an object store. It doubles after each retry. The library itself does
/// not repeat all requests whose connection was refused.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The maximum time between two retries.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(16);

/// An error of a request to an object store.
trait IsMissing {
    /// Returns whether the file does not exist, so that another attempt is pointless.
    fn is_missing(&self) -> bool;
}

impl IsMissing for object_store::Error {
    fn is_missing(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}

impl IsMissing for io::Error {
    fn is_missing(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }
}

impl Storage {
    /// Opens a local folder, or a URL such as `s3://bucket/folder` with the settings of the environment.
    pub(super) fn create_or_open(target: &str) -> Result<Self, CensusError> {
        let cannot_open = failed_to("open", target);
        let (objects, folder): (Arc<dyn ObjectStore>, _) = if let Some(url) = parse_url(target) {
            let settings = std::env::vars_os().filter_map(object_store_setting);
            let (objects, folder) = parse_url_opts(&url, settings).map_err(cannot_open)?;
            (objects.into(), folder)
        } else {
            fs::create_dir_all(target).map_err(failed_to("create", target))?;
            let objects = LocalFileSystem::new_with_prefix(target).map_err(cannot_open)?;
            (Arc::new(objects.with_fsync(true)), Path::default())
        };
        let is_remote = parse_url(target).is_some();
        Ok(Self { objects, folder, name: target.to_owned(), is_remote })
    }

    /// Returns the folder and the name of an object, if the text is its URL.
    pub(super) fn open_object(target: &str) -> Result<Option<(Self, String)>, CensusError> {
        let Some((folder, name)) = target.rsplit_once('/').filter(|_| parse_url(target).is_some())
        else {
            return Ok(None);
        };
        Ok(Some((Self::create_or_open(folder)?, name.to_owned())))
    }

    /// Opens an existing local folder, or a URL.
    pub(super) fn open_existing(target: &str) -> Result<Self, CensusError> {
        if parse_url(target).is_none() && !LocalPath::new(target).is_dir() {
            return Err(CensusError::NoCensus { target: target.to_owned() });
        }
        Self::create_or_open(target)
    }

    /// Returns the folder or URL as given by the user.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Makes a request to an object store, and repeats it if it fails, for at most 30 seconds. Operations on local files are
    /// not repeated.
    async fn request<T, E, Request>(&self, request: impl Fn() -> Request) -> Result<T, E>
    where
        Request: Future<Output = Result<T, E>>,
        E: IsMissing,
    {
        let mut delay = FIRST_RETRY_DELAY;
        loop {
            match request().await {
                Err(error) if self.is_remote && delay <= MAX_RETRY_DELAY && !error.is_missing() => {
                    tokio::time::sleep(delay).await;
                    delay *= 2;
                }
                result => return result,
            }
        }
    }

    /// Returns the names of all files in a folder.
    pub(super) async fn list(&self, folder: &str) -> Result<Vec<String>, CensusError> {
        let path = self.path(folder);
        let listed = self.request(|| self.objects.list(Some(&path)).try_collect::<Vec<_>>()).await;
        let listed = listed.map_err(failed_to("list", self.display_path(folder)))?;
        Ok(listed.iter().filter_map(|file| file.location.filename().map(str::to_owned)).collect())
    }

    /// Reads a file; `None` if it does not exist.
    pub(super) async fn read(&self, file: &str) -> Result<Option<Bytes>, CensusError> {
        let path = &self.path(file);
        let read = self.request(|| async { self.objects.get(path).await?.bytes().await });
        self.if_found(file, read.await)
    }

    /// Downloads a file to a temporary file, because it may not fit in memory. Returns `None` if it does not exist.
    /// The second value is its size in bytes.
    pub(super) async fn download(&self, file: &str) -> Result<Option<(File, u64)>, CensusError> {
        let path = self.path(file);
        let found = self.request(|| self.objects.get(&path)).await;
        let Some(found) = self.if_found(file, found)? else { return Ok(None) };
        let size = found.meta.size;
        let (mut chunks, mut copy) = (found.into_stream(), temporary_file()?);
        let cannot_copy = failed_to("write", std::env::temp_dir());
        let cannot_read = failed_to("read", self.display_path(file));
        while let Some(chunk) = chunks.try_next().await.map_err(&cannot_read)? {
            copy.write_all(&chunk).map_err(&cannot_copy)?;
        }
        copy.rewind().map_err(cannot_copy)?;
        Ok(Some((copy, size)))
    }

    /// Returns the size of a file in bytes; `None` if it does not exist.
    pub(super) async fn size(&self, file: &str) -> Result<Option<u64>, CensusError> {
        let path = self.path(file);
        let found = self.request(|| self.objects.head(&path)).await;
        Ok(self.if_found(file, found)?.map(|file| file.size))
    }

    /// Creates or replaces a file.
    pub(super) async fn write(&self, file: &str, bytes: Vec<u8>) -> Result<(), CensusError> {
        let (path, bytes) = (self.path(file), Bytes::from(bytes));
        let written = self.request(|| self.objects.put(&path, bytes.clone().into())).await;
        written.map(|_| ()).map_err(failed_to("write", self.display_path(file)))
    }

    /// Creates or replaces a file with the content of a temporary file, in chunks. Returns its size in bytes.
    pub(super) async fn upload(&self, file: &str, content: File) -> Result<u64, CensusError> {
        let written = self.request(|| self.try_upload(file, &content)).await;
        written.map_err(failed_to("write", self.display_path(file)))
    }

    async fn try_upload(&self, file: &str, content: &File) -> Result<u64, io::Error> {
        let mut content = tokio::fs::File::from_std(content.try_clone()?);
        content.rewind().await?;
        let mut writer = BufWriter::new(Arc::clone(&self.objects), self.path(file));
        let written = async {
            let bytes = tokio::io::copy(&mut content, &mut writer).await?;
            writer.shutdown().await?;
            Ok::<_, io::Error>(bytes)
        };
        let written = written.await;
        if written.is_err() {
            // Object stores charge for parts of uploads that are neither completed nor aborted.
            let _ = writer.abort().await;
        }
        written
    }

    /// Returns `None` if a file does not exist.
    fn if_found<T>(
        &self,
        file: &str,
        result: Result<T, object_store::Error>,
    ) -> Result<Option<T>, CensusError> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed_to("read", self.display_path(file))(error)),
        }
    }

    fn path(&self, file: &str) -> Path {
        file.split('/').fold(self.folder.clone(), Path::join)
    }

    pub(super) fn display_path(&self, file: &str) -> String {
        format!("{}/{file}", self.name.trim_end_matches('/'))
    }
}

/// Returns the URL of an object store; `None` for a local folder.
fn parse_url(target: &str) -> Option<Url> {
    // A Windows drive looks like a one-letter scheme.
    Url::parse(target).ok().filter(|url| url.scheme().len() > 1)
}

/// The prefixes of environment variables that configure object stores. Others, such as `TOKEN`, are not meant for
/// them.
const SETTING_PREFIXES: [&str; 3] = ["aws_", "azure_", "google_"];

/// Returns an environment variable if it configures an object store.
fn object_store_setting((name, value): (OsString, OsString)) -> Option<(String, String)> {
    let name = name.into_string().ok()?.to_lowercase();
    let is_setting = SETTING_PREFIXES.iter().any(|start| name.starts_with(start));
    is_setting.then_some((name, value.into_string().ok()?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failed_requests_to_an_object_store_are_repeated() {
        let storage = |url| Storage::create_or_open(url).unwrap();
        let attempts = async |storage: &Storage, failures, kind: io::ErrorKind| {
            let count = AtomicUsize::new(0);
            let attempt = || {
                let is_failure = count.fetch_add(1, Ordering::Relaxed) < failures;
                std::future::ready(if is_failure { Err(io::Error::from(kind)) } else { Ok(()) })
            };
            (storage.request(attempt).await.is_ok(), count.load(Ordering::Relaxed))
        };
        let remote = storage("memory:///census");
        let refused = io::ErrorKind::ConnectionRefused;
        assert_eq!(attempts(&remote, 3, refused).await, (true, 4));
        assert_eq!(attempts(&remote, 100, refused).await, (false, 7));
        assert_eq!(attempts(&remote, 1, io::ErrorKind::NotFound).await, (false, 1));
        let folder = tempfile::tempdir().unwrap();
        let local = storage(folder.path().to_str().unwrap());
        assert_eq!(attempts(&local, 1, refused).await, (false, 1));
    }
}
