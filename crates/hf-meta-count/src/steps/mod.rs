//! The steps of a call after its headers and its configuration were read.

mod builder;
mod components;
mod config_file;
mod index_check;
mod joins;
mod parts;
mod pickle_findings;
mod target;

pub use self::builder::{BuiltReport, CountedReport, ReportBuilder};
pub use self::components::{cache_of_all, pipeline_components};
pub use self::config_file::ConfigFile;
pub(crate) use self::index_check::check_count;
pub(crate) use self::parts::Parts;
pub use self::target::Target;
