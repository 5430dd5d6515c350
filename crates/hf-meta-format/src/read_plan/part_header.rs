//! The header of a safetensors file that contains the tensors of a plan.

use std::cmp::Reverse;

use super::error::PlanError;
use super::plan::ReadPlan;
use crate::formats::clip;
use crate::formats::safetensors::DEFAULT_HEADER_LIMIT;

/// The alignment of the data in bytes, as in the reference implementation.
const ALIGNMENT: usize = 8;

/// The reason for quantized types of GGML and unknown types.
const OTHER_TYPE: &str = "safetensors has no such dtype";

/// The name of the metadata in a header.
const METADATA: &str = "__metadata__";

/// The start of a safetensors file that contains the tensors of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartHeader {
    /// The bytes in front of the data.
    pub bytes: Vec<u8>,
    /// The position of the data of each tensor in the file, in the order of the plan.
    pub starts: Vec<u64>,
}

impl ReadPlan {
    /// Returns the start of a safetensors file with the tensors, and the position of each. The data of every tensor is
    /// aligned to its elements, as torch requires: with [`TensorOrder::Alignment`](super::TensorOrder::Alignment), the
    /// positions are in the order of the plan.
    ///
    /// The metadata contains the `format` of the files, which loaders require.
    ///
    /// # Errors
    ///
    /// Returns an error if safetensors has no dtype for a tensor or reserves its name, or if the header exceeds the limit
    /// of the format.
    pub fn safetensors_header(&self) -> Result<PartHeader, PlanError> {
        let mut order: Vec<_> = (0..self.tensors.len()).collect();
        // A stable sort: the tensors of a size keep their order.
        order.sort_by_key(|at| Reverse(self.tensors[*at].alignment()));
        let mut starts = vec![0; order.len()];
        let mut bytes = vec![0; 8];
        bytes.push(b'{');
        if let Some(format) = &self.format {
            bytes.extend(br#""__metadata__":{"format":"#);
            push_json(&mut bytes, format);
            bytes.extend(b"},");
        }
        let mut at = 0_u64;
        for position in order {
            let tensor = &self.tensors[position];
            let failed = |reason| PlanError::NotSafetensors { tensor: clip(&tensor.name), reason };
            if tensor.dtype.bits().is_none() {
                return Err(failed(OTHER_TYPE));
            }
            if &*tensor.name == METADATA {
                return Err(failed("its name is reserved"));
            }
            let end = at.checked_add(tensor.byte_length());
            let end = end.ok_or_else(|| PlanError::OutsideFile { tensor: clip(&tensor.name) })?;
            push_json(&mut bytes, &*tensor.name);
            bytes.extend(br#":{"dtype":"#);
            push_json(&mut bytes, &tensor.dtype);
            bytes.extend(br#","shape":"#);
            push_json(&mut bytes, &tensor.shape);
            bytes.extend(format!(r#","data_offsets":[{at},{end}]}},"#).bytes());
            starts[position] = at;
            at = end;
        }
        if bytes.last() == Some(&b',') {
            bytes.pop();
        }
        bytes.push(b'}');
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), b' ');
        let length = (bytes.len() - 8) as u64;
        if length > DEFAULT_HEADER_LIMIT {
            return Err(PlanError::TooMany { limit: 100_000_000, items: "bytes in its header" });
        }
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        let data = bytes.len() as u64;
        for start in &mut starts {
            *start = start.saturating_add(data);
        }
        Ok(PartHeader { bytes, starts })
    }
}

fn push_json(bytes: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    // Texts and numbers can always be written to memory.
    let _ = serde_json::to_writer(bytes, value);
}
