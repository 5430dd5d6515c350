//! Progress bars and log lines on stderr. Bars are drawn only on a terminal, and log lines are printed between them.

use std::fmt::{Debug, Write as _};
use std::io::{self, IsTerminal, Write};
use std::mem::replace;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hf_meta::Progress;
use hf_meta::report::text::escape;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::terminal::{CYAN, DIM, RED, TerminalSize, YELLOW};

/// The progress bars of all repositories that are being read.
#[derive(Clone, Debug)]
pub(crate) struct ProgressBars {
    bars: MultiProgress,
    /// True if stderr has only errors.
    pub(crate) is_quiet: bool,
}

/// Returns a draw target for the bars: the terminal on stderr.
fn draw_target(is_quiet: bool) -> ProgressDrawTarget {
    if !is_quiet && io::stderr().is_terminal() {
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        anstream::stderr().write_all(&text)
    }
}

impl ProgressBars {
    /// Creates the bars. A quiet command never draws them.
    pub(crate) fn new(is_quiet: bool) -> Self {
        Self { bars: MultiProgress::with_draw_target(draw_target(is_quiet)), is_quiet }
    }

    /// Adds a bar for a repository, which is removed when it is dropped.
    pub(crate) fn add_repo(&self, repo: &str) -> RepoBar {
        let spinner = ProgressStyle::with_template("{spinner} {msg}");
        let bar = self.add(spinner.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.set_message(escape(repo));
        RepoBar(bar)
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
        // If the terminal is not writable, there are no bars to clear.
        let _ = self.bars.clear();
        self.bars.set_draw_target(ProgressDrawTarget::hidden());
        let printed = print();
        self.bars.set_draw_target(draw_target(self.is_quiet));
        printed
    }
}

/// The progress bar of one repository.
#[derive(Clone, Debug)]
pub(crate) struct RepoBar(ProgressBar);

impl RepoBar {
    /// Shows the number of shards that were read.
    pub(crate) fn update(&self, progress: Progress) {
        if self.0.length().is_none() {
            let template = "{spinner} {msg} [{bar:32}] {pos}/{len} shards";
            let style =
                ProgressStyle::with_template(template).map(|style| style.progress_chars("=> "));
            self.0.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        }
        self.0.set_length(progress.total as u64);
        self.0.set_position(progress.done as u64);
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
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
        let mut line = LogLine(String::new());
        event.record(&mut line);
        let line = format!("{style}{label}{style:#}: {}\n", line.0);
        // A failure to write to stderr must not affect the results.
        let _ = self.0.suspend(|| anstream::stderr().write_all(line.as_bytes()));
    }
}

/// The fields of an event, separated by commas.
struct LogLine(String);

impl Visit for LogLine {
    /// Adds one field. Durations have one decimal.
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let separator = if self.0.is_empty() { "" } else { ", " };
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{separator}{value:?}"),
            name @ ("wait" | "elapsed") => write!(self.0, "{separator}{name}={value:.1?}"),
            name => write!(self.0, "{separator}{name}={value:?}"),
        };
    }
}
