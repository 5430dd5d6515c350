//! Error responses, by token.

use super::{Received, get_from, hub, model};
use crate::hub::{File, LocalHub, Repo};

const MISSING_OR_PRIVATE: &str = "Invalid username or password.";
const BAD_TOKEN: &str = "Invalid credentials in Authorization header";

/// Path and token of a request; status, code and message of the response.
const ERRORS: [(&str, &str, u16, &str, &str); 13] = [
    ("/org/model/resolve/main/x", "", 404, "EntryNotFound", "Entry not found"),
    ("/org/model/resolve/none/x", "", 404, "RevisionNotFound", "Invalid rev id: none"),
    ("/none/resolve/main/x", "", 401, "RepoNotFound", MISSING_OR_PRIVATE),
    ("/none/resolve/main/x", "outsider", 404, "RepoNotFound", "Repository not found"),
    ("/private/resolve/main/x", "", 401, "RepoNotFound", MISSING_OR_PRIVATE),
    ("/private/resolve/main/x", "outsider", 404, "RepoNotFound", "Repository not found"),
    ("/api/models/private", "", 401, "RepoNotFound", MISSING_OR_PRIVATE),
    ("/org/model/resolve/main/x", "nonsense", 401, "", BAD_TOKEN),
    ("/gated/resolve/main/x", "nonsense", 401, "", BAD_TOKEN),
    ("/gated/resolve/main/x", "", 401, "GatedRepo", "Please log in"),
    ("/gated/resolve/main/x", "outsider", 403, "GatedRepo", "not in the authorized list"),
    ("/disabled/resolve/main/x", "", 403, "", "Access to this resource is disabled."),
    ("/no/such/route", "", 404, "", "Not Found"),
];

/// Starts a Hub with a repository of each kind of access, and the tokens `member` and `outsider`.
fn restricted_hub() -> LocalHub {
    let repo = |id| Repo::new(id).file("x", File::from_bytes("x"));
    LocalHub::builder()
        .repo(model())
        .repo(repo("gated").gated())
        .repo(repo("private").private())
        .repo(repo("disabled").disabled())
        .token("member")
        .unprivileged_token("outsider")
        .start()
        .unwrap()
}

#[tokio::test]
async fn errors_match_those_of_the_hub() {
    let hub = restricted_hub();
    for (path, token, status, code, message) in ERRORS {
        let response = get_with_token(&hub, path, token).await;
        assert_eq!(response.status, status, "{path} {token}");
        assert_eq!(response.header("x-error-code").unwrap_or_default(), code, "{path} {token}");
        assert!(response.header("x-error-message").unwrap().contains(message), "{path} {token}");
        assert!(response.header("x-request-id").is_some(), "{path} {token}");
        let names_commit = response.header("x-repo-commit").is_some();
        assert_eq!(names_commit, code == "EntryNotFound", "{path} {token}");
    }
}

async fn get_with_token(hub: &LocalHub, path: &str, token: &str) -> Received {
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", &*authorization)];
    get_from(hub, path, if token.is_empty() { &[] } else { &headers }).await
}

#[tokio::test]
async fn a_member_can_read_private_and_gated_repositories() {
    let hub = restricted_hub();
    for path in ["/private/resolve/main/x", "/gated/resolve/main/x"] {
        assert_eq!(get_with_token(&hub, path, "member").await.status, 307, "{path}");
    }
}

#[tokio::test]
async fn the_api_shows_gated_repositories_and_sends_errors_as_json() {
    let hub = restricted_hub();
    assert_eq!(get_from(&hub, "/api/models/gated", &[]).await.status, 200);
    let error = get_from(&hub, "/api/models/none", &[]).await;
    assert_eq!(error.body, format!(r#"{{"error":"{MISSING_OR_PRIVATE}"}}"#));
}

#[tokio::test]
async fn invalid_paths_get_an_error_response() {
    let hub = hub();
    for path in
        ["", "/", "//", "/resolve/main", "/a/resolve", "/api", "/api/models/", "/%ff/raw/%/%"]
    {
        assert!(get_from(&hub, path, &[]).await.status >= 400, "{path}");
    }
    let control = get_from(&hub, "/org/model/resolve/%0d%0a/x", &[]).await;
    assert_eq!(control.header("x-error-code"), Some("RevisionNotFound"));
    assert_eq!(control.header("x-error-message"), None);
}
