//! Log lines on stderr, printed between the progress bars.

use std::io::{self, Write};

use tracing::Metadata;
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::progress::ProgressBars;

/// Starts logging: warnings, with `-v` also retries and waits, with `-vv` every request.
///
/// Only events of `hf_meta` are printed. The log of the HTTP libraries may contain tokens.
pub(crate) fn init(verbose: u8, bars: &ProgressBars) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let lines = fmt::layer().with_writer(LogWriter(bars.clone())).without_time().with_target(false);
    // Each line is complete; its spans would repeat a part of it.
    let lines = lines.with_filter(filter_fn(is_event));
    let ours = Targets::new().with_target("hf_meta", level);
    // An error means that a subscriber is already set.
    let _ = tracing_subscriber::registry().with(ours).with(lines).try_init();
}

fn is_event(metadata: &Metadata<'_>) -> bool {
    metadata.is_event()
}

/// A factory of writers, one per line.
struct LogWriter(ProgressBars);

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> LogLine<'a> {
        LogLine { bars: &self.0, text: Vec::new() }
    }
}

/// One log line, printed as a whole when it is complete.
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
