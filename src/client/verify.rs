//! Verifies a model: its headers and, if requested, values.

use std::time::Instant;

use futures::future::BoxFuture;
use hf_meta_count::VerifyReport;
use hf_meta_count::memory::MemoryOptions;
use hf_meta_count::results::ValueCheck;

use super::model::Model;
use crate::error::Error;

impl Model {
    /// Checks everything that headers can reveal. Reads every header and continues after an error.
    ///
    /// Checks the weights that a loader of the repository loads: the main weight set, all components of a diffusers
    /// pipeline, or all modules of a `sentence-transformers` model. With [`all_sets`](Verify::all_sets), checks every
    /// weight set. [`VerifyReport::unchecked`] lists the rest; listing the files costs one request per 1,000 of them.
    ///
    /// May read `config.json`, whose `tie_word_embeddings` distinguishes a tied embedding from a missing one. For
    /// weights at the root of a repository, one more request fetches the parameter count that the Hub reports, with a
    /// timeout of 5 seconds.
    ///
    /// ```
    /// # use hf_meta_testing::{File, MockHub, Repo};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let weights = File::safetensors([("w", "F32", &[2, 3][..])]);
    /// # let hub = MockHub::start([Repo::new("org/model").file("model.safetensors", weights)])?;
    /// # let client = hf_meta::Client::builder().endpoint(hub.endpoint()).build()?;
    /// let report = client.model("org/model").verify().await?;
    /// assert!(report.is_valid() && report.is_complete());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Awaiting the report returns the errors of [`Model::parse_safetensors_metadata`] that occur before the index, or
    /// the first bytes of a single file, have been read, and [`Error::DeadlineExceeded`]. Later errors become findings
    /// in the report.
    pub fn verify(&self) -> Verify {
        Verify { model: self.clone(), values: None }
    }
}

/// A verification that starts when it is awaited. Created by [`Model::verify`].
#[derive(Clone, Debug)]
#[must_use = "nothing is read before it is awaited"]
pub struct Verify {
    model: Model,
    values: Option<ValueCheck>,
}

impl Verify {
    /// Sets whether every weight set in the repository or folder is checked, including variants, quantizations and the
    /// checkpoints of a training run; `false` by default. At most 1,000 sets are checked.
    ///
    /// ```no_run
    /// # async fn example(client: &hf_meta::Client) -> Result<(), hf_meta::Error> {
    /// let report = client.model("openai/gpt-oss-20b").verify().all_sets(true).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn all_sets(mut self, enabled: bool) -> Self {
        self.model.options.all_sets = enabled;
        self
    }

    /// Sets whether to check values of the verified weights, in addition to the headers: a sample, or all of them. `None`,
    /// the default, reads no values. See [`Model::check_values`].
    pub fn values(mut self, check: impl Into<Option<ValueCheck>>) -> Self {
        self.values = check.into();
        self
    }

    /// Sets the engine and the conditions for which [`VerifyReport::engine`] answers whether the model is loaded. The
    /// answer costs no request. `None`, the default, asks for no answer.
    ///
    /// ```no_run
    /// # async fn example(client: &hf_meta::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// # use hf_meta::MemoryOptions;
    /// let mut options = MemoryOptions::default();
    /// options.set("engine", "vllm")?;
    /// options.set("gpu", "2xH100")?;
    /// options.finish()?;
    /// let report = client.model("openai/gpt-oss-120b").verify().engine(options).await?;
    /// println!("{:?}", report.engine.and_then(|engine| engine.loads));
    /// # Ok(())
    /// # }
    /// ```
    pub fn engine(mut self, options: impl Into<Option<MemoryOptions>>) -> Self {
        self.model.options.memory = options.into();
        self
    }
}

impl IntoFuture for Verify {
    type Output = Result<VerifyReport, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { mut model, values } = self;
        Box::pin(async move {
            let meter = model.meter.clone().unwrap_or_else(|| model.context.totals.meter());
            model = model.meter(&meter);
            let started = Instant::now();
            let keep = values.is_some();
            let mut report = model.call(move |call| Box::pin(call.verify(keep))).await?;
            let Some(check) = values else { return Ok(report) };
            let (headers, commit) = (report.take_headers(), report.commit.clone());
            let (values, findings) = model.check_sets(headers, commit, check).await?;
            report.add_values(values, findings);
            let stats = meter.stats();
            let fetch = &mut report.fetch;
            (fetch.requests, fetch.bytes_read) = (stats.requests, stats.bytes_read);
            fetch.elapsed = started.elapsed();
            Ok(report)
        })
    }
}
