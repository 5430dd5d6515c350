//! Reads one range of a plan: into a buffer, or passed on while it arrives.

use std::io;
use std::mem::take;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use hf_meta_format::read_plan::{ReadPlan, ReadRange, TensorPiece};
use hf_meta_inspect::shared;

use super::model::Model;
use crate::base::body_sink::BodySink;
use crate::base::lock;
use crate::call::PinnedPlan;
use crate::error::Error;
use crate::http::transfer_time;

/// A function that receives parts of tensors: the index of the tensor, the position in its data, and the bytes.
pub(super) type ReceivePart = dyn Fn(usize, u64, &[u8]) -> io::Result<()> + Send + Sync;

/// Buffers that were used, ready for the next ranges. With a new buffer for each range, a process took up to 2.5 times the
/// limit, because the allocator keeps buffers of 8 MiB.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffers {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Buffers {
    /// Reads a range into a buffer.
    pub(super) async fn read(
        self,
        model: Model,
        planned: PinnedPlan,
        range: ReadRange,
    ) -> Result<Bytes, Error> {
        let free = Arc::downgrade(&self.free);
        let length = usize::try_from(range.byte_length()).unwrap_or(usize::MAX);
        let buffer = Arc::new(Mutex::new(Vec::new()));
        let filled = Arc::clone(&buffer);
        let receive = move |at: u64, bytes: &[u8]| {
            let mut buffer = lock(&filled);
            if at == 0 {
                if buffer.capacity() == 0 {
                    *buffer = lock(&self.free).pop().unwrap_or_default();
                }
                // After a failed attempt, or after its last use.
                buffer.clear();
                buffer.reserve_exact(length);
            }
            buffer.extend_from_slice(bytes);
            Ok(())
        };
        let returned = read_range(&model, &planned, &range, receive).await?;
        if !returned.is_empty() {
            return Ok(returned.into());
        }
        let bytes = take(&mut *lock(&buffer));
        Ok(Bytes::from_owner(Buffer { bytes, free }))
    }
}

/// A buffer that is used again when its last clone is dropped.
struct Buffer {
    bytes: Vec<u8>,
    free: Weak<Mutex<Vec<Vec<u8>>>>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(free) = self.free.upgrade() {
            lock(&free).push(take(&mut self.bytes));
        }
    }
}

/// Reads a range, and passes the parts of its tensors on.
pub(super) async fn read_parts(
    model: Model,
    planned: PinnedPlan,
    range: ReadRange,
    receive: Arc<ReceivePart>,
) -> Result<(), Error> {
    let (plan, parts) = (Arc::clone(&planned.plan), range.clone());
    let pass_on = move |at: u64, bytes: &[u8]| parts_of(&plan, &parts, at, bytes, &*receive);
    let pass_on = Arc::new(pass_on);
    let received = Arc::clone(&pass_on);
    let returned = read_range(&model, &planned, &range, move |at, bytes| received(at, bytes));
    let returned = returned.await?;
    if returned.is_empty() {
        return Ok(());
    }
    pass_on(0, &returned).map_err(|error| failed(&range, error))
}

fn failed(range: &ReadRange, error: io::Error) -> Error {
    Error::Io { file: range.file.path.to_string(), source: shared(error) }
}

/// Reads a range, and passes it on while it arrives, with the position in the range. After a failed attempt, this begins
/// again at 0. Returns the bytes instead if the source does not pass ranges on.
async fn read_range(
    model: &Model,
    planned: &PinnedPlan,
    range: &ReadRange,
    receive: impl Fn(u64, &[u8]) -> io::Result<()> + Send + Sync + 'static,
) -> Result<Vec<u8>, Error> {
    let failure: Arc<Mutex<Option<io::Error>>> = Arc::default();
    let of_receiver = Arc::clone(&failure);
    let sink = BodySink::new(move |at, bytes| {
        receive(at, bytes).map_err(|error| {
            let kind = error.kind();
            *lock(&of_receiver) = Some(error);
            kind.into()
        })
    });
    let (mut reader, commit) = (model.with_sink(&sink), planned.commit.clone());
    reader.options.transfer_time = transfer_time(range.byte_length());
    let (file, span) = (Arc::clone(&range.file), range.start..range.end);
    let read = reader.call(move |call| {
        call.read_data(Arc::clone(&file), span.clone(), commit.clone(), Some(sink.clone()))
    });
    let read = read.await;
    // Not locked while bytes are passed on.
    let failure = lock(&failure).take();
    match failure {
        Some(error) => Err(failed(range, error)),
        None => read,
    }
}

/// Passes on the bytes of the tensors in a part of a range, which begins at `at`.
fn parts_of(
    plan: &ReadPlan,
    range: &ReadRange,
    at: u64,
    bytes: &[u8],
    receive: &ReceivePart,
) -> io::Result<()> {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let end = at.saturating_add(bytes.len());
    for TensorPiece { tensor, offset, bytes: piece, .. } in plan.pieces(range) {
        let (first, last) = (piece.start.max(at), piece.end.min(end));
        if first < last {
            let offset = offset + (first - piece.start) as u64;
            receive(tensor, offset, &bytes[first - at..last - at])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_after_its_last_clone() {
        let buffers = Buffers::default();
        let free = || lock(&buffers.free).len();
        let fill = |bytes| {
            let free = Arc::downgrade(&buffers.free);
            Bytes::from_owner(Buffer { bytes, free })
        };
        let bytes = fill(vec![1, 2, 3]);
        let slice = bytes.slice(1..);
        drop(bytes);
        assert_eq!(free(), 0, "a slice is in use");
        assert_eq!(slice, [2, 3][..]);
        drop(slice);
        assert_eq!(free(), 1);
        let kept = fill(vec![4]);
        drop(buffers);
        assert_eq!(kept, [4][..], "the caller may keep tensors after the read");
    }
}
