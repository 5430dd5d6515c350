//! A service that counts parameters: `GET /org/name` answers with JSON.
//!
//! `cargo run --example axum_service`, then `curl http://127.0.0.1:8080/bigscience/bloom`.

use std::error::Error as StdError;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, body::Body};
use hf_meta::{AddressPolicy, Client, ClientBuilder, Error};

/// An error as the response of this service.
pub(crate) struct Failure(pub(crate) Error);

impl Failure {
    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let wait = self.0.retry_after_secs().map(HeaderValue::from);
        let headers = wait.map(|wait| (header::RETRY_AFTER, wait));
        // The message of an error does not repeat those of its causes.
        (self.status(), HeaderMap::from_iter(headers), self.0.chain()).into_response()
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
    // Strangers use the service, so it has a separate token: what the personal one can read is not public. Requests go
    // to public addresses only.
    let token = std::env::var("HF_META_TOKEN").unwrap_or_default();
    let client = ClientBuilder::from_env().token(token).address_policy(AddressPolicy::Public);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    Ok(axum::serve(listener, app(client.build()?)).await?)
}
