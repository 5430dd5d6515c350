//! Runs the calls of a model: alone or shared, within their timeouts.

use std::any::TypeId;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::context::{CallKey, ClientContext};
use super::model::Model;
use crate::backends::{Origin, StoreFolder, WebFolder, local_folder};
use crate::base::meter::CallMeter;
use crate::cache::CacheMode;
use crate::error::Error;
use crate::error_kind::ErrorKind;
use crate::formats::{Formats, clip};
use crate::hub::Source;
use crate::inspect::{
    Call, CallContext, CallFiles, CallMemory, CallState, LargeCallLimit, ReadMode, file_of, on_disk,
};
use crate::steps::Target;

/// The minimum interval between checks of a timeout that a wait has extended.
const STEP: Duration = Duration::from_millis(50);

/// The timeout of a call without one. It excludes waits for rate limits and for a [`LargeCallLimit`].
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(360);

impl Model {
    /// Runs a call within its timeout, or joins an equal call in flight. The future borrows nothing, so it can be
    /// spawned.
    pub(super) fn call<T, Read, Reading>(
        &self,
        read: Read,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, Read, Reading>
    where
        T: Clone + Send + Sync + 'static,
        Read: FnMut(Call) -> Reading + Send + 'static,
        Reading: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let model = self.clone();
        // Boxed, because callers embed the future in larger futures, and moving those would copy it.
        Box::pin(async move {
            let meter = model.meter.clone().unwrap_or_else(|| model.context.totals.start_call());
            let (key, (limit, meter)) = (model.key::<Read>(), model.limited(meter));
            let calls = Arc::clone(&model.context.shared_calls);
            let call = model.run(read, meter.clone());
            let done = if let Some(key) = key {
                let shared = calls.join_or_start(key, meter, call);
                within_timeout(limit, &shared.meter, shared.result.clone()).await
            } else {
                within_timeout(limit, &meter, call).await
            };
            done.ok_or(Error::DeadlineExceeded { limit })?
        })
    }

    /// Runs a call without a timeout. If the Hub rejects the token, runs it again without the token, because a public
    /// repository needs no token.
    async fn run<T, Read, Reading>(self, mut read: Read, meter: CallMeter) -> Result<T, Error>
    where
        Read: FnMut(Call) -> Reading,
        Reading: Future<Output = Result<T, Error>>,
    {
        let (token, calls) = (self.context.http.authorization(), &self.context.shared_calls);
        let repo = match &self.source {
            Ok(Source::Repo { repo, .. }) if self.store.is_none() => Some(repo),
            _ => None,
        };
        if self.options.cache_mode == CacheMode::Default
            && let Some(missing) = repo.and_then(|repo| calls.missing(token, repo))
        {
            return Err(missing);
        }
        let source = self.source.as_ref().ok().map(tracing::field::display);
        let span = tracing::info_span!("call", source);
        let call = async {
            let rejected = match read(self.start(&self.context, meter.clone()).await?).await {
                Err(error) if error.kind() == ErrorKind::RejectedToken => error,
                done => return done,
            };
            let Some(anonymous) = self.context.anonymous() else { return Err(rejected) };
            match read(self.start(&anonymous, meter.clone()).await?).await {
                Err(error) if error.is_denied() || error.kind() == ErrorKind::RepoNotFound => {
                    Err(rejected)
                }
                done => {
                    anonymous.warnings.warn_rejected_token();
                    done
                }
            }
        };
        let result = call.instrument(span).await;
        if let Some(repo) = repo {
            calls.remember(token, repo, &result);
            self.context.share_known_servers(&meter).await;
        }
        result
    }

    /// Returns the timeout of a call, and its meter with the end of the call.
    fn limited(&self, meter: CallMeter) -> (Duration, CallMeter) {
        let timeout = self.options.timeout.or(self.context.call_timeout);
        let deadline = timeout.and_then(|limit| Instant::now().checked_add(limit));
        (timeout.unwrap_or(DEFAULT_TIMEOUT), meter.with_deadline(deadline))
    }

    /// Returns the identity of a call; `None` if it must not be shared, because the caller observes or controls it, or
    /// because `Read` captures a value, which equal calls could differ in.
    fn key<Read: 'static>(&self) -> Option<CallKey> {
        let is_observed = self.on_progress.is_some() || self.on_header.is_some();
        let is_controlled =
            self.large_calls.is_some() || self.meter.is_some() || self.store.is_some();
        if is_observed || is_controlled || size_of::<Read>() > 0 {
            return None;
        }
        let (operation, source) = (TypeId::of::<Read>(), self.source.clone().ok()?);
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let token = self.context.http.authorization().to_vec();
        Some(CallKey { operation, runtime, token, source, options: self.options.clone() })
    }

    /// Returns the formats to read.
    fn formats(&self) -> Result<Formats, Error> {
        let Some(name) = &self.options.format else { return Ok(self.context.formats.clone()) };
        self.context.formats.only(name).ok_or_else(|| {
            let message = format!("unknown format `{}`", clip(name));
            Error::InvalidOption { option: "format", message }
        })
    }

    /// Returns the source as shown in results: the name of its store with the path, or the source itself.
    fn shown(&self, source: &Source) -> String {
        let name = self.store.as_ref().and_then(|store| store.name());
        match (name, source) {
            (Some(name), Source::Repo { path: Some(path), .. }) => {
                format!("{}/{path}", name.trim_end_matches('/'))
            }
            (Some(name), _) => name,
            (None, source) => source.to_string(),
        }
    }

    async fn start(&self, client: &ClientContext, meter: CallMeter) -> Result<Call, Error> {
        let source = self.source.clone()?;
        let formats = self.formats()?;
        let (origin, target) = match &source {
            Source::Repo { repo, revision, path } => {
                let revision = revision.clone().unwrap_or_default();
                let origin = if let Some(store) = &self.store {
                    let name = store.name().unwrap_or_else(|| repo.to_string());
                    let store = Arc::clone(store);
                    let meter = meter.clone();
                    Origin::Folder(Arc::new(StoreFolder { store, name, is_remote: true, meter }))
                } else {
                    client.repo(repo, revision, meter.clone()).await
                };
                (origin, Target::from_path(&formats, path.clone()))
            }
            Source::Url(_) if client.offline.is_some() => {
                return Err(Error::Offline { url: source.to_string() });
            }
            Source::Url(url) => {
                let (http, file) = (client.http.with_meter(meter.clone()), file_of(url));
                let folder = WebFolder { http, url: url.clone(), file: file.clone() };
                (Origin::Folder(Arc::new(folder)), Target::File(file))
            }
            Source::Local(path) => {
                let (folder, target) = on_disk(&formats, path).await?;
                let folder = local_folder(folder, meter.clone());
                (Origin::Folder(Arc::new(folder)), target)
            }
        };
        let context = CallContext {
            source: self.options.name.clone().unwrap_or_else(|| self.shown(&source)),
            target,
            formats,
            options: self.options.clone(),
            limits: client.limits,
            cache: client.header_cache.clone(),
            on_progress: self.on_progress.clone(),
            on_header: self.on_header.clone(),
            started: std::time::Instant::now(),
            meter,
            memory: CallMemory::new(Arc::clone(&client.memory)),
            large: self.large_calls.as_ref().map(LargeCallLimit::start_call),
        };
        Ok(Call {
            context: Arc::new(context),
            files: CallFiles::new(origin),
            mode: ReadMode::default(),
            state: CallState::default(),
        })
    }
}

/// Runs a call for at most `limit`, not counting the waits that its meter excludes. Returns `None` if the time runs out.
async fn within_timeout<T>(
    limit: Duration,
    meter: &CallMeter,
    call: impl Future<Output = T>,
) -> Option<T> {
    let (started, mut call) = (Instant::now(), pin!(call));
    let mut left = limit;
    loop {
        if let Ok(result) = timeout(left, call.as_mut()).await {
            return Some(result);
        }
        left =
            limit.saturating_sub(started.elapsed().saturating_sub(meter.excluded_from_timeout()));
        if left.is_zero() {
            return None;
        }
        left = left.max(STEP);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// Runs a call that takes all `waits` concurrently and then works for `own`.
    async fn run(own: Duration, waits: &[Duration]) -> Option<()> {
        let meter = CallMeter::default();
        let waiting = waits.iter().map(async |wait| {
            let _waiting = meter.start_wait();
            sleep(*wait).await;
        });
        let call = async {
            futures::future::join_all(waiting).await;
            sleep(own).await;
        };
        within_timeout(LIMIT, &meter, call).await
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_rate_limits_do_not_count_towards_the_timeout() {
        let (short, long) = (STEP, LIMIT + STEP);
        assert!(run(short, &[]).await.is_some());
        assert!(run(long, &[]).await.is_none());
        assert!(run(short, &[300 * STEP, 600 * LIMIT]).await.is_some());
        assert!(run(long, &[LIMIT, LIMIT, LIMIT]).await.is_none(), "concurrent waits count once");
    }
}
