//! The progress of a census on stderr: a bar on a terminal, or else an occasional line.

use std::fmt;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hf_meta::Client;
use hf_meta::report::text::{counted, thousands};
use hf_meta_census::{CensusProgress, Manifest};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::stderr::ProgressBars;

/// The interval between lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(30);

/// The number of file requests that the Hub allows anonymous readers per 5 minutes
/// (<https://huggingface.co/docs/hub/rate-limits>).
const ANONYMOUS_QUOTA: f64 = 3_000.0;

/// The progress of a census. Clones share it.
#[derive(Clone)]
pub(super) struct CensusBar {
    /// `None` if the command is quiet.
    bar: Option<ProgressBar>,
    status: CensusStatus,
    last_line: Arc<Mutex<Instant>>,
    /// The description of the manifest.
    manifest: String,
    /// True if rows of unchanged repositories are copied from a previous census.
    copies_rows: bool,
}

impl CensusBar {
    /// Creates the bar.
    pub(super) fn new(
        bars: &ProgressBars,
        manifest: &Manifest,
        copies_rows: bool,
        client: Client,
    ) -> Self {
        let now = Instant::now();
        let status = CensusStatus { client, started: now, progress: Arc::default() };
        let bar = (!bars.is_quiet).then(|| bars.add(status.style()));
        let duplicates = match manifest.duplicates() as u64 {
            0 => String::new(),
            names => format!("; {} ignored", counted(names, "duplicate name")),
        };
        let parts = counted(manifest.parts() as u64, "part");
        let repos = match manifest.repos() as u64 {
            1 => "1 repository".to_owned(),
            repos => format!("{} repositories", thousands(repos)),
        };
        let manifest = format!("{repos} in {parts}{duplicates}");
        Self { bar, status, last_line: Arc::new(Mutex::new(now)), manifest, copies_rows }
    }

    /// Shows the progress.
    pub(super) fn update(&self, progress: CensusProgress) {
        let Some(bar) = &self.bar else { return };
        if progress.done == 0 {
            let estimate = self.estimate(progress.total as u64);
            print_line(bar, &format!("{}; {estimate}", self.manifest));
        }
        *lock(&self.status.progress) = progress;
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        let mut last_line = lock(&self.last_line);
        if bar.is_hidden() && last_line.elapsed() >= LINE_INTERVAL {
            *last_line = Instant::now();
            let (done, total) = (thousands(progress.done as u64), thousands(progress.total as u64));
            let status = self.status.describe();
            print_line(bar, &format!("{done} of {total} repositories, {status}"));
        }
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
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
        let seconds = repos as f64 / ANONYMOUS_QUOTA * 300.0;
        if seconds < 60.0 {
            return format!("{shown} to read");
        }
        let time = duration(seconds);
        format!(
            "{shown} to read with at least one request each, which takes at least {time} at 3,000 requests per 5 minutes"
        )
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
        let (requests, left) = (thousands(self.client.stats().requests), duration(left));
        let failed = match progress.failed as u64 {
            0 => String::new(),
            failed => format!(", {} failed", thousands(failed)),
        };
        let quota = self.client.remaining_quota();
        let quota =
            quota.map_or_else(String::new, |quota| describe_quota(quota.requests, quota.reset));
        format!("{rate:.0}/s, {requests} requests{quota}, {left} left{failed}")
    }
}

/// Describes the remaining requests of a quota, or the wait if there are none.
fn describe_quota(requests: u64, reset: Duration) -> String {
    let reset = duration(reset.as_secs_f64());
    match requests {
        0 => format!(", paused by the Hub's rate limit for {reset}"),
        _ => format!(" ({} more within {reset})", thousands(requests)),
    }
}

/// Formats a duration for people.
fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7_200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3_600.0),
    }
}
