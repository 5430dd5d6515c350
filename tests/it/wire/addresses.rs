//! The address policy for services: no request to a private address is ever sent.

use hf_meta::{AddressPolicy, Client, Error, HttpErrorKind, Source};

use crate::hub::{Fault, Host, LocalHub};
use crate::support;

fn is_refused(error: &Error) -> bool {
    matches!(error, Error::RequestFailed { source, .. } if source.kind == HttpErrorKind::ForbiddenAddress && source.attempts == 1)
}

#[tokio::test]
async fn private_addresses_are_rejected_in_every_notation() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let port = hub.endpoint().rsplit(':').next().unwrap();
    let client = Client::builder().address_policy(AddressPolicy::Public).build().unwrap();
    for host in [
        "127.0.0.1",
        "localhost",
        "127.1",
        "127.9.9.9",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "%31%32%37.0.0.1",
        "\u{ff11}27.0.0.1",
        "0.0.0.0",
        "0",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "[::127.0.0.1]",
    ] {
        let file = "org/model/resolve/main/a.safetensors";
        for scheme in ["http", "https"] {
            let source: Source = format!("{scheme}://{host}:{port}/{file}").parse().unwrap();
            let error = client.source(source).parse_safetensors_metadata().await.unwrap_err();
            assert!(is_refused(&error), "{scheme}://{host}: {error:?}");
        }
    }
    assert!(hub.log().is_empty());
}

#[tokio::test]
async fn a_hub_on_loopback_may_redirect_to_loopback_only() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let client = Client::builder().endpoint(hub.endpoint()).address_policy(AddressPolicy::Public);
    let client = client.build().unwrap();
    let parsed = client.model("org/model").parse_safetensors_metadata().await.unwrap();
    assert_eq!(parsed.parameter_count().total(), 2);
    for host in [
        "10.0.0.1",
        "167772161",
        "0xa.1",
        "012.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "0xa9fea9fe",
        "2852039166",
        "0251.0376.0251.0376",
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "[::]",
        "[fe80::1]",
        "[fd00::1]",
        "[ff02::1]",
        "[::ffff:10.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[::ffff:0.0.0.0]",
        "[64:ff9b::a00:1]",
        "[2002:a9fe:a9fe::]",
    ] {
        hub.inject(move |request, _| {
            let to = Fault::redirect(302, format!("http://{host}/latest/meta-data"));
            request.path.ends_with("b.safetensors").then_some(to)
        });
        let error = client.model("org/model").parse_safetensors_metadata().await.unwrap_err();
        assert!(is_refused(&error), "{host}: {error:?}");
    }
}

/// A name counts as the address that it resolves to.
#[tokio::test]
async fn a_hub_on_loopback_may_redirect_to_any_form_of_loopback() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let client = Client::builder().endpoint(hub.endpoint()).address_policy(AddressPolicy::Public);
    let client = client.build().unwrap();
    for host in ["localhost", "2130706433", "0177.0.0.1", "[::ffff:127.0.0.1]"] {
        let port = hub.endpoint().rsplit(':').next().unwrap().to_owned();
        hub.inject(move |request, before| {
            let to = format!("http://{host}:{port}{}", request.path);
            (request.host == Host::Hub && before == 0).then_some(Fault::redirect(307, to))
        });
        let parsed = client.model("org/model").parse_safetensors_metadata().await;
        assert_eq!(parsed.unwrap().parameter_count().total(), 2, "{host}");
    }
}

/// Needs a system with IPv6.
#[tokio::test]
async fn a_hub_on_ipv6_is_read() {
    let hub = LocalHub::builder().repo(support::sharded("org/model")).ipv6().start();
    let hub = hub.unwrap_or_else(|error| panic!("no IPv6 loopback, `[::1]`, here: {error}"));
    assert!(
        hub.endpoint().starts_with("http://[::1]:")
            && hub.cdn_origin().starts_with("http://[::1]:")
    );
    for policy in [AddressPolicy::Any, AddressPolicy::Public] {
        let client =
            Client::builder().endpoint(hub.endpoint()).address_policy(policy).build().unwrap();
        let parsed = client.model("org/model").parse_safetensors_metadata().await.unwrap();
        assert_eq!(parsed.parameter_count().total(), 2);
    }
    assert_eq!(hub.log().len(), 2 * (2 + 1 + 2 * 4));
}
