//! `/api/models/{repo}`: what `hf-meta --json --summary` prints, and errors that programs can read.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use serde::Serialize;

use super::answer::Answer;
use super::lookup::Lookup;
use super::place::{Place, Query};
use super::respond::{Answered, Caching};
use super::state::State as Service;
use crate::badge::MetricValues;
use crate::error::Error;
use crate::formats::weight_sets::WeightSet;

/// Before the name of a repo.
pub(super) const PREFIX: &str = "/api/models/";

const FAILURE: Caching = Caching::Briefly(Duration::from_secs(60));
const PASSING: Caching = Caching::Briefly(Duration::from_secs(5));

/// An answer without figures of ours.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Problem<'a> {
    /// What is the matter, in a word for programs.
    code: &'static str,
    /// The same for people.
    error: String,
    /// What the Hub itself says of weights that are closed to us. Nobody has checked it.
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed: Option<Claimed<'a>>,
    /// What to choose from, by `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    sets: Option<&'a [WeightSet]>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Claimed<'a> {
    parameter_count: std::collections::BTreeMap<&'a str, u64>,
    parameter_total: u64,
}

pub(super) async fn model(State(service): State<Arc<Service>>, request: Request) -> Response<Body> {
    let query = Query::parse(request.uri().query());
    let name = request.uri().path().strip_prefix(PREFIX).unwrap_or_default();
    let client = service.client_of(&request);
    let answered = match Place::parse(name, &query) {
        Err(bad) => problem(StatusCode::BAD_REQUEST, "invalid", bad.to_string(), FAILURE),
        Ok(_) if !service.may_ask(client) => busy("this client asks too often"),
        Ok(place) => match service.lookups.get(&place, || service.may_look(client)).await {
            Lookup::Answer(answer) => shown(&answer, service.caching(&place)),
            Lookup::Pending => {
                let text = "the Hub is being read; ask again".to_owned();
                problem(StatusCode::ACCEPTED, "pending", text, PASSING)
            }
            Lookup::Busy => busy("too many repositories are being read; ask again later"),
        },
    };
    answered.to(request.headers())
}

fn shown(answer: &Answer, caching: Caching) -> Answered {
    match answer {
        Answer::Read(read) => Answered::json(StatusCode::OK, read.summary.clone(), caching),
        Answer::Claimed { figures, error } => failed(error, Some(figures), FAILURE),
        Answer::Failed { error } if answer.is_retryable() => failed(error, None, PASSING),
        Answer::Failed { error } => failed(error, None, FAILURE),
        // Of no place that is asked for here.
        Answer::Listed(_) => {
            problem(StatusCode::NOT_FOUND, "notFound", "no figures".to_owned(), FAILURE)
        }
    }
}

/// An error by its own words. Its causes are for the operator, and are in the log.
fn failed(error: &Error, claim: Option<&MetricValues>, caching: Caching) -> Answered {
    let (status, code) = match error {
        Error::SeveralSets { .. } => (StatusCode::MULTIPLE_CHOICES, "severalSets"),
        Error::NoSafetensors { .. } => (StatusCode::NOT_FOUND, "noSafetensors"),
        error if error.is_not_found() => (StatusCode::NOT_FOUND, "notFound"),
        error if error.is_denied() => (StatusCode::FORBIDDEN, "denied"),
        error if error.is_malformed() => (StatusCode::UNPROCESSABLE_ENTITY, "malformed"),
        error if error.is_usage() => (StatusCode::BAD_REQUEST, "invalid"),
        _ => (StatusCode::BAD_GATEWAY, "unavailable"),
    };
    let claimed = claim.map(|figures| Claimed {
        parameter_count: figures.dtypes.iter().map(|(dtype, n)| (dtype.as_str(), *n)).collect(),
        parameter_total: figures.parameters,
    });
    let sets = match error {
        Error::SeveralSets { sets, .. } => Some(&**sets),
        _ => None,
    };
    json(status, &Problem { code, error: error.to_string(), claimed, sets }, caching)
}

fn busy(text: &str) -> Answered {
    problem(StatusCode::TOO_MANY_REQUESTS, "busy", text.to_owned(), PASSING)
}

pub(super) fn problem(
    status: StatusCode,
    code: &'static str,
    error: String,
    caching: Caching,
) -> Answered {
    json(status, &Problem { code, error, claimed: None, sets: None }, caching)
}

fn json(status: StatusCode, problem: &Problem<'_>, caching: Caching) -> Answered {
    // Texts and numbers, which always can be written as JSON.
    Answered::json(status, serde_json::to_vec(problem).unwrap_or_default(), caching)
}
