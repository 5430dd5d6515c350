//! Texts and JSON, which all other parts read.

mod json_form;
pub mod json_object;
#[cfg(feature = "schema")]
pub mod schema;
pub mod sort;
pub mod text;
