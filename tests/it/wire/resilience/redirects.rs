//! Redirects to other hosts and names: the file is read, and only the endpoint receives the token.

use hf_meta::{Client, SafetensorsParseFromRepo};

use crate::hub::{Fault, Host, LocalHub};
use crate::support;

const TOKEN: &str = "hf_good";

fn endpoint_hub() -> LocalHub {
    LocalHub::builder().repo(support::sharded("org/model")).token(TOKEN).start().unwrap()
}

async fn parse(hub: &LocalHub, repo: &str) -> SafetensorsParseFromRepo {
    let client = Client::builder().endpoint(hub.endpoint()).token(TOKEN).build().unwrap();
    client.model(repo).parse_safetensors_metadata().await.unwrap()
}

/// Checks that the endpoint received the token with every request, and no other server did.
fn check_token(hub: &LocalHub, is_endpoint: bool) {
    let log = hub.log();
    assert!(!log.is_empty());
    for entry in log {
        let token = (is_endpoint && entry.host == Host::Hub).then(|| format!("Bearer {TOKEN}"));
        assert_eq!(entry.authorization, token, "{}", entry.path);
    }
}

#[tokio::test]
async fn no_redirect_sends_the_token_to_another_host() {
    for status in [301, 302, 303, 307, 308] {
        for scheme in ["http:", ""] {
            let (endpoint, elsewhere) =
                (endpoint_hub(), LocalHub::start([support::sharded("org/model")]));
            let elsewhere = elsewhere.unwrap();
            let origin = elsewhere.endpoint().replacen("http:", scheme, 1);
            endpoint.inject(move |request, _| {
                Some(Fault::redirect(status, format!("{origin}{}", request.path)))
            });
            assert_eq!(parse(&endpoint, "org/model").await.parameter_count().total(), 2);
            check_token(&endpoint, true);
            check_token(&elsewhere, false);
        }
    }
}

/// A redirect to another host and back: the endpoint receives the token again.
#[tokio::test]
async fn a_redirect_back_to_the_endpoint_sends_the_token_again() {
    let (endpoint, elsewhere) =
        (endpoint_hub(), LocalHub::start([support::sharded("org/model")]).unwrap());
    let (there, back) = (elsewhere.endpoint().to_owned(), endpoint.endpoint().to_owned());
    endpoint.inject(move |request, before| {
        let is_first = request.host == Host::Hub && before % 2 == 0;
        is_first.then(|| Fault::redirect(307, format!("{there}{}", request.path)))
    });
    elsewhere
        .inject(move |request, _| Some(Fault::redirect(307, format!("{back}{}", request.path))));
    assert_eq!(parse(&endpoint, "org/model").await.parameter_count().total(), 2);
    check_token(&endpoint, true);
    check_token(&elsewhere, false);
}

#[tokio::test]
async fn a_commit_in_the_final_response_pins_the_call() {
    let hub = LocalHub::builder().repo(support::sharded("org/model")).mirror().start().unwrap();
    let parsed = support::parse(&hub, "org/model").await.unwrap();
    let commit = parsed.report().commit.as_ref().unwrap().as_str();
    let log = hub.log();
    let weights = |name: &str| {
        let path = format!("/org/model/resolve/{commit}/{name}.safetensors");
        log.iter().filter(|entry| entry.path == path).count()
    };
    assert_eq!((weights("a"), weights("b")), (2, 2));
}

#[tokio::test]
async fn other_names_of_a_repository_are_followed() {
    let repo = support::sharded("org/Model").renamed_from("old/name");
    let hub = LocalHub::builder().repo(repo).token(TOKEN).start().unwrap();
    for name in ["old/name", "ORG/model", "org/Model"] {
        assert_eq!(parse(&hub, name).await.parameter_count().total(), 2, "{name}");
        check_token(&hub, true);
    }
}
