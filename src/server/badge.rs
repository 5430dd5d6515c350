//! `/badge/{repo}.svg` and `/badge/{repo}.json`: always an answer that an image proxy shows.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};

use super::answer::Answer;
use super::lookup::Lookup;
use super::place::{Place, Query};
use super::respond::{Answered, Caching};
use super::state::State as Service;
use crate::badge::{Badge, BadgeOptions, Metric};

/// How long a reason for a missing figure may be given by others.
const FAILURE: Caching = Caching::Briefly(Duration::from_secs(60));

/// The same for one that may pass any moment. Image proxies ask no more often than that.
const PASSING: Caching = Caching::Briefly(Duration::from_secs(10));

/// Before the name of a repo.
pub(super) const PREFIX: &str = "/badge/";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Svg,
    Json,
}

pub(super) async fn badge(State(service): State<Arc<Service>>, request: Request) -> Response<Body> {
    let query = Query::parse(request.uri().query());
    let (name, form) = split(request.uri().path().strip_prefix(PREFIX).unwrap_or_default());
    let show = query.get("show").and_then(|show| show.parse().ok()).unwrap_or_default();
    let client = service.client_of(&request);
    let (badge, caching) = find(&service, name, &query, show, client).await;
    let look = BadgeOptions::from_query(query.pairs());
    let answered = match form {
        Form::Svg => Answered::svg(badge.svg(&look), caching),
        Form::Json => Answered::json(StatusCode::OK, endpoint(&badge, &look, caching), caching),
    };
    answered.to(request.headers())
}

/// The name in a path, and what is wanted of it. What has neither ending is a name that no repo has.
fn split(path: &str) -> (&str, Form) {
    match (path.strip_suffix(".svg"), path.strip_suffix(".json")) {
        (Some(name), _) => (name, Form::Svg),
        (None, Some(name)) => (name, Form::Json),
        (None, None) => ("", Form::Svg),
    }
}

async fn find(
    service: &Service,
    name: &str,
    query: &Query<'_>,
    show: Metric,
    client: IpAddr,
) -> (Badge, Caching) {
    let without = |reason: &str| Badge::placeholder(show, reason);
    let place = match Place::parse(name, query) {
        Ok(place) => place,
        Err(bad) => return (without(&bad.to_string()), FAILURE),
    };
    if !service.may_ask(client) {
        return (without("rate limited"), PASSING);
    }
    match service.lookups.get(&place, || service.may_look(client)).await {
        Lookup::Answer(answer) => shown(&answer, show, service.caching(&place)),
        Lookup::Pending => (without("pending"), PASSING),
        Lookup::Busy => (without("busy"), PASSING),
    }
}

fn shown(answer: &Answer, show: Metric, caching: Caching) -> (Badge, Caching) {
    let unknown = || Badge::placeholder(show, "unknown");
    match answer {
        Answer::Read(read) => (read.figures.badge(show).unwrap_or_else(unknown), caching),
        Answer::Claimed { figures, error } => {
            let reason = || Badge::from_error(error, show);
            (figures.badge(show).unwrap_or_else(reason), FAILURE)
        }
        Answer::Failed { error } if answer.is_retryable() => {
            (Badge::from_error(error, show), PASSING)
        }
        Answer::Failed { error } => (Badge::from_error(error, show), FAILURE),
        // Of no place that is asked for here.
        Answer::Listed(_) => (unknown(), FAILURE),
    }
}

fn endpoint(badge: &Badge, look: &BadgeOptions, caching: Caching) -> Vec<u8> {
    let mut endpoint = badge.shields_endpoint(look);
    endpoint.cache_seconds = Some(caching.seconds());
    // Texts and numbers, which always can be written as JSON.
    serde_json::to_vec(&endpoint).unwrap_or_default()
}
