//! Reads the data of selected tensors.

use std::future::ready;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use hf_meta_count::results::Plan;
use hf_meta_format::Dtype;
use hf_meta_format::read_plan::{
    PlanOptions, PlannedTensor, ReadPlan, ReadRange, TensorOrder, TensorPiece, TensorSelection,
};

use super::model::Model;
use super::ranges::{Buffers, ReceivePart, read_parts};
use crate::base::blocking::in_task;
use crate::call::PinnedPlan;
use crate::error::Error;
use crate::hub::CommitSha;

/// The default memory for ranges, in bytes.
const DEFAULT_MEMORY: u64 = 64 << 20;

/// The maximum number of ranges in flight. A sample of BLOOM has 1,059 short ones: at a round trip of 50 ms, 7 took 24 s.
const MAX_IN_FLIGHT: usize = 64;

/// The memory of a range in flight that is passed on while it arrives, in bytes: the buffers of its connection.
const CONNECTION_MEMORY: u64 = 1 << 20;

/// The minimum length of a range in bytes, if the memory is small.
const MIN_RANGE: u64 = 64 << 10;

/// The number of ranges that fit into a small memory.
const MIN_RANGES: u64 = 4;

/// A read of selected tensors that starts when it is awaited. Created by [`Model::tensors`].
#[derive(Clone, Debug)]
#[must_use = "nothing is read before it is awaited"]
pub struct Tensors {
    model: Model,
    selection: TensorSelection,
    options: PlanOptions,
    memory: u64,
}

impl Model {
    /// Selects tensors whose data to read. Awaiting the result reads the headers of their shards and plans the ranges; see
    /// [`Tensors::read_plan`] for the plan alone. Then [`TensorReader::tensors`] reads them.
    ///
    /// ```no_run
    /// # async fn example(client: &hf_meta::Client) -> Result<(), hf_meta::Error> {
    /// use futures::TryStreamExt;
    /// use hf_meta::TensorSelection;
    ///
    /// let layer = TensorSelection::patterns(["h.0.*", "word_embeddings.weight[0:128]"]);
    /// let mut tensors = client.model("bigscience/bloom").tensors(layer).await?.tensors();
    /// while let Some(tensor) = tensors.try_next().await? {
    ///     println!("{}: {} bytes of {}", tensor.name, tensor.bytes.len(), tensor.dtype);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn tensors(&self, selection: TensorSelection) -> Tensors {
        let (mut model, options) = (self.clone(), PlanOptions::default());
        if model.reads_server() {
            // All data wait for the headers. A request less per file saves more than the bytes that an estimate adds.
            model.options.plan.get_or_insert(Plan::Prefetch);
        }
        Tensors { model, selection, options, memory: DEFAULT_MEMORY }
    }
}

impl Tensors {
    /// Sets the memory for ranges that have arrived or are in flight, in bytes; 64 MiB by default, at least 256 KiB. A
    /// higher limit allows more requests in flight.
    pub fn max_memory(self, bytes: u64) -> Self {
        Self { memory: bytes.max(MIN_RANGES * MIN_RANGE), ..self }
    }

    /// Sets the order of the tensors; [`TensorOrder::Position`] by default.
    pub fn order(self, order: TensorOrder) -> Self {
        Self { options: self.options.order(order), ..self }
    }

    /// Leaves out tensors that cannot be read by range, instead of an error.
    pub(super) fn leave_out(self) -> Self {
        Self { options: self.options.leave_out(true), ..self }
    }

    /// Reads the headers of the shards that contain the selected tensors, and returns the ranges of these tensors without
    /// reading them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Model::inspect`], and [`Error::InvalidOption`] if a pattern matches no tensor or the
    /// selection cannot be read by range.
    pub fn read_plan(&self) -> BoxFuture<'static, Result<ReadPlan, Error>> {
        let planned = self.plan(&self.model);
        Box::pin(async move { Ok(Arc::unwrap_or_clone(planned.await?.plan)) })
    }

    fn plan(&self, model: &Model) -> BoxFuture<'static, Result<PinnedPlan, Error>> {
        let (selection, options) = (self.selection.clone(), self.options.clone());
        let options = options.max_range(self.range_length());
        model.call(move |call| call.plan_tensors(selection.clone(), options.clone()))
    }

    /// Returns the maximum length of a range: several have to fit into the memory.
    fn range_length(&self) -> u64 {
        self.options.max_range.min(self.memory / MIN_RANGES)
    }
}

impl IntoFuture for Tensors {
    type Output = Result<TensorReader, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            // All ranges count in one meter.
            let meter = self.model.meter.clone();
            let meter = meter.unwrap_or_else(|| self.model.context.totals.meter());
            let mut model = self.model.clone().meter(&meter);
            model.versions.get_or_insert_default();
            let planned = self.plan(&model).await?;
            Ok(TensorReader { model, planned, memory: self.memory })
        })
    }
}

/// The plan of a read, whose tensors can be read. Created by awaiting [`Tensors`].
#[derive(Clone, Debug)]
pub struct TensorReader {
    model: Model,
    planned: PinnedPlan,
    memory: u64,
}

/// A tensor with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tensor {
    /// The name.
    pub name: String,
    /// The type of the elements.
    pub dtype: Dtype,
    /// The shape, with the number of selected rows.
    pub shape: Vec<u64>,
    /// The elements, as they are in the file.
    pub bytes: Bytes,
}

/// A part of the data of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorChunk {
    /// The index of the tensor in [`ReadPlan::tensors`].
    pub tensor: usize,
    /// The position of the bytes in the data of the tensor.
    pub offset: u64,
    /// The bytes.
    pub bytes: Bytes,
}

impl TensorReader {
    /// Returns the plan.
    pub fn plan(&self) -> &ReadPlan {
        &self.planned.plan
    }

    /// Creates the reader of a plan, with the default memory.
    pub(super) fn new(model: Model, planned: PinnedPlan) -> Self {
        Self { model, planned, memory: DEFAULT_MEMORY }
    }

    /// Returns the reader of another plan of the same files.
    pub(super) fn with_plan(self, plan: ReadPlan) -> Self {
        let planned = PinnedPlan { plan: Arc::new(plan), ..self.planned };
        Self { planned, ..self }
    }

    /// Asks the budget of the model for the requests of the plan.
    pub(super) async fn admit(&self) -> Result<(), Error> {
        let requests = self.plan().ranges.len();
        self.model.call(move |call| ready(call.admit_requests(requests))).await
    }

    /// Returns the source, as it is shown in results.
    pub fn source(&self) -> &str {
        &self.planned.source
    }

    /// Returns the commit that all files belong to; `None` if the source has none.
    pub fn commit(&self) -> Option<&CommitSha> {
        self.planned.commit.as_ref()
    }

    /// Returns the number of ranges in flight that fit into the memory.
    fn in_flight(&self) -> usize {
        let longest = self.plan().ranges.iter().map(ReadRange::byte_length).max();
        // One range that has arrived is in use while the others are read.
        let ranges = (self.memory / longest.unwrap_or(1).max(1)).saturating_sub(1);
        usize::try_from(ranges).unwrap_or(usize::MAX).clamp(1, MAX_IN_FLIGHT)
    }

    /// Reads the tensors in parts, in the order of the plan. The memory does not depend on the size of the tensors.
    ///
    /// Every range is a call: it is retried, waits for rate limits, and has a [timeout](Model::timeout). Dropping the
    /// stream cancels its requests. Empty tensors have no parts.
    ///
    /// # Errors
    ///
    /// Returns the first error of a range, and [`Error::Changed`] if a file has changed since its header was read.
    pub fn chunks(self) -> BoxStream<'static, Result<TensorChunk, Error>> {
        let in_flight = self.in_flight();
        let Self { model, planned, .. } = self;
        let (ranges, buffers) = (planned.plan.ranges.clone(), Buffers::default());
        let read = move |range: ReadRange| {
            let (plan, piece_of) = (Arc::clone(&planned.plan), range.clone());
            let read = buffers.clone().read(model.clone(), planned.clone(), range);
            // In a separate task, so that ranges arrive while the caller uses others.
            in_task(async move {
                let bytes = read.await?;
                let chunk = |piece: TensorPiece| {
                    let bytes = bytes.slice(piece.bytes);
                    TensorChunk { tensor: piece.tensor, offset: piece.offset, bytes }
                };
                let chunks: Vec<_> = plan.pieces(&piece_of).map(chunk).map(Ok).collect();
                Ok::<_, Error>(stream::iter(chunks))
            })
        };
        stream::iter(ranges).map(read).buffered(in_flight).try_flatten().boxed()
    }

    /// Passes parts of the tensors to a function while they arrive, in any order: the index of the tensor in
    /// [`ReadPlan::tensors`], the position in its data, and the bytes. Unlike [`chunks`](Self::chunks), this keeps no range
    /// of a server in memory, so more ranges are in flight. After a failed attempt, a range is passed on again.
    ///
    /// The function is called on threads of the runtime, several times at once.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`chunks`](Self::chunks), and [`Error::Io`] if the function fails.
    pub async fn for_each_part(
        self,
        receive: impl Fn(usize, u64, &[u8]) -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let receive: Arc<ReceivePart> = Arc::new(receive);
        let in_flight = self.in_flight_of_parts();
        let Self { model, planned, .. } = self;
        let ranges = planned.plan.ranges.clone();
        let read = move |range: ReadRange| {
            let (model, planned, receive) = (model.clone(), planned.clone(), receive.clone());
            in_task(read_parts(model, planned, range, receive))
        };
        stream::iter(ranges).map(read).buffer_unordered(in_flight).try_collect().await
    }

    /// Returns the number of ranges in flight if ranges of a server are passed on.
    fn in_flight_of_parts(&self) -> usize {
        if !self.model.reads_server() {
            return self.in_flight();
        }
        let ranges = usize::try_from(self.memory / CONNECTION_MEMORY).unwrap_or(usize::MAX);
        ranges.clamp(1, MAX_IN_FLIGHT)
    }

    /// Reads the tensors, in the order of the plan. A tensor that spans several ranges needs its own memory besides the
    /// [limit](Tensors::max_memory): for larger ones, use [`chunks`](Self::chunks).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`chunks`](Self::chunks).
    pub fn tensors(self) -> BoxStream<'static, Result<Tensor, Error>> {
        let plan = Arc::clone(&self.planned.plan);
        let state = Assembly { plan, next: 0, chunks: self.chunks() };
        stream::try_unfold(state, |mut state| async move {
            Ok(state.next_tensor().await?.map(|tensor| (tensor, state)))
        })
        .boxed()
    }
}

/// Tensors that are put together from their parts.
struct Assembly {
    plan: Arc<ReadPlan>,
    /// The index of the next tensor.
    next: usize,
    chunks: BoxStream<'static, Result<TensorChunk, Error>>,
}

impl Assembly {
    async fn next_tensor(&mut self) -> Result<Option<Tensor>, Error> {
        let Some(tensor) = self.plan.tensors.get(self.next).cloned() else { return Ok(None) };
        let length = tensor.byte_length();
        let mut bytes = Bytes::new();
        // Chunks arrive in the order of the tensors, and the last one of a tensor ends at its end.
        if length > 0
            && let Some(chunk) = self.chunks.try_next().await?
        {
            bytes = chunk.bytes;
        }
        if (bytes.len() as u64) < length {
            bytes = self.collect(&tensor, &bytes).await?;
        }
        self.next += 1;
        let PlannedTensor { name, dtype, shape, .. } = tensor;
        let name = name.into_string();
        Ok(Some(Tensor { name, dtype, shape, bytes }))
    }

    /// Reads the other parts of a tensor.
    async fn collect(&mut self, tensor: &PlannedTensor, first: &[u8]) -> Result<Bytes, Error> {
        let mut bytes = Vec::new();
        // The size of a file is what its server claims.
        let length = usize::try_from(tensor.byte_length()).ok();
        if length.is_none_or(|length| bytes.try_reserve_exact(length).is_err()) {
            let file = tensor.file.path.to_string();
            return Err(Error::TooLarge { file, limit: isize::MAX as u64 });
        }
        bytes.extend_from_slice(first);
        while (bytes.len() as u64) < tensor.byte_length() {
            let Some(chunk) = self.chunks.try_next().await? else { break };
            bytes.extend_from_slice(&chunk.bytes);
        }
        Ok(bytes.into())
    }
}
