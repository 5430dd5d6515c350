//! A bar over the shards, on a terminal only.

use std::time::Duration;

use hf_meta::Progress;
use hf_meta::report::text::escape;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// The bars of all repos that are being read. Nothing is drawn where stderr is no terminal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bars(MultiProgress);

impl Bars {
    /// A bar for a repo. It is gone when it is dropped.
    pub(crate) fn add(&self, repo: &str) -> Bar {
        let spinner = ProgressStyle::with_template("{spinner} {msg}");
        let bar = ProgressBar::no_length().with_message(escape(repo));
        let bar = self
            .0
            .add(bar.with_style(spinner.unwrap_or_else(|_| ProgressStyle::default_spinner())));
        bar.enable_steady_tick(Duration::from_millis(100));
        Bar(bar)
    }

    /// Prints without a bar in between.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

/// The bar of one repo.
#[derive(Clone, Debug)]
pub(crate) struct Bar(ProgressBar);

impl Bar {
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

    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
