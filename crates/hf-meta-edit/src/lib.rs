//! Edits the metadata of local safetensors files: only the header changes, in place if the new one fits.
//!
//! [`FileEdit::new`] opens, locks and checks a file, and computes its new header. [`FileEdit::apply`] writes it. So a
//! caller can check all files before the first one changes. The order of the writes is in `steps`: a process that is
//! killed at any point leaves the old or the new file, or a journal next to it with both headers, which
//! [`complete_interrupted`] completes.
//!
//! ```
//! use hf_meta_edit::{EditProgress, FileEdit};
//! use hf_meta_format::formats::safetensors::MetadataEdit;
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("lora.safetensors");
//! # std::fs::write(&path, b"\x39\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\",\"ss_tag_frequency\":\"{}\"}} ")?;
//! let delete = MetadataEdit::Delete("ss_*".to_owned());
//! let edit = FileEdit::new(&path, &[delete], None)?;
//! assert_eq!(edit.changes().counts().deleted, 1);
//! assert!(!edit.is_new_file());
//! edit.apply(&EditProgress::default())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod changes;
mod disk;
mod edit;
mod error;
mod interrupted;
mod journal;
mod steps;
mod target;

pub use self::changes::{ChangeCounts, ChangedEntry, Changes, unmatched_patterns};
pub use self::disk::EditProgress;
pub use self::edit::{FileEdit, weight_files};
pub use self::error::FileEditError;
pub use self::interrupted::complete_interrupted;
pub use self::steps::Recovery;
