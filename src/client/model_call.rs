//! Runs the calls of a model within their timeouts.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hf_meta_count::steps::Target;
use hf_meta_format::formats::weight_sets::ListedFile;
use hf_meta_format::formats::{Formats, clip};
use hf_meta_inspect::Settings;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::context::ClientContext;
use super::model::Model;
use crate::backends::{Origin, StoreFolder, WebFolder, local_folder};
use crate::base::body_sink::BodySink;
use crate::base::budget::CallBudget;
use crate::base::meter::CallMeter;
use crate::call::{CacheLookup, CallFiles, ModelCall, file_of, on_disk, part_of_repo, probe_path};
use crate::error::{Error, ErrorKind};
use crate::hub::Source;

/// The minimum interval between checks of a timeout that a wait has extended.
const STEP: Duration = Duration::from_millis(50);

/// The timeout of a call without one. It excludes waits for rate limits and for a limit of large calls.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(360);

impl Model {
    /// Runs a call within its timeout. The future borrows nothing, so it can be spawned.
    pub(super) fn call<T, Read, Reading>(&self, read: Read) -> BoxFuture<'static, Result<T, Error>>
    where
        T: Send + 'static,
        Read: FnMut(ModelCall) -> Reading + Send + 'static,
        Reading: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let model = self.clone();
        // Boxed, because callers embed the future in larger futures, and moving those would copy it.
        Box::pin(async move {
            let meter = model.meter.clone().unwrap_or_else(|| model.context.totals.meter());
            let (limit, meter) = model.limited(meter);
            let call = model.run(read, meter.clone());
            let done = within_timeout(limit, &meter, call).await;
            done.ok_or(Error::DeadlineExceeded { limit })?
        })
    }

    /// Returns whether ranges come from a server, which can pass them on while they arrive.
    pub(super) fn reads_server(&self) -> bool {
        match &self.source {
            Ok(Source::Url(_)) => true,
            Ok(Source::Repo { .. }) => self.store.is_none() && self.context.offline.is_none(),
            _ => false,
        }
    }

    /// Passes ranges of servers on while they arrive.
    pub(super) fn with_sink(&self, sink: &BodySink) -> Self {
        let http = self.context.http.with_sink(sink.clone());
        let context = Arc::new(ClientContext { http, ..ClientContext::clone(&self.context) });
        Self { context, ..self.clone() }
    }

    /// Runs a call without a timeout. If the Hub rejects the token, runs it again without the token, because a public
    /// repository needs no token.
    async fn run<T, Read, Reading>(self, mut read: Read, meter: CallMeter) -> Result<T, Error>
    where
        Read: FnMut(ModelCall) -> Reading,
        Reading: Future<Output = Result<T, Error>>,
    {
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
        if matches!(self.source, Ok(Source::Repo { .. })) && self.store.is_none() {
            self.context.share_known_servers(&meter).await;
        }
        result
    }

    /// Returns the timeout of a call, and its meter with the end of the call.
    fn limited(&self, meter: CallMeter) -> (Duration, CallMeter) {
        let timeout = self.options.timeout.or(self.context.call_timeout);
        let deadline = timeout.and_then(|limit| Instant::now().checked_add(limit));
        let default = DEFAULT_TIMEOUT.saturating_add(self.options.transfer_time);
        (timeout.unwrap_or(default), meter.with_deadline(deadline))
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

    async fn start(&self, client: &ClientContext, meter: CallMeter) -> Result<ModelCall, Error> {
        let source = self.source.clone()?;
        let formats = self.formats()?;
        let (limit, ram) = (self.budget.clone(), Arc::clone(&client.ram));
        let large = self.large_calls.as_ref();
        let budget = CallBudget::new(limit, ram, large, meter.clone());
        let (origin, target) = self.origin(client, &source, &formats, &meter, &budget).await?;
        let options = &self.options;
        let cache = client.header_cache.as_ref().and_then(|cache| {
            let (part, probe) = (part_of_repo(&target, &formats, options), probe_path(&target));
            CacheLookup::new(cache, options.cache_mode, &origin, &part, probe, &budget)
        });
        let (on_progress, on_header) = (self.on_progress.clone(), self.on_header.clone());
        let files = CallFiles::new(origin, on_progress, on_header, meter.clone());
        let known_files = options.known_files.as_ref().map(|paths| {
            let files = paths.iter().map(|path| ListedFile { path: path.clone(), size: 0 });
            Arc::new(files.collect())
        });
        let settings = Settings {
            source: self.options.name.clone().unwrap_or_else(|| self.shown(&source)),
            target,
            formats,
            plan: options.plan.unwrap_or_default(),
            list_sets: options.list_sets,
            all_sets: options.all_sets,
            memory: options.memory,
            known_files,
            limits: client.limits,
            keep_headers: false,
            read_all_shards: false,
            selection: None,
        };
        Ok(ModelCall { settings, files, budget, cache, meter, started: std::time::Instant::now() })
    }

    /// Returns the origin of the files of a source, and the part of it to read.
    async fn origin(
        &self,
        client: &ClientContext,
        source: &Source,
        formats: &Formats,
        meter: &CallMeter,
        budget: &CallBudget,
    ) -> Result<(Origin, Target), Error> {
        Ok(match source {
            Source::Repo { repo, revision, path } => {
                let revision = revision.clone().unwrap_or_default();
                let origin = if let Some(store) = &self.store {
                    let name = store.name().unwrap_or_else(|| repo.to_string());
                    let versions = self.versions.clone().unwrap_or_default();
                    let folder = StoreFolder::remote(store, name, versions, meter);
                    Origin::Folder(Arc::new(folder))
                } else {
                    client.repo(repo, revision, meter.clone(), budget.clone()).await
                };
                (origin, Target::from_path(formats, path.clone()))
            }
            Source::Url(_) if client.offline.is_some() => {
                return Err(Error::Offline { url: source.to_string() });
            }
            Source::Url(url) => {
                let http = client.http.for_call(meter.clone(), budget.clone());
                let file = file_of(url);
                let folder = WebFolder { http, url: url.clone(), file: file.clone() };
                (Origin::Folder(Arc::new(folder)), Target::File(file))
            }
            Source::Local(path) => {
                let (folder, target) = on_disk(formats, path).await?;
                let versions = self.versions.clone().unwrap_or_default();
                let folder = local_folder(folder, versions, meter.clone());
                (Origin::Folder(Arc::new(folder)), target)
            }
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
