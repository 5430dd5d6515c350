//! The progress line and log lines on stderr. The progress line is redrawn on a terminal and removed before anything
//! else is printed.

use std::env;
use std::fmt::Debug;
use std::io::{self, IsTerminal, Write};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hf_meta::{Client, Progress};
use hf_meta_count::results::text::{counted, duration, escape, thousands};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::repos::RepoArg;
use super::terminal::{
    CYAN, DIM, IS_AGENT, RED, TerminalSize, YELLOW, truncate, truncate_end, width,
};

/// The interval at which the line is redrawn. Shorter calls draw nothing.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// The columns that no text takes: the spinner takes two, and so does the `^C` that a terminal prints. At the edge it
/// would move the cursor to the next line, so the line would remain. The last column stays free for the cursor.
const RESERVED_COLUMNS: usize = 5;

const SPINNER: [char; 8] = ['⠁', '⠂', '⠄', '⡀', '⢀', '⠠', '⠐', '⠈'];

const CLEAR_LINE: &str = "\r\u{1b}[2K";

/// The minimum useful width of a repository name.
const MIN_NAME_WIDTH: usize = 16;

/// The time after which the line shows how long the repository takes.
const MIN_SHOWN_TIME: Duration = Duration::from_secs(3);

/// Formats progress in about this many columns. A longer text is truncated.
type ProgressText = Arc<dyn Fn(usize) -> String + Send + Sync>;

/// The progress line of the command. Clones share it.
#[derive(Clone)]
pub(crate) struct ProgressLine {
    state: Arc<Mutex<LineState>>,
    /// True if stderr is a terminal that can clear a line, and no other program prints what it reads from stdout to the
    /// same terminal.
    is_on_terminal: bool,
    /// True if stderr has only errors.
    pub(crate) is_quiet: bool,
}

#[derive(Default)]
struct LineState {
    /// The text to draw; `None` if nothing is being read.
    text: Option<ProgressText>,
    is_drawn: bool,
    /// The number of callers that print something else.
    hidden: usize,
}

impl LineState {
    /// Removes the line from the terminal.
    fn clear(&mut self) {
        if take(&mut self.is_drawn) {
            // If the terminal is not writable, it shows no progress.
            let _ = io::stderr().write_all(CLEAR_LINE.as_bytes());
        }
    }
}

impl ProgressLine {
    /// Creates the line. A quiet command never draws it.
    pub(crate) fn new(is_quiet: bool) -> Self {
        let is_dumb = env::var_os("TERM").is_some_and(|name| name == "dumb");
        let is_on_terminal = io::stderr().is_terminal() && !is_pipe(&io::stdout());
        let is_on_terminal = is_on_terminal && !is_quiet && !is_dumb && !*IS_AGENT;
        Self { state: Arc::default(), is_on_terminal, is_quiet }
    }

    /// Shows progress until the returned guard is dropped. Without a terminal, the text is printed at an interval, if
    /// there is one.
    pub(crate) fn show(
        &self,
        print_interval: Option<Duration>,
        text: impl Fn(usize) -> String + Send + Sync + 'static,
    ) -> ShownProgress {
        let text: ProgressText = Arc::new(text);
        lock(&self.state).text = Some(Arc::clone(&text));
        let print_interval = if self.is_quiet { None } else { print_interval };
        let interval = self.is_on_terminal.then_some(REDRAW_INTERVAL).or(print_interval);
        if let Some(interval) = interval {
            let line = self.clone();
            let redraw = move || {
                for spinner in SPINNER.into_iter().cycle() {
                    thread::sleep(interval);
                    if !line.draw(spinner, &text) {
                        return;
                    }
                }
            };
            // If the thread cannot be started, no progress is shown.
            let _ = thread::Builder::new().name("progress".to_owned()).spawn(redraw);
        }
        ShownProgress(self.clone())
    }

    /// Redraws the line if stderr is a terminal, and prints the text if it is not. Returns false once another text is shown.
    fn draw(&self, spinner: char, text: &ProgressText) -> bool {
        let columns = TerminalSize::of(&io::stderr()).map_or(usize::MAX, |size| size.width);
        let max_width = columns.saturating_sub(RESERVED_COLUMNS);
        // The text reads state of the client, which may log while it is locked, so the line is not locked yet.
        let mut shown = text(max_width);
        let mut state = lock(&self.state);
        if !state.text.as_ref().is_some_and(|current| Arc::ptr_eq(current, text)) {
            return false;
        }
        // If stderr is not writable, it shows no progress.
        match state.hidden {
            0 if self.is_on_terminal => {
                truncate_end(&mut shown, max_width);
                let _ = write!(io::stderr(), "{CLEAR_LINE}{spinner} {shown}");
                state.is_drawn = true;
            }
            0 => drop(writeln!(io::stderr(), "{shown}")),
            _ => {}
        }
        true
    }

    /// Hides the line while `print` writes to stdout or stderr.
    ///
    /// The reader of stdout may pause indefinitely. No lock is held during that time, or reads that log would block and
    /// time out.
    pub(crate) fn hidden_while<T>(&self, print: impl FnOnce() -> T) -> T {
        let mut state = lock(&self.state);
        state.hidden += 1;
        state.clear();
        drop(state);
        let printed = print();
        lock(&self.state).hidden -= 1;
        printed
    }

    /// Prints a text, unless the command is quiet.
    pub(crate) fn print(&self, text: &str) {
        if !self.is_quiet {
            self.hidden_while(|| print_to_stderr(text));
        }
    }
}

/// Prints a line to stderr. A failure must not affect the results or the exit status, so it is ignored.
pub(crate) fn print_to_stderr(line: &str) {
    let _ = anstream::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Returns whether an output is a pipe.
#[cfg(unix)]
fn is_pipe(output: &impl std::os::fd::AsFd) -> bool {
    use std::os::unix::fs::FileTypeExt;

    let file = output.as_fd().try_clone_to_owned().map(std::fs::File::from);
    file.and_then(|file| file.metadata()).is_ok_and(|data| data.file_type().is_fifo())
}

/// Returns whether an output may be a pipe.
#[cfg(not(unix))]
fn is_pipe(output: &impl IsTerminal) -> bool {
    !output.is_terminal()
}

/// The progress that the line shows. Removes it when dropped, so that nothing is printed after it.
pub(crate) struct ShownProgress(ProgressLine);

impl Drop for ShownProgress {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.text = None;
        state.clear();
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of repositories of a list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListCounts {
    pub(crate) done: usize,
    pub(crate) failed: usize,
    pub(crate) total: usize,
}

impl ListCounts {
    /// Describes the progress, such as `12 of 300 repositories, 2 failed, 5/s, 58 s left, 37 requests`.
    pub(crate) fn describe(self, started: Instant, client: &Client) -> String {
        let [done, failed, total] =
            [self.done, self.failed, self.total].map(|number| thousands(number as u64));
        let mut parts = vec![format!("{done} of {total} repositories")];
        if self.failed > 0 {
            parts.push(format!("{failed} failed"));
        }
        if let Some(left) = client.paused_for() {
            parts.push(format!("paused by the Hub's rate limit for {}", duration(left)));
        }
        if self.done > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let [done, left] = [self.done, self.total.saturating_sub(self.done)].map(|n| n as f64);
            let rate = done / started.elapsed().as_secs_f64().max(0.001);
            let left = Duration::try_from_secs_f64(left / rate).unwrap_or(Duration::MAX);
            parts.push(format!("{rate:.0}/s, {} left", duration(left)));
        }
        parts.push(counted(client.stats().requests, "request"));
        parts.join(", ")
    }
}

/// The progress of the repositories that a command reads.
pub(crate) struct ReadProgress {
    client: Client,
    started: Instant,
    counts: Mutex<ListCounts>,
    /// The name of the first repository.
    name: String,
    /// The number of shards that were read, if there is only one repository.
    pub(crate) shards: Mutex<Option<Progress>>,
}

impl ReadProgress {
    pub(crate) fn new(client: &Client, repos: &[RepoArg]) -> Self {
        let counts = Mutex::new(ListCounts { total: repos.len(), ..ListCounts::default() });
        let name = repos.first().map_or_else(String::new, |repo| escape(&repo.display));
        let (client, started) = (client.clone(), Instant::now());
        Self { client, started, counts, name, shards: Mutex::default() }
    }

    /// Counts a repository that has been read.
    pub(crate) fn finish(&self, has_failed: bool) {
        let mut counts = lock(&self.counts);
        counts.done += 1;
        counts.failed += usize::from(has_failed);
    }

    /// Formats the counts of a list, or the name of a single repository with the wait, the shards or the time.
    pub(crate) fn describe(&self, max_width: usize) -> String {
        let counts = *lock(&self.counts);
        if counts.total > 1 {
            return counts.describe(self.started, &self.client);
        }
        let shards = lock(&self.shards).filter(|progress| progress.total > 1);
        let shards = shards.map(|Progress { done, total, .. }| {
            format!("{}/{}", thousands(done as u64), counted(total as u64, "shard"))
        });
        let wait = self.client.paused_for();
        let wait = wait.map(|left| format!("waiting for the rate limit, {}", duration(left)));
        let time = Duration::from_secs(self.started.elapsed().as_secs());
        let time = (time >= MIN_SHOWN_TIME).then(|| duration(time));
        let text = wait.or(shards).or(time).unwrap_or_default();
        name_and_text(&self.name, &text, max_width)
    }

    /// Describes an interrupted list, and what is kept of the repositories that were read.
    pub(crate) fn interrupted(&self, kept: &str) -> Option<String> {
        let ListCounts { done, total, .. } = *lock(&self.counts);
        let [read, repos] = [done, total].map(|number| thousands(number as u64));
        (total > 1).then(|| format!("interrupted after {read} of {repos} repositories; {kept}"))
    }
}

/// Formats a name and a text. The name is truncated down to a useful width.
fn name_and_text(name: &str, text: &str, max_width: usize) -> String {
    let mut name = name.to_owned();
    truncate(&mut name, max_width.saturating_sub(width(text) + 2).max(MIN_NAME_WIDTH));
    format!("{name}  {text}").trim_end().to_owned()
}

/// Initializes logging: warnings by default, only errors with `-q`, also retries and waits with `-v`, and every
/// request with `-vv`.
///
/// Only events of `hf_meta` are printed, because the logs of the HTTP libraries may contain tokens.
/// Of the service, its start and its end are printed unless `-q` is set.
pub(crate) fn init_log(verbose: u8, line: &ProgressLine, format: LogFormat) {
    let level = match verbose {
        0 if line.is_quiet => LevelFilter::ERROR,
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let lifecycle = if line.is_quiet { level } else { level.max(LevelFilter::INFO) };
    let ours = Targets::new().with_target("hf_meta", level);
    let ours = ours.with_target("hf_meta_cli::serve", lifecycle);
    let log = Log { line: line.clone(), format };
    // Fails only if a subscriber is already set.
    let _ = tracing_subscriber::registry().with(ours).with(log).try_init();
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines such as `warning: …`.
    #[default]
    Text,
    /// Lines that begin with the time.
    Time,
    /// JSON objects with the time.
    Json,
}

/// Prints events as lines that look like errors: `warning: …`. Lines are self-contained, so spans are ignored.
struct Log {
    line: ProgressLine,
    format: LogFormat,
}

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
        let line = match self.format {
            LogFormat::Text => format!("{style}{label}{style:#}: {}", line.text()),
            LogFormat::Time => format!("{} {style}{label}{style:#}: {}", timestamp(), line.text()),
            LogFormat::Json => line.json(label),
        };
        self.line.hidden_while(|| print_to_stderr(&line));
    }
}

/// Returns the current time in UTC, such as `2026-01-31T12:00:00.000000Z`.
fn timestamp() -> String {
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// The message of an event and its other fields.
#[derive(Default)]
struct LogLine {
    message: String,
    fields: Vec<(&'static str, String)>,
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
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            name => self.fields.push((name, value.to_owned())),
        }
    }

    /// Formats the event for people.
    fn text(&self) -> String {
        let fields = self.fields.iter().map(|(name, value)| format!("{name}: {value}"));
        match fields.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => self.message.clone(),
            fields => format!("{} ({fields})", self.message),
        }
    }

    /// Formats the event for programs.
    fn json(self, level: &str) -> String {
        let known =
            [("timestamp", timestamp()), ("level", level.into()), ("message", self.message)];
        let fields = known.into_iter().chain(self.fields);
        let object: Map<String, Value> =
            fields.map(|(name, value)| (name.to_owned(), Value::String(value))).collect();
        Value::Object(object).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_leaves_room_for_the_rest() {
        let long = "organization/a-name-that-is-too-long-for-a-terminal";
        for (max_width, expected) in [
            (80, "organization/a-name-that-is-too-long-for-a-terminal  36/72 shards"),
            (40, "organizat…g-for-a-terminal  36/72 shards"),
            (20, "organ…a-terminal  36/72 shards"),
        ] {
            assert_eq!(name_and_text(long, "36/72 shards", max_width), expected);
        }
    }
}
