//! What the library says of its work, on stderr and between the progress bars.

use std::io::{self, Write};

use tracing::Metadata;
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::progress::Bars;

/// Shows warnings; with `-v` also what is tried again, with `-vv` every request. Only our own words:
/// what libraries below log may hold what must not be shown.
pub(crate) fn init(verbose: u8, bars: &Bars) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        _ => LevelFilter::DEBUG,
    };
    let lines = fmt::layer().with_writer(Lines(bars.clone())).without_time().with_target(false);
    // A line says all by itself; its spans would say the half of it once more.
    let lines = lines.with_filter(filter_fn(is_event));
    let ours = Targets::new().with_target("hf_meta", level);
    // A second call finds the first one's work done.
    let _ = tracing_subscriber::registry().with(ours).with(lines).try_init();
}

fn is_event(metadata: &Metadata<'_>) -> bool {
    metadata.is_event()
}

/// Makes a writer for each line.
struct Lines(Bars);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { bars: &self.0, text: Vec::new() }
    }
}

/// One line, printed as a whole when it is complete.
struct Line<'a> {
    bars: &'a Bars,
    text: Vec<u8>,
}

impl Write for Line<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.text.write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.text);
        self.bars.suspend(|| anstream::stderr().write_all(&text))
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}
