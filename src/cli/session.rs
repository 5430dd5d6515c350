//! A client, and bars for what takes time: what every command works with.

use std::future::Future;
use std::io;

use hf_meta::{Client, Error, Model};

use super::progress::Bars;
use super::repo_arg::RepoArg;

/// Which state and which part of a repository is meant.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Place {
    /// Branch, tag, ref or commit to read [default: main]
    #[arg(long, short, value_name = "REVISION")]
    pub(crate) revision: Option<String>,

    /// File to read, or folder to look in, inside each repository
    #[arg(long, short, value_name = "PATH")]
    pub(crate) path: Option<String>,

    /// Read each header in one request instead of two, at the price of some bytes more
    #[arg(long)]
    pub(crate) prefetch: bool,
}

/// What a command works with.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) bars: Bars,
}

impl Session {
    /// Makes a call for what was asked for, with a bar. The inner result is that of the call.
    ///
    /// It runs in a task of its own: a reader of our output that pauses must not stop the reading of
    /// answers, whose deadlines pass meanwhile.
    pub(crate) fn read<T, F, Call>(
        &self,
        asked: &RepoArg,
        place: &Place,
        call: F,
    ) -> impl Future<Output = io::Result<Result<T, Error>>> + use<T, F, Call>
    where
        T: Send + 'static,
        F: FnOnce(Model) -> Call + Send + 'static,
        Call: Future<Output = Result<T, Error>> + Send,
    {
        let (bar, model) = (self.bars.add(&asked.shown), self.model(asked, place));
        async move {
            let read = async move {
                let updates = bar.clone();
                let update = move |progress| updates.update(progress);
                let result = async { call(model?.on_progress(update)).await }.await;
                bar.finish();
                result
            };
            tokio::spawn(read).await.map_err(io::Error::other)
        }
    }

    /// Prints without a bar in between.
    pub(crate) fn print<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bars.suspend(print)
    }

    fn model(&self, asked: &RepoArg, place: &Place) -> Result<Model, Error> {
        let mut model = self.client.source(asked.source.clone()?).prefetch(place.prefetch);
        if let Some(revision) = &place.revision {
            model = model.revision(revision);
        }
        if let Some(path) = &place.path {
            model = model.path(path);
        }
        Ok(model)
    }
}
