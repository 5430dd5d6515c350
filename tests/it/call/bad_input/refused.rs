//! Refused calls: by limits, by the Hub, or before the first request.

use hf_meta::{Client, Error};
use hf_meta_format::formats::safetensors::HeaderErrorKind;

use crate::hub::{File, LocalHub, Repo};
use crate::support::{self, error_chain};

/// The declared length of a file is checked before any byte is stored.
#[tokio::test]
async fn limits_can_be_lowered() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let client = Client::builder().endpoint(hub.endpoint());
    let small_index = client.clone().max_index_bytes(10).build().unwrap();
    let error = small_index.model("org/model").parse_safetensors_metadata().await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: 10, .. }), "{error:?}");
    let small_header = client.clone().max_header_bytes(10).build().unwrap();
    let error = small_header.model("org/model").parse_safetensors_metadata().await.unwrap_err();
    // The file may be valid, so its authors have nothing to repair.
    assert_eq!((error.code(), error.http_status()), ("tooLarge", 422));
    let Error::InvalidHeader { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.kind, HeaderErrorKind::OverLimit);
    assert!(source.message.ends_with("exceeds the limit of 10 bytes"), "{source}");
    assert!(
        hub.log().iter().all(|entry| !entry.range.as_deref().unwrap_or("").contains("bytes=8-"))
    );
    let few_headers = client.max_total_header_bytes(60).build().unwrap();
    let error = few_headers.model("org/model").parse_safetensors_metadata().await.unwrap_err();
    assert!(matches!(error, Error::HeadersTooLarge { limit: 60, .. }), "{error:?}");
}

#[tokio::test]
async fn hub_rejections_are_typed_errors() {
    let hub = LocalHub::builder()
        .repo(support::sharded("org/open"))
        .repo(support::sharded("org/private").private())
        .repo(support::sharded("org/gated").gated())
        .repo(support::sharded("org/disabled").disabled())
        .repo(Repo::new("org/empty").file("pytorch_model.bin", File::from_bytes("PK")))
        .token("hf_good")
        .unprivileged_token("hf_outsider")
        .start()
        .unwrap();
    let cases = [
        ("org/none", None, "repository `org/none` not found or not accessible"),
        ("org/none", Some("hf_good"), "repository `org/none` not found or not accessible"),
        ("org/private", None, "repository `org/private` not found or not accessible"),
        (
            "org/private",
            Some("hf_outsider"),
            "repository `org/private` not found or not accessible",
        ),
        ("org/gated", None, "repository `org/gated` is gated, and access has not been granted"),
        (
            "org/gated",
            Some("hf_outsider"),
            "repository `org/gated` is gated, and access has not been granted",
        ),
        ("org/private", Some("hf_wrong"), "the Hub rejected the token"),
        ("org/disabled", None, "access to `org/disabled/model.safetensors` denied"),
        (
            "org/empty",
            None,
            "no supported weights in `org/empty`, only PyTorch (.bin), 1 file: neither \
             `model.safetensors` nor `model.safetensors.index.json` exists",
        ),
    ];
    for (repo, token, message) in cases {
        let builder = Client::builder().endpoint(hub.endpoint());
        let builder = token.into_iter().fold(builder, hf_meta::ClientBuilder::token);
        let error = builder.build().unwrap().model(repo).parse_safetensors_metadata().await;
        let error = error.unwrap_err();
        assert_eq!(error.to_string(), message);
        assert!(error.is_not_found() || error.has_no_weights() || error.is_denied(), "{error:?}");
        assert!(error_chain(&error).contains("[request ID Root=1-"), "{error:?}");
    }
    let open = support::client(&hub).model("org/open");
    let error = open.clone().revision("nope").parse_safetensors_metadata().await.unwrap_err();
    assert_eq!(error.to_string(), "revision `nope` not found in `org/open`");
    let error = open.path("c.safetensors").parse_safetensors_metadata().await.unwrap_err();
    assert_eq!(error.to_string(), "`org/open/c.safetensors` not found");
}

/// An invalid name causes no request.
#[tokio::test]
async fn invalid_names_are_errors() {
    let hub = LocalHub::start([]).unwrap();
    let client = support::client(&hub);
    for name in ["", "a/b/c", "../x", "https://huggingface.co/gpt2", "./local", "a b", "a/b?c"] {
        let error = client.model(name).parse_safetensors_metadata().await.unwrap_err();
        assert!(error.is_usage(), "{name}: {error:?}");
    }
    let model = client.model("org/name");
    for model in [model.clone().revision(""), model.path("../x")] {
        assert!(model.parse_safetensors_metadata().await.unwrap_err().is_usage());
    }
    assert!(hub.log().is_empty());
}

#[test]
fn invalid_settings_are_errors() {
    let endpoint = Client::builder().endpoint("huggingface.co").build().unwrap_err();
    assert!(matches!(endpoint, Error::InvalidSetting { setting: "endpoint", .. }));
    let token = Client::builder().token("hf_s3cr3t\n").build().unwrap_err();
    assert!(matches!(token, Error::InvalidOption { option: "token", .. }));
    assert!(!error_chain(&token).contains("s3cr3t"));
}
