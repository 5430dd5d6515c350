//! The progress of a census on stderr: a bar on a terminal, or else an occasional line.

use std::fmt;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hf_meta::Client;
use hf_meta::report::text::{counted, duration, thousands};
use hf_meta_census::{Census, CensusProgress, Manifest};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::stderr::ProgressBars;

/// The interval between lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(30);

/// The number of file requests that the Hub allows anonymous readers per 5 minutes
/// (<https://huggingface.co/docs/hub/rate-limits>).
const ANONYMOUS_QUOTA: f64 = 3_000.0;

/// The number of API requests that the Hub allows anonymous readers per 5 minutes.
const ANONYMOUS_API_QUOTA: f64 = 500.0;

/// The progress of a census. Clones share it.
#[derive(Clone)]
pub(super) struct CensusBar {
    /// `None` if the command is quiet.
    bar: Option<ProgressBar>,
    status: CensusStatus,
    lines: LineTimer,
    /// The description of the manifest; `None` if existing rows are read again.
    manifest: Option<String>,
    /// The share of repositories that take a request to the API.
    api_share: f64,
    /// True if rows of unchanged repositories are copied from a previous census.
    copies_rows: bool,
}

impl CensusBar {
    /// Creates the bar.
    pub(super) fn new(bars: &ProgressBars, client: Client) -> Self {
        let status = CensusStatus { client, started: Instant::now(), progress: Arc::default() };
        let bar = (!bars.is_quiet).then(|| bars.add(status.style()));
        let (lines, manifest) = (LineTimer::default(), None);
        Self { bar, status, lines, manifest, api_share: 0.0, copies_rows: false }
    }

    /// Describes the manifest before the first repository is read.
    pub(super) fn with_manifest(self, manifest: &Manifest, copies_rows: bool) -> Self {
        let duplicates = match manifest.duplicates() as u64 {
            0 => String::new(),
            names => format!("; {} ignored", counted(names, "duplicate name")),
        };
        #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
        let api_share = manifest.gguf_repos() as f64 / manifest.repos() as f64;
        let parts = counted(manifest.parts() as u64, "part");
        let repos = match manifest.repos() as u64 {
            1 => "1 repository".to_owned(),
            repos => format!("{} repositories", thousands(repos)),
        };
        let manifest = format!("{repos} in {parts}{duplicates}");
        Self { manifest: Some(manifest), api_share, copies_rows, ..self }
    }

    /// Shows the progress of a census.
    pub(super) fn show(&self, census: Census) -> Census {
        let bar = self.clone();
        census.on_progress(move |progress| bar.update(progress))
    }

    fn update(&self, progress: CensusProgress) {
        let Some(bar) = &self.bar else { return };
        if let (Some(manifest), 0) = (&self.manifest, progress.done) {
            let estimate = self.estimate(progress.total as u64);
            print_line(bar, &format!("{manifest}; {estimate}"));
        }
        let before = std::mem::replace(&mut *lock(&self.status.progress), progress);
        if let Some(error) = progress.outage.filter(|_| before.outage.is_none()) {
            print_line(
                bar,
                &format!("the Hub does not answer ({error}): waiting for the end of the outage"),
            );
        } else if before.outage.is_some() && progress.outage.is_none() {
            print_line(bar, "the outage has ended");
        }
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        if bar.is_hidden() && self.lines.is_due() {
            let (done, total) = (thousands(progress.done as u64), thousands(progress.total as u64));
            let status = self.status.describe();
            print_line(bar, &format!("{done} of {total} repositories, {status}"));
        }
    }

    /// Removes the bar, and returns the result that ends the census.
    pub(super) fn finish_with<T>(&self, result: T) -> T {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        result
    }

    /// Describes the work ahead.
    fn estimate(&self, repos: u64) -> String {
        if repos == 0 {
            return "nothing left to read".to_owned();
        }
        let shown = thousands(repos);
        if self.copies_rows {
            return format!("{shown} to read, or to copy if unchanged");
        }
        #[expect(clippy::cast_precision_loss, reason = "a time for people")]
        let repos = repos as f64;
        let share = self.status.client.quota_share();
        let files = (repos / ANONYMOUS_QUOTA, ANONYMOUS_QUOTA, "");
        let api = (repos * self.api_share / ANONYMOUS_API_QUOTA, ANONYMOUS_API_QUOTA, "API ");
        let (windows, quota, kind) = if api.0 > files.0 { api } else { files };
        let (seconds, quota) = (windows / share * 300.0, quota * share);
        if seconds < 60.0 {
            return format!("{shown} to read");
        }
        let time = time(seconds);
        format!(
            "{shown} to read with at least one request each, which takes at least {time} at {quota:.0} {kind}requests per 5 minutes"
        )
    }
}

/// The time of the last line. Clones share it.
#[derive(Clone)]
struct LineTimer(Arc<Mutex<Instant>>);

impl Default for LineTimer {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl LineTimer {
    /// Returns whether it is time for the next line.
    fn is_due(&self) -> bool {
        let mut last = lock(&self.0);
        let is_due = last.elapsed() >= LINE_INTERVAL;
        if is_due {
            *last = Instant::now();
        }
        is_due
    }
}

/// The progress of a listing, whose length is unknown. Clones share it.
#[derive(Clone)]
pub(super) struct ListingBar {
    /// `None` if the command is quiet.
    bar: Option<ProgressBar>,
    lines: LineTimer,
}

impl ListingBar {
    /// Creates the bar.
    pub(super) fn new(bars: &ProgressBars) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = (!bars.is_quiet).then(|| bars.add(style).with_message("listing models"));
        Self { bar, lines: LineTimer::default() }
    }

    /// Shows the number of models listed so far.
    pub(super) fn update(&self, models: usize) {
        let Some(bar) = &self.bar else { return };
        let text = format!("{} listed", counted(models as u64, "model"));
        if bar.is_hidden() && self.lines.is_due() {
            print_line(bar, &text);
        }
        bar.set_message(text);
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Prints a line above the bar, or in its place without a terminal.
fn print_line(bar: &ProgressBar, text: &str) {
    if bar.is_hidden() {
        // A failure to write to stderr must not affect the census.
        let _ = writeln!(anstream::stderr(), "{text}");
    } else {
        bar.println(text);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Formats the rate, the requests and the remaining time of a census.
#[derive(Clone)]
struct CensusStatus {
    client: Client,
    started: Instant,
    progress: Arc<Mutex<CensusProgress>>,
}

impl CensusStatus {
    /// Returns the style of a bar with this status. There are no progress events during a wait, so the text is
    /// formatted when the bar is drawn.
    fn style(&self) -> ProgressStyle {
        let template = "{spinner} [{bar:24}] {pos}/{len} repositories, {status}";
        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        let status = self.clone();
        style.with_key("status", move |_: &ProgressState, text: &mut dyn fmt::Write| {
            // The bar must not fail because of its text.
            let _ = text.write_str(&status.describe());
        })
    }

    fn describe(&self) -> String {
        let progress = *lock(&self.progress);
        let seconds = self.started.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = progress.done as f64 / seconds.max(0.001);
        #[expect(clippy::cast_precision_loss, reason = "a time for people")]
        let left = progress.total.saturating_sub(progress.done) as f64 / rate.max(0.001);
        let (requests, left) = (thousands(self.client.stats().requests), time(left));
        let failed = match progress.failed as u64 {
            0 => String::new(),
            failed => format!(", {} failed", thousands(failed)),
        };
        let quota = self.client.remaining_quota();
        let quota =
            quota.map_or_else(String::new, |quota| describe_quota(quota.requests, quota.reset));
        let outage = if progress.outage.is_some() { ", paused by an outage" } else { "" };
        format!("{rate:.0}/s, {requests} requests{quota}, {left} left{failed}{outage}")
    }
}

/// Describes the remaining requests of a quota, or the wait if there are none.
fn describe_quota(requests: u64, reset: Duration) -> String {
    let reset = duration(reset);
    match requests {
        0 => format!(", paused by the Hub's rate limit for {reset}"),
        _ => format!(" ({} more within {reset})", thousands(requests)),
    }
}

/// Formats a duration for people.
fn time(seconds: f64) -> String {
    duration(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}
