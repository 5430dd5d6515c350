//! The options of a plan.

use super::storages::StorageStarts;

/// The order of the tensors of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorOrder {
    /// By file and position.
    #[default]
    Position,
    /// By the size of the elements, the largest first, and then by file and position: the order in a file that
    /// [`ReadPlan::safetensors_header`](super::ReadPlan::safetensors_header) begins. Bytes between tensors may be read
    /// several times.
    Alignment,
}

/// The options of a plan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlanOptions {
    /// The maximum number of unneeded bytes between two tensors that one range contains.
    pub max_gap: u64,
    /// The maximum length of a range in bytes. Longer ones are split into equal parts.
    pub max_range: u64,
    /// The order of the tensors.
    pub order: TensorOrder,
    /// The positions of the storages in ZIP archives of PyTorch.
    pub storage_starts: StorageStarts,
    /// Lists tensors that cannot be read by range in [`ReadPlan::left_out`](super::ReadPlan::left_out), instead of an error.
    pub leave_out: bool,
}

impl PlanOptions {
    /// The default maximum gap. At 100 Mbit/s, 1 MiB takes as long as the two round trips of another range at 40 ms.
    pub const MAX_GAP: u64 = 1 << 20;

    /// The default maximum length of a range: 1.7 GB then take some 200 requests, and 8 ranges in flight 64 MiB.
    pub const MAX_RANGE: u64 = 8 << 20;

    /// Sets the order of the tensors.
    #[must_use]
    pub fn order(self, order: TensorOrder) -> Self {
        Self { order, ..self }
    }

    /// Sets the positions of the storages, which [`ReadPlan::local_headers`](super::ReadPlan::local_headers) leads to.
    #[must_use]
    pub fn storage_starts(self, storage_starts: StorageStarts) -> Self {
        Self { storage_starts, ..self }
    }

    /// Lists tensors that cannot be read by range in [`ReadPlan::left_out`](super::ReadPlan::left_out), instead of an error.
    #[must_use]
    pub fn leave_out(self, enabled: bool) -> Self {
        Self { leave_out: enabled, ..self }
    }

    /// Sets the maximum length of a range in bytes, at least 1.
    #[must_use]
    pub fn max_range(self, bytes: u64) -> Self {
        Self { max_range: bytes.max(1), ..self }
    }

    /// Sets the maximum gap in bytes.
    #[must_use]
    pub fn max_gap(self, bytes: u64) -> Self {
        Self { max_gap: bytes, ..self }
    }
}

impl Default for PlanOptions {
    fn default() -> Self {
        let (max_gap, max_range) = (Self::MAX_GAP, Self::MAX_RANGE);
        let (order, storage_starts) = (TensorOrder::default(), StorageStarts::default());
        Self { max_gap, max_range, order, storage_starts, leave_out: false }
    }
}
