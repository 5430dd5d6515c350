//! Errors of calls, from `hf-meta-inspect`, whose messages name the repository and the file.

#[cfg(test)]
mod tests;

pub(crate) use hf_meta_inspect::{Error, ErrorKind, HubCacheMiss, shared};
