//! Stores files in a local folder or in an object store.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::Path as LocalPath;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::TryStreamExt;
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, parse_url_opts};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use url::Url;

use super::error::{CensusError, Result, failed_to};
use super::table::temporary_file;

/// A local folder or a folder in an object store.
///
/// Files appear atomically: a local file is written to a temporary name, synced and renamed.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    objects: Arc<dyn ObjectStore>,
    folder: Path,
    /// The folder or URL as given by the user.
    pub(super) name: String,
}

impl Storage {
    /// Opens a local folder, or a URL such as `s3://bucket/folder` with the settings of the environment.
    pub(super) fn create_or_open(target: &str) -> Result<Self> {
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
        Ok(Self { objects, folder, name: target.to_owned() })
    }

    /// Returns the folder and the name of an object, if the text is its URL.
    pub(super) fn open_object(target: &str) -> Result<Option<(Self, String)>> {
        let parts = if parse_url(target).is_some() { target.rsplit_once('/') } else { None };
        parts.map(|(folder, name)| Ok((Self::create_or_open(folder)?, name.to_owned()))).transpose()
    }

    /// Opens an existing local folder, or a URL.
    pub(super) fn open_existing(target: &str) -> Result<Self> {
        if parse_url(target).is_none() && !LocalPath::new(target).is_dir() {
            return Err(CensusError::NoCensus { target: target.to_owned() });
        }
        Self::create_or_open(target)
    }

    /// Returns the names of all files in a folder.
    pub(super) async fn list(&self, folder: &str) -> Result<Vec<String>> {
        let path = self.path(folder);
        let listed = self.objects.list(Some(&path)).try_collect::<Vec<_>>().await;
        let listed = listed.map_err(failed_to("list", self.display_path(folder)))?;
        Ok(listed.iter().filter_map(|file| file.location.filename().map(str::to_owned)).collect())
    }

    /// Reads a file; `None` if it does not exist.
    pub(super) async fn read(&self, file: &str) -> Result<Option<Bytes>> {
        let path = self.path(file);
        let read = async { self.objects.get(&path).await?.bytes().await };
        self.if_found(file, read.await)
    }

    /// Downloads a file to a temporary file, because it may not fit in memory. Returns `None` if it does not exist.
    /// The second value is its size in bytes.
    pub(super) async fn download(&self, file: &str) -> Result<Option<(File, u64)>> {
        let path = self.path(file);
        let found = self.objects.get(&path).await;
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
    pub(super) async fn size(&self, file: &str) -> Result<Option<u64>> {
        let path = self.path(file);
        let found = self.objects.head(&path).await;
        Ok(self.if_found(file, found)?.map(|file| file.size))
    }

    /// Creates or replaces a file.
    pub(super) async fn write(&self, file: &str, bytes: Vec<u8>) -> Result<()> {
        let written = self.objects.put(&self.path(file), bytes.into()).await;
        written.map(|_| ()).map_err(failed_to("write", self.display_path(file)))
    }

    /// Creates or replaces a file with the content of a temporary file, in chunks. Returns its size in bytes.
    pub(super) async fn upload(&self, file: &str, content: File) -> Result<u64> {
        let written = self.try_upload(file, &content).await;
        written.map_err(failed_to("write", self.display_path(file)))
    }

    async fn try_upload(&self, file: &str, content: &File) -> Result<u64, io::Error> {
        let mut content = tokio::fs::File::from_std(content.try_clone()?);
        content.rewind().await?;
        let mut writer = BufWriter::new(Arc::clone(&self.objects), self.path(file));
        let copied = tokio::io::copy(&mut content, &mut writer).await;
        if copied.is_err() {
            // Object stores charge for parts of uploads that are neither completed nor aborted. A failed shutdown aborts
            // the upload itself, and must not be followed by another abort.
            let _ = writer.abort().await;
        } else {
            writer.shutdown().await?;
        }
        copied
    }

    /// Returns `None` if a file does not exist.
    fn if_found<T>(&self, file: &str, result: Result<T, object_store::Error>) -> Result<Option<T>> {
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
    use std::io::Read as _;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use object_store::RetryConfig;
    use object_store::aws::AmazonS3Builder;

    use super::*;

    /// A bucket on this computer, whose requests the library does not repeat.
    fn bucket(port: u16) -> Storage {
        let builder = AmazonS3Builder::new().with_endpoint(format!("http://127.0.0.1:{port}"));
        let builder = builder.with_allow_http(true).with_bucket_name("bucket");
        let builder = builder.with_access_key_id("wrong").with_secret_access_key("wrong");
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let objects = Arc::new(builder.with_retry(retry).build().unwrap());
        Storage { objects, folder: Path::default(), name: String::new() }
    }

    #[tokio::test]
    async fn wrong_credentials_end_at_once() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let denied = bucket(server.local_addr().unwrap().port());
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        thread::spawn(move || {
            for connection in server.incoming() {
                let mut connection = connection.unwrap();
                let _ = connection.read(&mut vec![0; 1 << 16]).unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                let response =
                    "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                connection.write_all(response.as_bytes()).unwrap();
            }
        });
        let content = || tempfile::tempfile().unwrap();
        denied.list("repos").await.unwrap_err();
        denied.read("x").await.unwrap_err();
        denied.size("x").await.unwrap_err();
        denied.write("x", vec![1]).await.unwrap_err();
        denied.upload("x", content()).await.unwrap_err();
        assert_eq!(requests.load(Ordering::Relaxed), 5);
    }
}
