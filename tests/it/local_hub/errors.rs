//! Refusals, and whom they are for.

use super::{Seen, get_from, hub, model};
use crate::hub::{File, LocalHub, Repo};

const MISSING_OR_PRIVATE: &str = "Invalid username or password.";
const BAD_TOKEN: &str = "Invalid credentials in Authorization header";

/// Path, token, and the status, code and message they are answered with.
const REFUSALS: [(&str, &str, u16, &str, &str); 13] = [
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

/// A Hub with a repo of each kind, and the tokens `member` and `outsider`.
fn guarded() -> LocalHub {
    let repo = |id| Repo::new(id).file("x", File::from_bytes("x"));
    LocalHub::builder()
        .repo(model())
        .repo(repo("gated").gated())
        .repo(repo("private").private())
        .repo(repo("disabled").disabled())
        .token("member")
        .outsider_token("outsider")
        .start()
        .unwrap()
}

#[tokio::test]
async fn errors_have_the_status_code_and_message_of_the_hub() {
    let hub = guarded();
    for (path, token, status, code, message) in REFUSALS {
        let seen = as_caller(&hub, path, token).await;
        assert_eq!(seen.status, status, "{path} {token}");
        assert_eq!(seen.header("x-error-code").unwrap_or_default(), code, "{path} {token}");
        assert!(seen.header("x-error-message").unwrap().contains(message), "{path} {token}");
        assert!(seen.header("x-request-id").is_some(), "{path} {token}");
        let names_commit = seen.header("x-repo-commit").is_some();
        assert_eq!(names_commit, code == "EntryNotFound", "{path} {token}");
    }
}

async fn as_caller(hub: &LocalHub, path: &str, token: &str) -> Seen {
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", &*authorization)];
    get_from(hub, path, if token.is_empty() { &[] } else { &headers }).await
}

#[tokio::test]
async fn a_member_may_read_what_is_private_or_gated() {
    let hub = guarded();
    for path in ["/private/resolve/main/x", "/gated/resolve/main/x"] {
        assert_eq!(as_caller(&hub, path, "member").await.status, 307, "{path}");
    }
}

#[tokio::test]
async fn the_api_tells_of_gated_repos_and_words_errors_as_json() {
    let hub = guarded();
    assert_eq!(get_from(&hub, "/api/models/gated", &[]).await.status, 200);
    let refused = get_from(&hub, "/api/models/none", &[]).await;
    assert_eq!(refused.body, format!(r#"{{"error":"{MISSING_OR_PRIVATE}"}}"#));
}

#[tokio::test]
async fn nonsense_is_answered_too() {
    let hub = hub();
    for path in
        ["", "/", "//", "/resolve/main", "/a/resolve", "/api", "/api/models", "/%ff/raw/%/%"]
    {
        assert!(get_from(&hub, path, &[]).await.status >= 400, "{path}");
    }
    let control = get_from(&hub, "/org/model/resolve/%0d%0a/x", &[]).await;
    assert_eq!(control.header("x-error-code"), Some("RevisionNotFound"));
    assert_eq!(control.header("x-error-message"), None);
}
