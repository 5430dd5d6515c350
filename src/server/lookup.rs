//! From a place to what is known of it: out of memory, else by one look at the Hub, however many ask.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, Shared};
use quick_cache::Weighter;
use quick_cache::sync::Cache as MemoryCache;
use tokio::sync::Semaphore;

use super::answer::{Answer, Known};
use super::metrics::{Metrics, Source};
use super::place::Place;
use crate::badge::MetricValues;
use crate::client::Client;
use crate::error::Error;
use crate::formats::chain;
use crate::hub::Endpoint;

/// About how many bytes an answer takes, by which it is guessed how many there will be.
const USUAL_WEIGHT: u64 = 3_072;

/// What came of a lookup in the time that there was for it.
#[derive(Clone, Debug)]
pub(super) enum Lookup {
    Answer(Arc<Answer>),
    /// The look goes on.
    Pending,
    /// There are too many looks at once.
    Busy,
}

/// Bounds of all looks together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Looks at the Hub at once.
    pub(super) at_once: usize,
    /// Looks at the Hub that may wait or be under way.
    pub(super) in_all: usize,
    /// Bytes of answers that are kept in memory.
    pub(super) memory: u64,
    /// How long an answer for a branch is given without looking again.
    pub(super) fresh: Duration,
    /// How long a request waits for a look.
    pub(super) patience: Duration,
}

pub(super) struct Lookups {
    client: Client,
    bounds: Bounds,
    known: MemoryCache<Place, Known, Weight>,
    flights: Mutex<HashMap<Place, Flight>>,
    turns: Semaphore,
    metrics: Arc<Metrics>,
}

/// One look, shared by all who wait for it. It goes on when they do not.
type Flight = Shared<BoxFuture<'static, Lookup>>;

#[derive(Clone)]
struct Weight;

impl Weighter<Place, Known> for Weight {
    fn weight(&self, place: &Place, known: &Known) -> u64 {
        (place.weight() + known.answer.weight()) as u64
    }
}

impl Lookups {
    pub(super) fn new(client: Client, bounds: Bounds, metrics: Arc<Metrics>) -> Arc<Self> {
        let items = usize::try_from(bounds.memory / USUAL_WEIGHT).unwrap_or(usize::MAX);
        Arc::new(Self {
            client,
            bounds,
            known: MemoryCache::with_weighter(items.max(16), bounds.memory, Weight),
            flights: Mutex::default(),
            turns: Semaphore::new(bounds.at_once),
            metrics,
        })
    }

    /// What is known of a place: at once where it was looked at before, be it some time ago, else after
    /// a look, for which `may_look` is asked.
    pub(super) async fn get(
        self: &Arc<Self>,
        place: &Place,
        may_look: impl FnOnce() -> bool,
    ) -> Lookup {
        let known = self.known.get(place);
        match &known {
            Some(known) if known.is_fresh() => {
                self.metrics.lookup(Source::Memory);
                return Lookup::Answer(Arc::clone(&known.answer));
            }
            Some(known) if known.is_usable() => {
                self.metrics.lookup(Source::Stale);
                self.refresh(place);
                return Lookup::Answer(Arc::clone(&known.answer));
            }
            _ => {}
        }
        match (self.look_for(place, may_look).await, known) {
            // Better old than none.
            (Lookup::Pending | Lookup::Busy, Some(known)) if !known.answer.is_retryable() => {
                Lookup::Answer(known.answer)
            }
            (lookup, _) => lookup,
        }
    }

    async fn look_for(self: &Arc<Self>, place: &Place, may_look: impl FnOnce() -> bool) -> Lookup {
        let Some(flight) = self.flight(place, self.bounds.in_all, may_look) else {
            self.metrics.lookup(Source::Refused);
            return Lookup::Busy;
        };
        if let Ok(lookup) = tokio::time::timeout(self.bounds.patience, flight).await {
            self.metrics.lookup(Source::Hub);
            return lookup;
        }
        self.metrics.lookup(Source::Pending);
        Lookup::Pending
    }

    /// Looks again without anybody waiting for it, unless there is much to do for those who wait.
    fn refresh(self: &Arc<Self>, place: &Place) {
        drop(self.flight(place, self.bounds.in_all / 2, || true));
    }

    /// The look that is under way, or a new one; `None` where there are so many of them that there may
    /// be no more.
    fn flight(
        self: &Arc<Self>,
        place: &Place,
        most: usize,
        may_look: impl FnOnce() -> bool,
    ) -> Option<Flight> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flight) = flights.get(place) {
            return Some(flight.clone());
        }
        if flights.len() >= most || !may_look() {
            return None;
        }
        let (lookups, there) = (Arc::clone(self), place.clone());
        let task = tokio::spawn(async move { lookups.look(there).await });
        // A task ends without a result only when the service itself does, or by a bug of ours.
        let flight =
            task.map(|answer| answer.map_or(Lookup::Busy, Lookup::Answer)).boxed().shared();
        flights.insert(place.clone(), flight.clone());
        self.metrics.in_flight(flights.len());
        Some(flight)
    }

    /// Looks at the Hub when it is this look's turn, and keeps what came of it.
    async fn look(self: Arc<Self>, place: Place) -> Arc<Answer> {
        let landing = InFlightGuard { lookups: &self, place: &place };
        let _turn = self.turns.acquire().await;
        let answer = Arc::new(self.ask(&place).await);
        self.metrics.look(&answer);
        let kept = self.keep(&place, answer);
        drop(landing);
        kept
    }

    /// Keeps an answer, unless it only says that this is no good moment and there was one before.
    fn keep(&self, place: &Place, answer: Arc<Answer>) -> Arc<Answer> {
        let before = self.known.get(place).filter(|known| !known.answer.is_retryable());
        let lifetime = answer.lifetime(place.is_pinned(), self.bounds.fresh);
        let answer = match before {
            Some(before) if answer.is_retryable() => before.answer,
            _ => answer,
        };
        self.known.insert(place.clone(), Known::new(Arc::clone(&answer), lifetime));
        self.metrics.memory(self.known.weight(), self.known.len() as u64);
        answer
    }

    /// The Hub that is looked at.
    pub(super) fn endpoint(&self) -> &Endpoint {
        self.client.endpoint()
    }

    async fn ask(&self, place: &Place) -> Answer {
        let model = place.model(&self.client);
        if place.is_listing() {
            return model.weight_sets().await.map_or_else(
                |error| Answer::Failed { error: logged(place, error) },
                Answer::Listed,
            );
        }
        let error = match model.parse_safetensors_metadata().await {
            Ok(parsed) => return Answer::read(&parsed),
            Err(error) => error,
        };
        if matches!(error, Error::Gated { .. })
            && let Ok(Some(claim)) = model.hub_reported_count().await
        {
            let figures = MetricValues::from_unverified(claim.parameters, claim.total);
            return Answer::Claimed { figures, error: logged(place, error) };
        }
        Answer::Failed { error: logged(place, error) }
    }
}

/// An error whose causes are for the operator.
fn logged(place: &Place, error: Error) -> Arc<Error> {
    let repo = place.repo();
    tracing::info!(repo, error = chain(&error), "a look gave nothing");
    Arc::new(error)
}

/// Takes a look off the list of those under way, however it ends.
struct InFlightGuard<'a> {
    lookups: &'a Lookups,
    place: &'a Place,
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        let mut flights = self.lookups.flights.lock().unwrap_or_else(PoisonError::into_inner);
        flights.remove(self.place);
        self.lookups.metrics.in_flight(flights.len());
    }
}
