//! Files and their bytes as streams.
//!
//! A file consists of stored bytes, in memory or on disk, padded with zeros to its size. It is never held in memory
//! as a whole, so it can have terabytes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use hf_meta_format::Dtype;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

const CHUNK: usize = 64 * 1024;
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// The extensions of files that the Hub stores in Git LFS and serves through the CDN.
const LARGE_EXTENSIONS: [&str; 5] = ["safetensors", "bin", "gguf", "onnx", "pt"];

/// A file in a repository.
#[derive(Clone)]
#[must_use]
pub struct File {
    content: FileContent,
    stored_size: u64,
    size: u64,
    is_on_cdn: bool,
    hash: String,
}

#[derive(Clone)]
enum FileContent {
    Memory(Bytes),
    Disk(PathBuf),
}

impl File {
    /// Creates a file with this content.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self::padded(bytes, 0)
    }

    /// Creates a safetensors file whose tensors, given by name, dtype and shape, are all zeros.
    ///
    /// A tensor with an unknown [`Dtype`] takes up no bytes. If the tensors overflow 64 bits, the file is invalid.
    pub fn safetensors<'a>(
        tensors: impl IntoIterator<Item = (&'a str, &'a str, &'a [u64])>,
    ) -> Self {
        let (mut header, mut end) = (Map::new(), 0_u64);
        for (name, dtype, shape) in tensors {
            let elements = shape.iter().fold(1, |product: u64, size| product.saturating_mul(*size));
            let bits = elements.saturating_mul(Dtype::from(dtype).bits().unwrap_or(0));
            let start = end;
            end = end.saturating_add(bits.div_ceil(8));
            let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] });
            header.insert(name.to_owned(), entry);
        }
        let header = Value::Object(header).to_string();
        let head = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        let size = end.saturating_add(head.len() as u64);
        Self::padded(head, size)
    }

    /// Creates a file of `size` bytes that starts with `head` and is padded with zeros.
    pub fn padded(head: impl Into<Bytes>, size: u64) -> Self {
        let head = head.into();
        Self {
            hash: placeholder_hash((&head, size)),
            stored_size: head.len() as u64,
            size: size.max(head.len() as u64),
            is_on_cdn: false,
            content: FileContent::Memory(head),
        }
    }

    /// Creates a file from a local file, padded with zeros to `size` bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the metadata of the local file cannot be read.
    pub fn on_disk(path: &Path, size: Option<u64>) -> io::Result<Self> {
        let metadata = path.metadata()?;
        let stored_size = metadata.len();
        Ok(Self {
            hash: placeholder_hash((path, size, stored_size, metadata.modified().ok())),
            stored_size,
            size: size.map_or(stored_size, |size| size.max(stored_size)),
            is_on_cdn: false,
            content: FileContent::Disk(path.to_owned()),
        })
    }

    /// Serves this file through the CDN, regardless of its name.
    pub fn on_cdn(self) -> Self {
        Self { is_on_cdn: true, ..self }
    }

    /// Sets the hash that the Hub states: the SHA-256 of a large file, or the hash by which Git identifies a small one, in
    /// hexadecimal. By default, it is a placeholder. Shorter hashes are padded.
    pub fn hash(self, hash: &str) -> Self {
        Self { hash: format!("{hash:0<64}"), ..self }
    }

    /// Returns the size in bytes, including padding.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns whether the CDN serves this file if it has this path: weights, and all zero-padded files.
    pub(crate) fn is_large(&self, path: &str) -> bool {
        let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
        self.is_on_cdn || self.stored_size < self.size || LARGE_EXTENSIONS.contains(&extension)
    }

    /// Returns the placeholder of the git hash.
    pub(crate) fn git_hash(&self) -> &str {
        &self.hash[..GIT_HASH_LENGTH]
    }

    /// Returns the placeholder of the SHA-256 of the content, by which Git LFS identifies files.
    pub(crate) fn lfs_hash(&self) -> &str {
        &self.hash
    }

    /// Returns the stored bytes before an offset, or fewer if the file is shorter.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read.
    pub(crate) fn start(&self, end: u64) -> io::Result<Bytes> {
        match &self.content {
            FileContent::Memory(bytes) => Ok(bytes.slice(..bytes.len().min(index(end)))),
            FileContent::Disk(path) => {
                let mut start = Vec::new();
                std::fs::File::open(path)?.take(end).read_to_end(&mut start)?;
                Ok(start.into())
            }
        }
    }

    /// Returns the bytes of a range, which must lie inside the file.
    pub(crate) fn read(self, range: Range<u64>) -> BoxStream<'static, io::Result<Bytes>> {
        let end = range.end.min(self.stored_size);
        let start = range.start.min(end);
        let padding = (range.end - range.start) - (end - start);
        let stored = match self.content {
            FileContent::Memory(bytes) => {
                stream::iter([Ok(bytes.slice(index(start)..index(end)))]).boxed()
            }
            FileContent::Disk(path) => {
                stream::once(read_disk(path, start..end)).try_flatten().boxed()
            }
        };
        stored.chain(zeros(padding)).boxed()
    }
}

async fn read_disk(
    path: PathBuf,
    range: Range<u64>,
) -> io::Result<impl Stream<Item = io::Result<Bytes>>> {
    let mut file = tokio::fs::File::open(path).await?;
    file.seek(SeekFrom::Start(range.start)).await?;
    Ok(ReaderStream::with_capacity(file.take(range.end - range.start), CHUNK))
}

/// Returns `count` zero bytes in chunks.
pub(crate) fn zeros(count: u64) -> impl Stream<Item = io::Result<Bytes>> {
    let chunk = move |start| Ok(Bytes::from_static(&ZEROS[..CHUNK.min(index(count - start))]));
    stream::iter((0..count).step_by(CHUNK).map(chunk))
}

/// Converts an offset into bytes in memory.
fn index(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

/// The number of hexadecimal digits of a git hash.
pub(crate) const GIT_HASH_LENGTH: usize = 40;

/// Returns a placeholder for a SHA-256 hash: 64 hexadecimal digits that differ for different content. They may change
/// between Rust versions.
pub(crate) fn placeholder_hash(subject: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    subject.hash(&mut hasher);
    format!("{:016x}", hasher.finish()).repeat(4)
}
