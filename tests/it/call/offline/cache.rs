//! A disk cache in the layout of `huggingface_hub`.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use hf_meta::{Client, ClientBuilder, Error, SafetensorsParseFromRepo};
use tempfile::TempDir;

pub(super) const COMMIT: &str = "1111111111111111111111111111111111111111";
pub(super) const OLDER: &str = "2222222222222222222222222222222222222222";

/// A cache, and a server that must receive no connection.
pub(super) struct Offline {
    pub(super) cache: TempDir,
    server: TcpListener,
}

/// The form of the files in a snapshot.
#[derive(Clone, Copy)]
pub(super) enum Files {
    /// Links to blobs.
    #[cfg(unix)]
    Linked,
    /// Links to blobs that are links to shared blobs.
    #[cfg(unix)]
    Shared,
    /// Regular files, as on systems without links.
    Copied,
}

#[cfg(unix)]
pub(super) const ALL: [Files; 3] = [Files::Linked, Files::Shared, Files::Copied];
#[cfg(not(unix))]
pub(super) const ALL: [Files; 1] = [Files::Copied];

impl Offline {
    pub(super) fn new() -> Self {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        server.set_nonblocking(true).unwrap();
        Self { cache: tempfile::tempdir().unwrap(), server }
    }

    pub(super) fn builder(&self) -> ClientBuilder {
        let endpoint = format!("http://{}", self.server.local_addr().unwrap());
        Client::builder().endpoint(endpoint).hub_cache(self.cache.path()).offline(true)
    }

    pub(super) async fn parse(
        &self,
        repo: &str,
        revision: &str,
    ) -> Result<SafetensorsParseFromRepo, Error> {
        let model = self.builder().build().unwrap().model(repo).revision(revision);
        let parsed = model.parse_safetensors_metadata().await;
        let error = self.server.accept().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "a connection was made");
        parsed
    }

    pub(super) fn home(&self, repo: &str) -> PathBuf {
        self.cache.path().join(repo)
    }

    pub(super) fn point(&self, repo: &str, reference: &str, commit: &str) {
        write(&self.home(repo).join("refs").join(reference), commit);
    }

    pub(super) fn add(&self, repo: &str, commit: &str, path: &str, content: &[u8], files: Files) {
        let file = self.home(repo).join("snapshots").join(commit).join(path);
        #[cfg(unix)]
        {
            let hash = path.replace('/', "-");
            let up = "../".repeat(path.split('/').count() + 1);
            let blob = self.home(repo).join("blobs").join(&hash);
            match files {
                Files::Copied => write(&file, content),
                Files::Linked => {
                    write(&blob, content);
                    link(&file, format!("{up}blobs/{hash}"));
                }
                Files::Shared => {
                    write(&self.cache.path().join("blobs/00").join(&hash), content);
                    link(&blob, format!("../../blobs/00/{hash}"));
                    link(&file, format!("{up}blobs/{hash}"));
                }
            }
        }
        #[cfg(not(unix))]
        match files {
            Files::Copied => write(&file, content),
        }
    }
}

pub(super) fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

#[cfg(unix)]
pub(super) fn link(path: &Path, to: impl AsRef<Path>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _ = fs::remove_file(path);
    std::os::unix::fs::symlink(to, path).unwrap();
}
