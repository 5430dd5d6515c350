//! Coalescing: equal concurrent calls of a client share one read, and a missing repository is remembered.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, Shared, WeakShared};
use quick_cache::sync::Cache as QuickCache;
use tokio::runtime;
use tokio::time::Instant;

use crate::base::meter::CallMeter;
use crate::base::sync::lock;
use crate::error::Error;
use crate::error_kind::ErrorKind;
use crate::hub::{RepoId, Source};
use crate::inspect::ReadOptions;

/// The time for which a missing repository is remembered. It is short, because its owner may be creating it.
const MISSING_TTL: Duration = Duration::from_secs(10);

/// The maximum number of missing repositories that are remembered.
const MAX_MISSING: usize = 1_000;

/// The calls in flight of a client, and the repositories that it could not find.
///
/// The token is part of every key, so no caller receives what another token may read.
pub(crate) struct SharedCalls {
    in_flight: Mutex<HashMap<CallKey, InFlight>>,
    missing: QuickCache<(Vec<u8>, RepoId), (Instant, Error)>,
}

/// The identity of a call. Equal calls read the same and return the same type.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct CallKey {
    pub(super) output: TypeId,
    /// The runtime of the call: its connections and timers stop with it.
    pub(super) runtime: Option<runtime::Id>,
    /// The token as sent to the server; empty without a token.
    pub(super) token: Vec<u8>,
    pub(super) source: Source,
    pub(super) options: ReadOptions,
}

/// A call in flight. It is driven by everyone who waits for it, so it continues if its first caller is dropped, and
/// ends if all of them are.
#[derive(Clone)]
pub(super) struct SharedCall<T> {
    pub(super) result: Shared<BoxFuture<'static, Result<T, Error>>>,
    pub(super) meter: CallMeter,
}

/// An entry of the calls in flight.
struct InFlight {
    /// The weak form of a [`SharedCall`], and its meter.
    call: Box<dyn Any + Send>,
    /// Identifies the call, because an equal one may follow it.
    id: Arc<()>,
}

/// Removes a call from the calls in flight when it ends or is cancelled.
struct EndOfCall {
    calls: Arc<SharedCalls>,
    key: CallKey,
    id: Arc<()>,
}

impl Default for SharedCalls {
    fn default() -> Self {
        Self { in_flight: Mutex::default(), missing: QuickCache::new(MAX_MISSING) }
    }
}

impl SharedCalls {
    /// Returns the equal call in flight, or starts one.
    pub(super) fn join_or_start<T: Clone + Send + Sync + 'static>(
        self: &Arc<Self>,
        key: CallKey,
        meter: CallMeter,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> SharedCall<T> {
        type Weak<T> = (WeakShared<BoxFuture<'static, Result<T, Error>>>, CallMeter);
        let mut in_flight = self.lock();
        let found = in_flight.get(&key).and_then(|found| found.call.downcast_ref::<Weak<T>>());
        if let Some((result, meter)) = found
            && let Some(result) = result.upgrade()
        {
            return SharedCall { result, meter: meter.clone() };
        }
        let id = Arc::new(());
        let end = EndOfCall { calls: Arc::clone(self), key: key.clone(), id: Arc::clone(&id) };
        let call = async move {
            let _end = end;
            call.await
        };
        let result = call.boxed().shared();
        if let Some(weak) = result.downgrade() {
            let call: Weak<T> = (weak, meter.clone());
            in_flight.insert(key, InFlight { call: Box::new(call), id });
        }
        SharedCall { result, meter }
    }

    /// Returns the error of a recent call for a repository that does not exist, or that the token cannot see.
    pub(super) fn missing(&self, token: &[u8], repo: &RepoId) -> Option<Error> {
        let (seen, error) = self.missing.get(&(token.to_vec(), repo.clone()))?;
        (seen.elapsed() < MISSING_TTL).then_some(error)
    }

    /// Remembers a repository that does not exist, or forgets it if it does.
    pub(super) fn remember<T>(&self, token: &[u8], repo: &RepoId, result: &Result<T, Error>) {
        let key = (token.to_vec(), repo.clone());
        match result {
            Err(error) if error.kind() == ErrorKind::RepoNotFound => {
                self.missing.insert(key, (Instant::now(), error.clone()));
            }
            _ => {
                self.missing.remove(&key);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CallKey, InFlight>> {
        lock(&self.in_flight)
    }
}

impl Drop for EndOfCall {
    fn drop(&mut self) {
        let mut in_flight = self.calls.lock();
        if in_flight.get(&self.key).is_some_and(|found| Arc::ptr_eq(&found.id, &self.id)) {
            in_flight.remove(&self.key);
        }
    }
}

impl fmt::Debug for SharedCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCalls").field("in_flight", &self.lock().len()).finish_non_exhaustive()
    }
}
