//! The byte ranges of selected tensors.
//!
//! A [`ReadPlan`] lists the ranges that contain the tensors of a [`TensorSelection`], for programs that read part of a
//! checkpoint. It is data: it reads nothing.
//!
//! ```
//! use hf_meta_format::SafetensorsFileHeader;
//! use hf_meta_format::read_plan::{PlanOptions, ReadPlan, TensorSelection};
//!
//! let json = br#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"b":{"dtype":"F32","shape":[2,2],"data_offsets":[16,32]}}"#;
//! let header = SafetensorsFileHeader::from_json(json)?;
//! let selection = TensorSelection::patterns(["b[1:2]"]);
//! let files = [("model.safetensors".parse()?, &*header)];
//! let plan = ReadPlan::new(files, &selection, &PlanOptions::default())?;
//! let data = 8 + json.len() as u64;
//! assert_eq!(plan.ranges[0].start..plan.ranges[0].end, data + 24..data + 32);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod local_headers;
mod options;
mod part_header;
mod plan;
mod ranges;
mod selection;
mod storages;
mod tensor;

pub use self::error::PlanError;
pub use self::local_headers::LocalHeader;
pub use self::options::{PlanOptions, TensorOrder};
pub use self::part_header::PartHeader;
pub use self::plan::ReadPlan;
pub use self::ranges::{ReadRange, TensorPiece};
pub use self::selection::TensorSelection;
pub use self::storages::StorageStarts;
pub use self::tensor::{LeftOutTensor, PlannedFile, PlannedTensor};

#[cfg(test)]
mod tests;
