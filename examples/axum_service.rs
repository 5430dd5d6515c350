//! A service that counts parameters: `GET /org/name` answers with JSON.
//!
//! `cargo run --example axum_service`, then `curl http://127.0.0.1:8080/bigscience/bloom`.

use std::error::Error as StdError;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, body::Body};
use hf_meta::{Client, Error, ErrorKind};

/// An error as the response of this service.
pub(crate) struct Failure(pub(crate) Error);

impl Failure {
    pub(crate) fn status(&self) -> StatusCode {
        let Self(error) = self;
        let status = match error.kind() {
            ErrorKind::Refused | ErrorKind::Network if !error.is_transient() => 502,
            kind => kind.http_status(),
        };
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let wait = self.0.retry_after().map(|wait| HeaderValue::from(wait.as_secs()));
        let headers = wait.map(|wait| (header::RETRY_AFTER, wait));
        (self.status(), HeaderMap::from_iter(headers), self.0.to_string()).into_response()
    }
}

async fn count(
    State(client): State<Client>,
    Path(repo): Path<String>,
) -> Result<([(HeaderName, &'static str); 1], Body), Failure> {
    let report = client.model(repo).plan(hf_meta::Plan::Prefetch).count().await.map_err(Failure)?;
    let json = serde_json::to_vec(&report.parameter_count).unwrap_or_default();
    Ok(([(header::CONTENT_TYPE, "application/json")], json.into()))
}

pub(crate) fn app(client: Client) -> Router {
    Router::new().route("/{*repo}", get(count)).with_state(client)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn StdError>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    Ok(axum::serve(listener, app(Client::from_env()?)).await?)
}
