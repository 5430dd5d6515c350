//! Stores tables in a local folder or in an object store.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::Path as LocalPath;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{StreamExt, TryStreamExt};
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, parse_url_opts};
use tokio::io::AsyncWriteExt;
use url::Url;

use super::CensusError;
use super::error::failed_to;

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
    pub(super) fn open(target: &str) -> Result<Self, CensusError> {
        let name = target.to_owned();
        match Url::parse(target) {
            // A Windows drive looks like a one-letter scheme.
            Ok(url) if url.scheme().len() > 1 => {
                let variables = std::env::vars_os().filter_map(credential);
                let (objects, folder) =
                    parse_url_opts(&url, variables).map_err(object_failed("open", &name))?;
                Ok(Self { objects: objects.into(), folder, name })
            }
            _ => Self::local(target),
        }
    }

    /// Opens an existing local folder, or a URL.
    pub(super) fn existing(target: &str) -> Result<Self, CensusError> {
        let is_url = Url::parse(target).is_ok_and(|url| url.scheme().len() > 1);
        if !is_url && !LocalPath::new(target).is_dir() {
            return Err(CensusError::NoCensus { target: target.to_owned() });
        }
        Self::open(target)
    }

    fn local(target: &str) -> Result<Self, CensusError> {
        fs::create_dir_all(target).map_err(failed_to("create", target))?;
        let objects = LocalFileSystem::new_with_prefix(LocalPath::new(target));
        let objects = objects.map_err(object_failed("open", target))?.with_fsync(true);
        Ok(Self { objects: Arc::new(objects), folder: Path::default(), name: target.to_owned() })
    }

    /// Returns the folder or URL as given by the user.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the names of all files in a folder, sorted.
    pub(super) async fn list(&self, folder: &str) -> Result<Vec<String>, CensusError> {
        let listed = self.objects.list(Some(&self.path(folder)));
        let names = listed.map_ok(|file| file.location.filename().map(str::to_owned));
        let names: Vec<_> =
            names.try_collect().await.map_err(object_failed("list", &self.shown(folder)))?;
        let mut names: Vec<_> = names.into_iter().flatten().collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Reads a file; `None` if it does not exist.
    pub(super) async fn read(&self, file: &str) -> Result<Option<Bytes>, CensusError> {
        let read = async { self.objects.get(&self.path(file)).await?.bytes().await };
        match read.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(object_failed("read", &self.shown(file))(error)),
        }
    }

    pub(super) async fn exists(&self, file: &str) -> Result<bool, CensusError> {
        match self.objects.head(&self.path(file)).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(object_failed("read", &self.shown(file))(error)),
        }
    }

    /// Downloads a file to a temporary file, because it may not fit in memory. Returns `None` if it does not exist.
    pub(super) async fn download(&self, file: &str) -> Result<Option<File>, CensusError> {
        let mut pieces = match self.objects.get(&self.path(file)).await {
            Ok(found) => found.into_stream(),
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(object_failed("read", &self.shown(file))(error)),
        };
        let mut copy = temporary()?;
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(object_failed("read", &self.shown(file)))?;
            copy.write_all(&piece).map_err(temporary_failed)?;
        }
        copy.rewind().map_err(temporary_failed)?;
        Ok(Some(copy))
    }

    /// Creates a file. Returns `false` if it already exists.
    pub(super) async fn create(&self, file: &str, bytes: Vec<u8>) -> Result<bool, CensusError> {
        let options = PutOptions::from(PutMode::Create);
        match self.objects.put_opts(&self.path(file), bytes.into(), options).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(object_failed("write", &self.shown(file))(error)),
        }
    }

    /// Creates or replaces a file.
    pub(super) async fn replace(&self, file: &str, bytes: Vec<u8>) -> Result<(), CensusError> {
        let written = self.objects.put(&self.path(file), bytes.into()).await;
        written.map(drop).map_err(object_failed("write", &self.shown(file)))
    }

    /// Creates or replaces a file with the content of a temporary file, in chunks.
    pub(super) async fn upload(&self, file: &str, content: File) -> Result<(), CensusError> {
        let mut content = tokio::fs::File::from_std(content);
        let mut writer = BufWriter::new(Arc::clone(&self.objects), self.path(file));
        let written = async {
            tokio::io::copy(&mut content, &mut writer).await?;
            writer.shutdown().await
        };
        written.await.map_err(failed_to("write", self.shown(file)))
    }

    fn path(&self, file: &str) -> Path {
        file.split('/').fold(self.folder.clone(), Path::join)
    }

    fn shown(&self, file: &str) -> String {
        format!("{}/{file}", self.name.trim_end_matches('/'))
    }
}

/// The prefixes of environment variables that configure object stores. Others, such as `TOKEN`, are not meant for
/// them.
const CREDENTIALS: [&str; 3] = ["aws_", "azure_", "google_"];

/// Returns an environment variable if it configures an object store.
fn credential((name, value): (OsString, OsString)) -> Option<(String, String)> {
    let name = name.into_string().ok()?.to_lowercase();
    let is_setting = CREDENTIALS.iter().any(|start| name.starts_with(start));
    is_setting.then_some((name, value.into_string().ok()?))
}

/// Creates an empty temporary file. It is deleted when it is closed, even if the process is killed.
pub(super) fn temporary() -> Result<File, CensusError> {
    tempfile::tempfile().map_err(temporary_failed)
}

/// Returns the error for a temporary file.
pub(super) fn temporary_failed(source: std::io::Error) -> CensusError {
    CensusError::File { action: "write", file: temporary_name(), source }
}

/// Returns the folder of temporary files, for error messages.
pub(super) fn temporary_name() -> String {
    std::env::temp_dir().display().to_string()
}

fn object_failed(
    action: &'static str,
    target: &str,
) -> impl FnOnce(object_store::Error) -> CensusError {
    let target = target.to_owned();
    move |source| CensusError::Storage { action, target, source }
}
