//! With the policy for services, nothing leads inside, and what is refused is never asked.

use hf_meta::{AddressPolicy, Client, Error, HttpError, Source};

use crate::hub::{Fault, LocalHub};
use crate::support;

fn is_refused(error: &Error) -> bool {
    matches!(error, Error::Fetch { source, attempts: 1, .. } if matches!(**source, HttpError::Address { .. }))
}

#[tokio::test]
async fn literals_and_names_that_lead_inside() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let port = hub.endpoint().rsplit(':').next().unwrap();
    let client = Client::builder().addresses(AddressPolicy::Public).build().unwrap();
    for host in ["127.0.0.1", "localhost", "127.1", "0x7f000001", "[::ffff:127.0.0.1]"] {
        let file = "org/model/resolve/main/a.safetensors";
        let source: Source = format!("http://{host}:{port}/{file}").parse().unwrap();
        let error = client.source(source).parse_safetensors_metadata().await.unwrap_err();
        assert!(is_refused(&error), "{host}: {error:?}");
    }
    assert!(hub.log().is_empty());
}

#[tokio::test]
async fn a_local_hub_may_lead_to_its_own_kind_and_no_further() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let client = Client::builder().endpoint(hub.endpoint()).addresses(AddressPolicy::Public);
    let client = client.build().unwrap();
    let parsed = client.model("org/model").parse_safetensors_metadata().await.unwrap();
    assert_eq!(parsed.parameter_count().total(), 2);
    for target in
        ["http://10.0.0.1/x", "http://169.254.169.254/latest/meta-data", "http://[fe80::1]/"]
    {
        hub.inject(move |request, _| {
            request.path.ends_with("b.safetensors").then(|| Fault::Redirect(302, target.into()))
        });
        let error = client.model("org/model").parse_safetensors_metadata().await.unwrap_err();
        assert!(is_refused(&error), "{target}: {error:?}");
    }
}
