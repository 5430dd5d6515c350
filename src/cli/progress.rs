//! Progress bars on stderr, drawn only on a terminal.

use std::time::Duration;

use hf_meta::Progress;
use hf_meta::report::text::escape;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The progress bars of all repositories that are being read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgressBars(MultiProgress);

impl ProgressBars {
    /// Adds a bar for a repository. It disappears when it is dropped.
    pub(crate) fn add(&self, repo: &str) -> RepoBar {
        let spinner = ProgressStyle::with_template("{spinner} {msg}");
        let bar = ProgressBar::no_length().with_message(escape(repo));
        let bar = self
            .0
            .add(bar.with_style(spinner.unwrap_or_else(|_| ProgressStyle::default_spinner())));
        bar.enable_steady_tick(Duration::from_millis(100));
        RepoBar(bar)
    }

    /// Hides the bars while `print` writes to stdout.
    ///
    /// The reader of stdout may pause for any time. No lock is held meanwhile: reads that update their bars
    /// would wait for it, and time out.
    pub(crate) fn hidden_while<T>(&self, print: impl FnOnce() -> T) -> T {
        self.remove();
        self.0.set_draw_target(ProgressDrawTarget::hidden());
        let printed = print();
        self.0.set_draw_target(ProgressDrawTarget::stderr());
        printed
    }

    /// Removes the bars while a line is written to stderr.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Removes the bars from the terminal.
    pub(crate) fn remove(&self) {
        // A terminal that cannot be written shows no bars.
        let _ = self.0.clear();
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
