//! What a call notes for the cache while it reads.

use std::sync::{Arc, Mutex, PoisonError};

use crate::backends::Listing;
use crate::cache::CachedHeaders;
use crate::formats::RepoPath;

/// Notes all that the result of a call comes from, or nothing where nothing is to be kept. Clones note
/// in the same place.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheRecorder(Option<Arc<Mutex<CachedHeaders>>>);

impl CacheRecorder {
    /// A record that is empty so far.
    pub(crate) fn begin() -> Self {
        Self(Some(Arc::default()))
    }

    /// Whether anything is to be kept.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Notes the start of a file, in two parts.
    pub(crate) fn file(&self, path: &RepoPath, parts: [&[u8]; 2], file_size: u64) {
        self.note(|heads| heads.add(path.clone(), parts, file_size));
    }

    /// Notes which files are in a folder. That it cannot be told may be so today only.
    pub(crate) fn listing(&self, folder: Option<&RepoPath>, listed: Option<&Listing>) {
        self.note(|heads| match listed {
            Some(Listing { files, is_complete, .. }) => heads.add_list(folder, files, *is_complete),
            None => heads.forgo(),
        });
    }

    /// Notes that the result comes from more than the files of the commit.
    pub(crate) fn forgo(&self) {
        self.note(CachedHeaders::forgo);
    }

    /// What was noted, of which nothing is left.
    pub(crate) fn take(&self) -> CachedHeaders {
        let mut taken = CachedHeaders::default();
        self.note(|heads| taken = std::mem::take(heads));
        taken
    }

    fn note(&self, note: impl FnOnce(&mut CachedHeaders)) {
        if let Some(heads) = &self.0 {
            note(&mut heads.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}
