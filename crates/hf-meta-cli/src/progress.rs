//! Progress bars on stderr, drawn only on a terminal.

use std::io::{self, IsTerminal, Write};
use std::mem::replace;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hf_meta::Progress;
use hf_meta::report::text::escape;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use super::terminal::TerminalSize;

/// The progress bars of all repositories that are being read.
#[derive(Clone, Debug)]
pub(crate) struct ProgressBars {
    bars: MultiProgress,
    is_quiet: bool,
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
    pub(crate) fn add(&self, repo: &str) -> RepoBar {
        let spinner = ProgressStyle::with_template("{spinner} {msg}");
        let bar = ProgressBar::no_length().with_message(escape(repo));
        let bar = self
            .bars
            .add(bar.with_style(spinner.unwrap_or_else(|_| ProgressStyle::default_spinner())));
        bar.enable_steady_tick(Duration::from_millis(100));
        RepoBar(bar)
    }

    /// Adds the bar of a census; `None` for a quiet command.
    #[cfg(feature = "census")]
    pub(crate) fn census_bar(&self) -> Option<ProgressBar> {
        (!self.is_quiet).then(|| self.bars.add(ProgressBar::no_length()))
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

    /// Hides the bars while a line is written to stderr.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bars.suspend(print)
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
