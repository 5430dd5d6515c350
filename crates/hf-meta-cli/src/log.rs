//! Log lines on stderr, printed between the progress bars.

use std::fmt::Debug;
use std::io::{self, Write};

use tracing::field::Field;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer, debug_fn};
use tracing_subscriber::fmt::{self, FmtContext, MakeWriter};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::progress::ProgressBars;
use super::style::{CYAN, DIM, RED, YELLOW};

/// Initializes logging: warnings by default, only errors with `-q`, also retries and waits with `-v`, and every
/// request with `-vv`.
///
/// Only events of `hf_meta` are printed, because the logs of the HTTP libraries may contain tokens.
pub(crate) fn init(verbose: u8, is_quiet: bool, bars: &ProgressBars) {
    let level = match verbose {
        0 if is_quiet => LevelFilter::ERROR,
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let lines = fmt::layer().with_writer(LogWriter(bars.clone())).event_format(LogFormat);
    let lines = lines.fmt_fields(debug_fn(write_field).delimited(", "));
    // Lines are self-contained. Spans would only repeat parts of them.
    let lines = lines.with_filter(filter_fn(is_event));
    let ours = Targets::new().with_target("hf_meta", level);
    // Fails only if a subscriber is already set.
    let _ = tracing_subscriber::registry().with(ours).with(lines).try_init();
}

fn is_event(metadata: &Metadata<'_>) -> bool {
    metadata.is_event()
}

/// The format of a log line, the same as for errors: `warning: …`.
struct LogFormat;

impl<S, N> FormatEvent<S, N> for LogFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let (style, label) = match *event.metadata().level() {
            Level::ERROR => (RED, "error"),
            Level::WARN => (YELLOW, "warning"),
            Level::INFO => (CYAN, "info"),
            _ => (DIM, "debug"),
        };
        write!(writer, "{style}{label}{style:#}: ")?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// Writes one field. Durations have one decimal.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    match field.name() {
        "message" => write!(writer, "{value:?}"),
        name @ ("wait" | "elapsed") => write!(writer, "{name}={value:.1?}"),
        name => write!(writer, "{name}={value:?}"),
    }
}

/// Creates one writer per line.
struct LogWriter(ProgressBars);

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> LogLine<'a> {
        LogLine { bars: &self.0, text: Vec::new() }
    }
}

/// A log line, printed at once when it is complete.
struct LogLine<'a> {
    bars: &'a ProgressBars,
    text: Vec<u8>,
}

impl Write for LogLine<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.text.write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.text);
        self.bars.suspend(|| anstream::stderr().write_all(&text))
    }
}

impl Drop for LogLine<'_> {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}
