//! Progress bars and log lines on stderr. Bars are drawn only on a terminal, and log lines are printed between them.

use std::env;
use std::fmt::{self, Debug, Write as _};
use std::io::{self, IsTerminal, Write};
use std::mem::replace;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hf_meta::report::text::{counted, duration, escape, thousands};
use hf_meta::{CallMeter, Progress};
use indicatif::{
    MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, TermLike,
};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::terminal::{CYAN, DIM, RED, TerminalSize, YELLOW, truncate, width};

/// The maximum length of a bar, in columns.
const MAX_BAR_LENGTH: usize = 32;

/// The minimum useful length of a bar, in columns.
const MIN_BAR_LENGTH: usize = 8;

/// The minimum useful width of a repository name.
const MIN_NAME_WIDTH: usize = 16;

/// The time after which a bar shows how long the repository takes.
const MIN_SHOWN_TIME: Duration = Duration::from_secs(3);

/// The progress bars of all repositories that are being read.
#[derive(Clone, Debug)]
pub(crate) struct ProgressBars {
    bars: MultiProgress,
    /// The repositories that are being read.
    repos: Arc<Mutex<Vec<RepoBar>>>,
    /// True if stderr has only errors.
    pub(crate) is_quiet: bool,
}

/// Returns a draw target for the bars: the terminal on stderr, unless it cannot move its cursor.
fn draw_target(is_quiet: bool) -> ProgressDrawTarget {
    let is_dumb = env::var_os("TERM").is_some_and(|name| name == "dumb");
    if !is_quiet && !is_dumb && io::stderr().is_terminal() {
        ProgressDrawTarget::term_like_with_hz(Box::new(BarTerminal::default()), 15)
    } else {
        ProgressDrawTarget::hidden()
    }
}

/// The terminal on stderr. Leaves the cursor after the text of the last bar.
///
/// `indicatif` pads each line with spaces up to the right edge. On Ctrl-C a terminal prints `^C`, which at the edge
/// would move the cursor to the next line, so one bar would remain when the bars are removed.
#[derive(Debug, Default)]
struct BarTerminal(Mutex<BarText>);

/// The text to write with the next flush.
#[derive(Debug, Default)]
struct BarText {
    text: Vec<u8>,
    /// True if a bar is complete, so that the next one starts a new line.
    is_line_complete: bool,
}

impl BarTerminal {
    fn text(&self) -> MutexGuard<'_, BarText> {
        lock(&self.0)
    }

    /// Moves the cursor by a number of lines or columns. Terminals interpret 0 as 1.
    fn move_cursor(&self, by: usize, direction: char) -> io::Result<()> {
        if by == 0 { Ok(()) } else { write!(self.text().text, "\u{1b}[{by}{direction}") }
    }
}

impl TermLike for BarTerminal {
    fn width(&self) -> u16 {
        let width = TerminalSize::from_stderr().map_or(80, |size| size.width);
        u16::try_from(width).unwrap_or(u16::MAX)
    }

    fn height(&self) -> u16 {
        let height = TerminalSize::from_stderr().map_or(20, |size| size.height);
        u16::try_from(height).unwrap_or(u16::MAX)
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        self.move_cursor(lines, 'A')
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        self.move_cursor(lines, 'B')
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        self.move_cursor(columns, 'C')
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        self.move_cursor(columns, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        writeln!(self.text().text, "{text}")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        let mut bar = self.text();
        let is_filler = text.bytes().all(|byte| byte == b' ');
        if replace(&mut bar.is_line_complete, is_filler) && !is_filler {
            bar.text.push(b'\n');
        }
        bar.text.extend(text.bytes().filter(|_| !is_filler));
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.text().text.write_all(b"\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        let BarText { text, .. } = std::mem::take(&mut *self.text());
        // Without colors, `anstream` would remove the cursor movements, too. Bars have no colors.
        io::stderr().write_all(&text)
    }
}

impl ProgressBars {
    /// Creates the bars. A quiet command never draws them.
    pub(crate) fn new(is_quiet: bool) -> Self {
        let bars = MultiProgress::with_draw_target(draw_target(is_quiet));
        Self { bars, repos: Arc::default(), is_quiet }
    }

    /// Adds a bar for a repository, which is removed when the repository has been read.
    pub(crate) fn add_repo(&self, repo: &str, meter: &CallMeter) -> RepoBar {
        let status = Arc::new(RepoStatus {
            name: escape(repo),
            meter: meter.clone(),
            started: Instant::now(),
            progress: Mutex::default(),
        });
        let shown = Arc::clone(&status);
        let bar = self.add(bar_style("{spinner} {line}").with_key(
            "line",
            move |_: &ProgressState, text: &mut dyn fmt::Write| {
                // The spinner takes two columns, and so does `^C`. The last one stays free for the cursor.
                let terminal = TerminalSize::from_stderr().map_or(80, |size| size.width);
                // The bar must not fail because of its text.
                let _ = text.write_str(&shown.line(terminal.saturating_sub(5)));
            },
        ));
        let bar = RepoBar { bar, status };
        lock(&self.repos).push(bar.clone());
        bar
    }

    /// Removes the bar of a repository.
    pub(crate) fn remove_repo(&self, bar: &RepoBar) {
        bar.bar.finish_and_clear();
        lock(&self.repos).retain(|other| !Arc::ptr_eq(&other.status, &bar.status));
    }

    /// Adds a bar that counts the finished repositories, if there are several.
    pub(crate) fn add_list(&self, repos: usize) -> ListBar {
        let template = "{spinner} {human_pos}/{human_len} repositories{msg}";
        let bar = (repos > 1).then(|| self.add(bar_style(template)));
        if let Some(bar) = &bar {
            bar.set_length(repos as u64);
        }
        ListBar { bar, repos, done: 0, failed: 0 }
    }

    /// Describes a repository that waits for a retry. Returns `None` if progress bars show the wait, or if there is none.
    /// Waits for rate limits are logged instead.
    pub(crate) fn hidden_wait(&self) -> Option<String> {
        if self.is_quiet || !self.bars.is_hidden() {
            return None;
        }
        lock(&self.repos).iter().find_map(|RepoBar { status, .. }| {
            let is_retry = status.meter.current_wait()?.rate_limit.is_none();
            Some(format!("{}: {}", status.name, status.wait()?)).filter(|_| is_retry)
        })
    }

    /// Adds a bar, which moves even if there is no progress.
    pub(crate) fn add(&self, style: ProgressStyle) -> ProgressBar {
        let bar = self.bars.add(ProgressBar::no_length().with_style(style));
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }

    /// Hides the bars while `print` writes to stdout.
    ///
    /// The reader of stdout may pause indefinitely. No lock is held during that time, or reads that update their bars
    /// would block and time out.
    pub(crate) fn hidden_while<T>(&self, print: impl FnOnce() -> T) -> T {
        // If the terminal is not writable, it shows no progress bars.
        let _ = self.bars.clear();
        self.bars.set_draw_target(ProgressDrawTarget::hidden());
        let printed = print();
        self.bars.set_draw_target(draw_target(self.is_quiet));
        printed
    }
}

fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The progress bar of one repository.
#[derive(Clone, Debug)]
pub(crate) struct RepoBar {
    bar: ProgressBar,
    status: Arc<RepoStatus>,
}

impl RepoBar {
    /// Sets the number of shards that were read.
    pub(crate) fn update(&self, progress: Progress) {
        *lock(&self.status.progress) = Some(progress);
    }
}

/// The progress of one repository.
#[derive(Debug)]
struct RepoStatus {
    name: String,
    meter: CallMeter,
    started: Instant,
    progress: Mutex<Option<Progress>>,
}

impl RepoStatus {
    /// Formats the progress in at most `max_width` columns: the name, then the wait or the shards.
    fn line(&self, max_width: usize) -> String {
        let progress = *lock(&self.progress);
        let (text, fraction) = match (self.wait(), progress) {
            (Some(wait), _) => (wait, None),
            (None, Some(Progress { done, total, .. })) => {
                let shards = counted(total as u64, "shard");
                (format!("{}/{shards}", thousands(done as u64)), Some((done, total)))
            }
            (None, None) => (self.time().unwrap_or_default(), None),
        };
        bar_line(&self.name, &text, fraction, max_width)
    }

    /// Describes the wait for a rate limit or a retry.
    fn wait(&self) -> Option<String> {
        let wait = self.meter.current_wait()?;
        let retry = match wait.retry {
            0 => String::new(),
            retry => format!("retry {} of {}", retry, wait.max_retries),
        };
        let Some(left) = wait.rate_limit else {
            let time = self.time().map_or_else(String::new, |time| format!(", {time}"));
            return Some(format!("a request failed, {retry}{time}"));
        };
        let retry = if retry.is_empty() { retry } else { format!(" ({retry})") };
        Some(format!("waiting for the rate limit, {}{retry}", duration(left)))
    }

    /// Formats the time since the start, if it is long.
    fn time(&self) -> Option<String> {
        let time = Duration::from_secs(self.started.elapsed().as_secs());
        (time >= MIN_SHOWN_TIME).then(|| duration(time))
    }
}

/// Formats a name, a bar and a text in at most `max_width` columns. The bar is shortened before the name.
fn bar_line(name: &str, text: &str, fraction: Option<(usize, usize)>, max_width: usize) -> String {
    let mut name = name.to_owned();
    let free = max_width.saturating_sub(width(&name) + width(text));
    // Two brackets and two spaces.
    let length = free.saturating_sub(4).min(MAX_BAR_LENGTH);
    let mut rest = match fraction {
        Some((done, total)) if length >= MIN_BAR_LENGTH => {
            let filled = length * done.min(total) / total.max(1);
            let tip = if filled < length { ">" } else { "" };
            let bar = format!("{}{tip}", "=".repeat(filled));
            format!(" [{bar:length$}] {text}")
        }
        _ if text.is_empty() => String::new(),
        _ => format!("  {text}"),
    };
    let left = max_width.saturating_sub(width(&rest));
    truncate(&mut name, left.max(MIN_NAME_WIDTH.min(max_width)));
    let left = max_width.saturating_sub(width(&name));
    truncate(&mut rest, left);
    name + &rest
}

/// The progress of a list of repositories.
#[derive(Debug)]
pub(crate) struct ListBar {
    /// `None` for a single repository.
    bar: Option<ProgressBar>,
    repos: usize,
    done: usize,
    failed: usize,
}

impl ListBar {
    /// Counts a repository.
    pub(crate) fn update(&mut self, has_failed: bool) {
        self.done += 1;
        self.failed += usize::from(has_failed);
        let Some(bar) = &self.bar else { return };
        bar.set_position(self.done as u64);
        if self.failed > 0 {
            bar.set_message(format!(", {} failed", thousands(self.failed as u64)));
        }
    }

    /// Removes the bar. Returns the number of failures as a sentence if several repositories were read, and some
    /// failed.
    pub(crate) fn finish(self) -> Option<String> {
        self.bar?.finish_and_clear();
        let [failed, repos] = [self.failed, self.repos].map(|number| thousands(number as u64));
        (self.failed > 0).then(|| format!("{failed} of {repos} failed"))
    }
}

/// Initializes logging: warnings by default, only errors with `-q`, also retries and waits with `-v`, and every
/// request with `-vv`.
///
/// Only events of `hf_meta` are printed, because the logs of the HTTP libraries may contain tokens.
pub(crate) fn init_log(verbose: u8, is_quiet: bool, bars: &ProgressBars) {
    let level = match verbose {
        0 if is_quiet => LevelFilter::ERROR,
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let ours = Targets::new().with_target("hf_meta", level);
    // Fails only if a subscriber is already set.
    let _ = tracing_subscriber::registry().with(ours).with(Log(bars.bars.clone())).try_init();
}

/// Prints events as lines that look like errors: `warning: …`. Lines are self-contained, so spans are ignored.
struct Log(MultiProgress);

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let (style, label) = match *event.metadata().level() {
            Level::ERROR => (RED, "error"),
            Level::WARN => (YELLOW, "warning"),
            Level::INFO => (CYAN, "info"),
            _ => (DIM, "debug"),
        };
        let mut line = LogLine::default();
        event.record(&mut line);
        let LogLine { message, fields } = line;
        let fields = if fields.is_empty() { fields } else { format!(" ({fields})") };
        let line = format!("{style}{label}{style:#}: {message}{fields}\n");
        // A failure to write to stderr must not affect the results.
        let _ = self.0.suspend(|| anstream::stderr().write_all(line.as_bytes()));
    }
}

/// The message of an event and its other fields, separated by commas.
#[derive(Default)]
struct LogLine {
    message: String,
    fields: String,
}

impl Visit for LogLine {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, &escape(value));
    }

    /// Adds one field. Durations have one decimal.
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "wait" | "elapsed" => self.add(field, &format!("{value:.1?}")),
            _ => self.add(field, &format!("{value:?}")),
        }
    }
}

impl LogLine {
    fn add(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
            return;
        }
        let separator = if self.fields.is_empty() { "" } else { ", " };
        // Writing to a string does not fail.
        let _ = write!(self.fields, "{separator}{}: {value}", field.name());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fits_the_terminal() {
        let shards = Some((36, 72));
        for (max_width, expected) in [
            (77, "bigscience/bloom [================>               ] 36/72 shards"),
            (50, "bigscience/bloom [=========>        ] 36/72 shards"),
            (40, "bigscience/bloom [====>   ] 36/72 shards"),
            (39, "bigscience/bloom  36/72 shards"),
            (25, "bigscience/bloom  36…ards"),
            (10, "bigsc…loom"),
        ] {
            assert_eq!(bar_line("bigscience/bloom", "36/72 shards", shards, max_width), expected);
        }
        let long = "organization/a-name-that-is-too-long-for-a-terminal";
        for max_width in 0..100 {
            let line = bar_line(long, "waiting for the rate limit, 8 s", None, max_width);
            assert!(width(&line) <= max_width, "{max_width}: {line}");
        }
    }
}
