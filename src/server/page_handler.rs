//! `/`: the page on which a badge is made, and its files.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response, StatusCode};

use super::answer::Answer;
use super::lookup::Lookup;
use super::place::{Place, Query};
use super::respond::{Answered, Caching};
use super::state::State as Service;
use crate::badge::{BadgeOptions, Metric};
use crate::error::Error;
use crate::server::page::{self, Beside, Found, Others, Outcome, Sets, Shown, Site};

/// How long browsers keep the files of the page without asking.
const FILES: Caching = Caching::For(Duration::from_secs(3_600));

pub(super) async fn page(State(service): State<Arc<Service>>, request: Request) -> Response<Body> {
    let query = Query::parse(request.uri().query());
    let address = service.address(request.headers());
    let site = Site { address: &address, endpoint: service.lookups.endpoint() };
    let client = service.client_of(&request);
    let html = match query.get("repo") {
        None => page::page(&site, None),
        Some(asked) => found(&service, &site, asked, &query, client).await,
    };
    html_of(html).to(request.headers())
}

async fn found(
    service: &Service,
    site: &Site<'_>,
    asked: &str,
    query: &Query<'_>,
    client: IpAddr,
) -> String {
    // A form sends its empty fields, too.
    let look = BadgeOptions::from_query(query.pairs().filter(|(_, value)| !value.is_empty()));
    let show: Metric = query.get("show").and_then(|show| show.parse().ok()).unwrap_or_default();
    let nothing = Shown {
        asked,
        repo: None,
        revision: None,
        path: None,
        show,
        look: &look,
        outcome: Outcome::Pending,
    };
    let place = match Place::named(asked, site.endpoint, query) {
        Ok(place) => place,
        Err(error) => {
            return page::page(site, Some(&Shown { outcome: Outcome::Failed(&error), ..nothing }));
        }
    };
    let lookup = lookup(service, &place, client).await;
    let error = match &lookup {
        Ok(answer) => answer.as_ref().and_then(|answer| answer.error()).map(ToString::to_string),
        Err(error) => Some(error.clone()),
    };
    let answer = lookup.as_ref().ok().and_then(Option::as_deref);
    let outcome = match (answer, error.as_deref()) {
        (Some(answer), error) => {
            outcome(service, &place, answer, error.unwrap_or_default(), client).await
        }
        (None, Some(error)) => Outcome::Failed(error),
        (None, None) => Outcome::Pending,
    };
    let (repo, revision, path) = (place.repo(), place.revision(), place.path());
    page::page(site, Some(&Shown { repo: Some(&repo), revision, path, outcome, ..nothing }))
}

async fn outcome<'a>(
    service: &Service,
    place: &Place,
    answer: &'a Answer,
    error: &'a str,
    client: IpAddr,
) -> Outcome<'a> {
    match answer {
        Answer::Read(read) => {
            Outcome::Found(&read.found, others(service, place, &read.found, client).await)
        }
        Answer::Claimed { figures, .. } => Outcome::Claimed(figures, error),
        Answer::Failed { error: cause } => match &**cause {
            Error::SeveralSets { sets, .. } => Outcome::Choice(error, Sets::of(sets)),
            _ => Outcome::Failed(error),
        },
        // Of no place that is asked for here.
        Answer::Listed(_) => Outcome::Failed(error),
    }
}

/// What is known; `None` while it is not known yet, else why it will not be.
async fn lookup(
    service: &Service,
    place: &Place,
    client: IpAddr,
) -> Result<Option<Arc<Answer>>, String> {
    if !service.may_ask(client) {
        return Err("too many requests from here; try again in a minute".to_owned());
    }
    match service.lookups.get(place, || service.may_look(client)).await {
        Lookup::Answer(answer) => Ok(Some(answer)),
        Lookup::Pending => Ok(None),
        Lookup::Busy => Err("too many models are being read; try again in a minute".to_owned()),
    }
}

/// The sets of weights that are there beside what was found. Badges have no use for them, so they are
/// listed by themselves, once for each commit; not where the reader has chosen one.
async fn others(service: &Service, place: &Place, found: &Found, client: IpAddr) -> Others {
    let read = match &found.beside {
        Beside::Listed(sets) => return Others::Listed(sets.clone()),
        Beside::Unlisted(_) if place.path().is_some() => return Others::Unasked,
        Beside::Unlisted(read) => read,
    };
    let listing = place.listing(found.commit.as_ref());
    match service.lookups.get(&listing, || service.may_look(client)).await {
        Lookup::Answer(answer) => match &*answer {
            Answer::Listed(Some(sets)) => {
                Others::Listed(Sets::of(sets.iter().filter(|set| !set.is_part_of(read))))
            }
            _ => Others::Unknown,
        },
        Lookup::Pending => Others::Pending,
        Lookup::Busy => Others::Unknown,
    }
}

pub(super) async fn script(asked: HeaderMap) -> Response<Body> {
    file("text/javascript; charset=utf-8", page::SCRIPT).to(&asked)
}

pub(super) async fn style(asked: HeaderMap) -> Response<Body> {
    file("text/css; charset=utf-8", page::STYLE).to(&asked)
}

pub(super) async fn icon(asked: HeaderMap) -> Response<Body> {
    Answered::svg(page::ICON.to_owned(), FILES).to(&asked)
}

fn file(content_type: &'static str, text: &'static str) -> Answered {
    Answered::plain(StatusCode::OK, content_type, text, FILES)
}

fn html_of(html: String) -> Answered {
    let policy = page::CONTENT_SECURITY_POLICY;
    let kind = "text/html; charset=utf-8";
    Answered { policy, ..Answered::plain(StatusCode::OK, kind, html, Caching::Never) }
}
