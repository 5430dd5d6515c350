//! Stored files and their bytes as streams.
//!
//! A file consists of stored bytes, in memory or on disk, padded with zeros to its size. It is never held in memory
//! as a whole, so it can have terabytes.

use std::io::{self, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::digest::Digest;
use hf_meta_format::Dtype;

const CHUNK: usize = 64 * 1024;
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// A file in a repository.
#[derive(Clone)]
pub struct File {
    stored: Stored,
    stored_size: u64,
    size: u64,
    is_on_cdn: bool,
    digest: Digest,
}

#[derive(Clone)]
enum Stored {
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
            digest: Digest::new((&head, size)),
            stored_size: head.len() as u64,
            size: size.max(head.len() as u64),
            is_on_cdn: false,
            stored: Stored::Memory(head),
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
            digest: Digest::new((path, size, stored_size, metadata.modified().ok())),
            stored_size,
            size: size.map_or(stored_size, |size| size.max(stored_size)),
            is_on_cdn: false,
            stored: Stored::Disk(path.to_owned()),
        })
    }

    /// Serves this file through the CDN, regardless of its name.
    #[must_use]
    pub fn on_cdn(self) -> Self {
        Self { is_on_cdn: true, ..self }
    }

    pub(super) fn is_on_cdn(&self) -> bool {
        self.is_on_cdn
    }

    /// Returns the size in bytes, including padding.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn is_padded(&self) -> bool {
        self.stored_size < self.size
    }

    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the stored bytes before an offset, or fewer if the file is shorter.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub(super) fn start(&self, end: u64) -> io::Result<Bytes> {
        match &self.stored {
            Stored::Memory(bytes) => Ok(bytes.slice(..bytes.len().min(index(end)))),
            Stored::Disk(path) => {
                let mut start = Vec::new();
                let file = std::fs::File::open(path)?;
                io::Read::read_to_end(&mut io::Read::take(file, end), &mut start)?;
                Ok(start.into())
            }
        }
    }

    /// Returns the bytes of a range, which must lie inside the file.
    pub(super) fn read(self, range: Range<u64>) -> impl Stream<Item = io::Result<Bytes>> + Send {
        let end = range.end.min(self.stored_size);
        let start = range.start.min(end);
        let padding = (range.end - range.start) - (end - start);
        self.stored.read(start..end).chain(stream::iter(zeros(padding).map(Ok)))
    }
}

impl Stored {
    fn read(self, range: Range<u64>) -> BoxStream<'static, io::Result<Bytes>> {
        match self {
            Self::Memory(bytes) => {
                stream::iter([Ok(bytes.slice(index(range.start)..index(range.end)))]).boxed()
            }
            Self::Disk(path) => stream::once(read_disk(path, range)).try_flatten().boxed(),
        }
    }
}

async fn read_disk(
    path: PathBuf,
    range: Range<u64>,
) -> io::Result<impl Stream<Item = io::Result<Bytes>>> {
    let mut file = tokio::fs::File::open(path).await?;
    file.seek(SeekFrom::Start(range.start)).await?;
    let part = file.take(range.end - range.start);
    Ok(stream::try_unfold(part, |mut part| async {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        let read = part.read_buf(&mut chunk).await?;
        Ok((read > 0).then(|| (chunk.freeze(), part)))
    }))
}

/// Returns `count` zero bytes in chunks.
pub(super) fn zeros(count: u64) -> impl Iterator<Item = Bytes> {
    let chunk = move |start| Bytes::from_static(&ZEROS[..CHUNK.min(index(count - start))]);
    (0..count).step_by(CHUNK).map(chunk)
}

/// Converts an offset into bytes in memory.
fn index(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}
