//! Reads many repositories concurrently, and waits for the end of an outage.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::mem::take;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::error::{CensusError, Result};
use super::manifest::ListedRepo;
use super::read_repo::{MAX_LARGE_READS, RepoRead, read_repo};
use super::row::CensusRow;
use super::table::lock;
use hf_meta::{Client, Error, ErrorKind, LargeCallLimit};

/// The number of consecutive failures that begin an outage. A few repositories in a row may fail for their own reasons.
const MAX_CONSECUTIVE_FAILURES: usize = 16;

/// The time before the first attempt in an outage. It doubles after each failed attempt.
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// The maximum time between two attempts.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// The default limit on the duration of an outage.
const MAX_OUTAGE: Duration = Duration::from_secs(600);

/// The settings of a run that reads repositories.
#[derive(Clone, Debug)]
pub(super) struct ReadSettings {
    /// The maximum number of repositories that are read concurrently.
    pub(super) concurrency: usize,
    pub(super) max_outage: Duration,
    pub(super) stop: CensusStop,
    pub(super) progress: ProgressReporter,
    /// True to read local files and folders, too. A census has only repositories, whose headers it stores by commit.
    pub(super) accepts_local: bool,
}

impl Default for ReadSettings {
    fn default() -> Self {
        let (stop, progress) = Default::default();
        Self { concurrency: 32, max_outage: MAX_OUTAGE, stop, progress, accepts_local: false }
    }
}

/// A repository to read, and the number of its part or its row.
type NumberedRepo = (usize, ListedRepo);

/// A repository that was read, and its number.
type NumberedRead = (usize, RepoRead);

/// The repositories that are being read.
///
/// An outage begins with 16 failures of calls that began after the last success. Failures of older calls do not count,
/// because successes are faster, so that in the end all calls could be failures. Then all calls are cancelled, and one
/// repository is read from time to time until it succeeds. The repositories that have failed in the meantime are read
/// again, once: they may be defective.
#[derive(Debug)]
pub(super) struct Reads {
    client: Client,
    large: LargeCallLimit,
    settings: ReadSettings,
    waiting: VecDeque<NumberedRepo>,
    running: HashMap<Id, NumberedRepo>,
    calls: JoinSet<RepoRead>,
    /// The failures since the last success began, which are part of an outage if it is noticed now.
    failed: Vec<(NumberedRepo, RepoRead)>,
    last_success: Option<Instant>,
    /// A repository that can be read if the Hub and its CDN respond.
    readable: Option<ListedRepo>,
    /// The repositories that failed at the beginning of an outage.
    read_again: HashSet<String>,
}

impl Reads {
    pub(super) fn new(client: &Client, settings: ReadSettings) -> Self {
        Self {
            client: client.clone(),
            large: LargeCallLimit::new(MAX_LARGE_READS),
            settings,
            waiting: VecDeque::new(),
            running: HashMap::new(),
            calls: JoinSet::new(),
            failed: Vec::new(),
            last_success: None,
            readable: None,
            read_again: HashSet::new(),
        }
    }

    /// Returns whether another repository can be started.
    pub(super) fn has_room(&self) -> bool {
        let started = self.waiting.len() + self.calls.len();
        started < self.settings.concurrency && !self.settings.stop.is_stopped()
    }

    /// Starts to read a repository.
    pub(super) fn start(&mut self, number: usize, repo: ListedRepo) {
        self.waiting.push_back((number, repo));
    }

    /// Waits for the next call or the end of an outage. Returns the results that are final now; `None` if nothing is left
    /// or the run is stopped. Must be called when nothing can be started.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<NumberedRead>>> {
        if self.settings.stop.is_stopped() {
            return Ok(None);
        }
        while self.calls.len() < self.settings.concurrency
            && let Some((number, repo)) = self.waiting.pop_front()
        {
            let (client, large, listed) = (self.client.clone(), self.large.clone(), repo.clone());
            let accepts_local = self.settings.accepts_local;
            let call = self
                .calls
                .spawn(async move { read_repo(&client, &large, &listed, accepts_local).await });
            self.running.insert(call.id(), (number, repo));
        }
        if self.calls.is_empty() {
            let failed = self.take_failed(Instant::now());
            return Ok((!failed.is_empty()).then_some(failed));
        }
        let next = self.calls.join_next_with_id();
        let Some(joined) = self.settings.stop.0.run_until_cancelled(next).await.flatten() else {
            return Ok(None);
        };
        let (id, read) = match joined.map_err(JoinError::try_into_panic) {
            Ok(joined) => joined,
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime is shutting down.
            Err(Err(_)) => return Ok(None),
        };
        let Some(repo) = self.running.remove(&id) else { return Ok(Some(Vec::new())) };
        let reads = self.add(repo, read)?;
        if self.is_outage() {
            self.wait_for_end().await?;
        }
        Ok(Some(reads))
    }

    /// Adds a result. Returns the results that are final now.
    fn add(
        &mut self,
        (number, repo): NumberedRepo,
        mut read: RepoRead,
    ) -> Result<Vec<NumberedRead>> {
        if let Some(error) = read.error.take_if(|error| error.kind() == ErrorKind::RejectedToken) {
            return Err(error.into());
        }
        let has_failed = outage(&read).is_some();
        if has_failed && !self.read_again.contains(&repo.repo) {
            self.failed.push(((number, repo), read));
            return Ok(Vec::new());
        }
        if has_failed || read.requests == 0 {
            return Ok(vec![(number, read)]);
        }
        self.last_success = Some(read.ended);
        if read.row.status == "ok" {
            self.readable = Some(repo);
        }
        let mut reads = self.take_failed(read.began);
        reads.push((number, read));
        Ok(reads)
    }

    /// Takes the failures before a call began that has succeeded, so they are not part of an outage.
    fn take_failed(&mut self, before: Instant) -> Vec<NumberedRead> {
        let failed = self.failed.extract_if(.., |(_, read)| read.ended <= before);
        failed.map(|((number, _), read)| (number, read)).collect()
    }

    fn is_outage(&self) -> bool {
        let is_new = |read: &RepoRead| self.last_success.is_none_or(|time| time <= read.began);
        self.failed.iter().filter(|(_, read)| is_new(read)).count() >= MAX_CONSECUTIVE_FAILURES
    }

    /// Waits for the end of an outage. Then everything that it has interrupted is read again.
    async fn wait_for_end(&mut self) -> Result<()> {
        let ReadSettings { max_outage, stop, progress, .. } = &self.settings;
        self.calls = JoinSet::new();
        self.waiting.extend(take(&mut self.running).into_values());
        let kind = self.failed.last().and_then(|(_, read)| outage(read)).map(Error::kind);
        progress.update(|progress| progress.outage = kind);
        for (repo, _) in take(&mut self.failed) {
            self.read_again.insert(repo.1.repo.clone());
            self.waiting.push_back(repo);
        }
        let attempts: Vec<_> = match &self.readable {
            Some(repo) => vec![repo.clone()],
            None => self.waiting.iter().map(|(_, repo)| repo.clone()).collect(),
        };
        let (began, mut delay) = (Instant::now(), FIRST_DELAY);
        for repo in attempts.iter().cycle() {
            let attempt = Box::pin(async {
                // The delay may be longer than the time that is left of the outage.
                sleep(delay.min(*max_outage)).await;
                read_repo(&self.client, &self.large, repo, false).await
            });
            let Some(read) = stop.0.run_until_cancelled(attempt).await else { return Ok(()) };
            if outage(&read).is_none() {
                break;
            }
            if began.elapsed() >= *max_outage
                && let Some(source) = read.error
            {
                return Err(CensusError::Outage { source: source.into() });
            }
            delay = (2 * delay).min(MAX_DELAY);
        }
        progress.update(|progress| progress.outage = None);
        Ok(())
    }
}

/// Returns the error of a call if the Hub, its CDN or the network may be the reason. Without a request, a call says
/// nothing about them.
fn outage(read: &RepoRead) -> Option<&Error> {
    use ErrorKind::{Network, RateLimited, Refused, Timeout};
    let error = read.error.as_ref().filter(|error| error.is_transient() && read.requests > 0)?;
    matches!(error.kind(), Network | RateLimited | Refused | Timeout).then_some(error)
}

/// A handle that ends the runs of a census early. The rows that are complete are stored.
#[derive(Clone, Debug, Default)]
pub struct CensusStop(CancellationToken);

impl CensusStop {
    /// Ends the current run and all later ones.
    pub fn stop(&self) {
        self.0.cancel();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.0.is_cancelled()
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.is_stopped() { Err(CensusError::Stopped) } else { Ok(()) }
    }
}

/// The progress of a census, as numbers of repositories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CensusProgress {
    /// Repositories that were read or copied from an earlier census.
    pub done: usize,
    /// Repositories to read, or, for [`Census::count`](crate::Census::count), the maximum number of rows.
    pub total: usize,
    /// Repositories that failed.
    pub failed: usize,
    /// The kind of the failures during an outage, in which a single repository is read from time to time until one
    /// attempt succeeds.
    pub outage: Option<ErrorKind>,
}

type OnProgress = dyn Fn(CensusProgress) + Send + Sync;

/// The progress of a run, and the function that is called with it. Clones share both.
#[derive(Clone, Default)]
pub(super) struct ProgressReporter {
    current: Arc<Mutex<CensusProgress>>,
    on_progress: Option<Arc<OnProgress>>,
}

impl fmt::Debug for ProgressReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgressReporter")
    }
}

impl ProgressReporter {
    pub(super) fn new(report: impl Fn(CensusProgress) + Send + Sync + 'static) -> Self {
        Self { current: Arc::default(), on_progress: Some(Arc::new(report)) }
    }

    /// Forgets the progress of the previous run.
    pub(super) fn reset(&self) {
        *lock(&self.current) = CensusProgress::default();
    }

    pub(super) fn current(&self) -> CensusProgress {
        *lock(&self.current)
    }

    /// Counts a repository and reports the progress.
    pub(super) fn add(&self, row: &CensusRow) {
        self.update(|progress| {
            progress.done += 1;
            progress.failed += usize::from(row.has_failed());
        });
    }

    /// Changes the progress and reports it.
    pub(super) fn update(&self, change: impl FnOnce(&mut CensusProgress)) {
        let mut progress = lock(&self.current);
        change(&mut progress);
        if let Some(report) = &self.on_progress {
            report(*progress);
        }
    }
}
