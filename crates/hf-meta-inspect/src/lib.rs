//! One inspection of model weights, for any transport.
//!
//! A [`Call`] locates the weights, reads their headers and their configuration, and counts or verifies them. It reads
//! [`Files`], which the caller implements: the client `hf-meta` reads a Hub, other web servers and disks, and the npm
//! package reads with `fetch`. So all of them choose the same weights, report the same errors and have the same limits.
//! The crate contains no HTTP, no async runtime and no access to disks.
//!
//! 1. [`Call::locate`] finds the weights by their standard names or else in a listing, and pins the files to the commit
//!    of the first response.
//! 2. A `SetReader` reads one weight set: the index, and the shards that its first shard name predicts; each header in
//!    the ranges that its [format](hf_meta_format::formats::Format) requests; and `config.json`, once a tensor needs it.
//! 3. A [`ReportBuilder`](hf_meta_count::steps::ReportBuilder) collects the headers as they arrive, compares them with
//!    the index, and feeds the single [`Counter`](hf_meta_count::count::Counter).
//! 4. [`Call::read`] counts the set, and adds the memory of all components that a loader loads with it.
//! 5. [`Call::verify`] reads the sets that a loader loads, continues after errors and reports all of them.
//!
//! A call for `bigscience/bloom` reads in this order. Lines with the same number are requested concurrently:
//!
//! ```text
//! 1  model.safetensors             bytes 0-7          404
//! 1  model.safetensors.index.json  the first chunk    names model_00001-of-00072.safetensors; the commit of all later reads
//! 2  model_000NN-of-00072          bytes 0-7 of each  predicted from the first name, while the rest of the index arrives
//! 3  model_000NN-of-00072          bytes 8-N of each  the headers
//! ```
//!
//! No tensor of BLOOM is packed or an expert, so `config.json` is not requested. For a quantized model, it is requested
//! once the first header shows that, while the others arrive.
//!
//! The futures are `Send`, except in WebAssembly; see [`BoxFuture`].

mod call;
mod config;
mod count;
mod error;
mod error_kind;
mod files;
mod header;
mod hub_plan;
mod locate;
mod memory;
mod pinned;
mod request_error;
mod send;
mod set;
mod shards;
mod shared_configs;
mod tensor_data;
mod verify;

pub use self::call::{Call, Limits, Settings};
pub use self::count::Inspected;
pub use self::error::{Error, HubCacheMiss, QuantizationNotFound, SharedError, shared};
pub use self::error_kind::ErrorKind;
pub use self::files::{Files, HeldRam, Listing, Loaded, OpenIndex, Part, Permit, Rest, Work};
pub use self::locate::Located;
pub use self::request_error::{HttpError, HttpErrorKind, HubError, Refusal};
pub use self::send::{BoxFuture, MaybeSend};
