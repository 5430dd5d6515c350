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
use tokio::io::AsyncWriteExt;
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
        Ok(Self { objects, folder, name: target.to_owned() })
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

    /// Returns the names of all files in a folder.
    pub(super) async fn list(&self, folder: &str) -> Result<Vec<String>, CensusError> {
        let listed = self.objects.list(Some(&self.path(folder)));
        let names = listed.map_ok(|file| file.location.filename().map(str::to_owned));
        let names: Vec<_> =
            names.try_collect().await.map_err(failed_to("list", self.display_path(folder)))?;
        Ok(names.into_iter().flatten().collect())
    }

    /// Reads a file; `None` if it does not exist.
    pub(super) async fn read(&self, file: &str) -> Result<Option<Bytes>, CensusError> {
        let read = async { self.objects.get(&self.path(file)).await?.bytes().await };
        self.if_found(file, read.await)
    }

    /// Downloads a file to a temporary file, because it may not fit in memory. Returns `None` if it does not exist.
    /// The second value is its size in bytes.
    pub(super) async fn download(&self, file: &str) -> Result<Option<(File, u64)>, CensusError> {
        let found = self.objects.get(&self.path(file)).await;
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
        let found = self.objects.head(&self.path(file)).await;
        Ok(self.if_found(file, found)?.map(|file| file.size))
    }

    /// Creates or replaces a file.
    pub(super) async fn write(&self, file: &str, bytes: Vec<u8>) -> Result<(), CensusError> {
        let written = self.objects.put(&self.path(file), bytes.into()).await;
        written.map(|_| ()).map_err(failed_to("write", self.display_path(file)))
    }

    /// Creates or replaces a file with the content of a temporary file, in chunks. Returns its size in bytes.
    pub(super) async fn upload(&self, file: &str, content: File) -> Result<u64, CensusError> {
        let mut content = tokio::fs::File::from_std(content);
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
        written.map_err(failed_to("write", self.display_path(file)))
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
