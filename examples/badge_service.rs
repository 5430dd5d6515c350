//! The badge service as a part of another axum application.
//!
//! ```text
//! cargo run --example badge_service
//! curl http://127.0.0.1:8080/models/badge/bigscience/bloom.svg
//! ```

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use hf_meta::{AddressPolicy, ClientBuilder};
use hf_meta_server::{Service, ServiceConfig};

/// Returns an application with its own routes, and the service below `/models`.
pub(crate) fn app(service: &Service) -> Router {
    let app = Router::new().route("/", get(|| async { "another application" }));
    app.nest_service("/models", service.router())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Strangers use the service, so it has a separate token: what the personal one can read is not public. Requests go
    // to public addresses only.
    let token = std::env::var("HF_META_TOKEN").unwrap_or_default();
    let client = ClientBuilder::from_env().token(token).address_policy(AddressPolicy::Public);
    let client = client.build()?;
    let app = app(&Service::new(client, ServiceConfig::default()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    // The limits per client need the addresses of the clients.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
