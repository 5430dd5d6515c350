//! The local Hub answers as the real one does, over real sockets.

use std::fs;
use std::time::Duration;

use reqwest::header::{HeaderMap, RANGE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, redirect};

use crate::hub::{File, Host, LocalHub, Repo, load_folder};

const COMMIT: &str = "1111111111111111111111111111111111111111";
const OTHER_COMMIT: &str = "2222222222222222222222222222222222222222";
const WEIGHTS: &str = "/org/model/resolve/main/model.safetensors";
const CONFIG: &str = "/org/model/resolve/main/config.json";

/// A client that follows nothing by itself, so that each hop can be looked at.
fn client() -> Client {
    let builder = Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy();
    builder.timeout(Duration::from_secs(20)).build().unwrap()
}

fn get(url: &str) -> RequestBuilder {
    client().get(url)
}

async fn send(request: RequestBuilder) -> Response {
    request.send().await.unwrap()
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap())
}

fn location(response: &Response) -> String {
    header(response.headers(), "location").unwrap().to_owned()
}

fn model() -> Repo {
    let repo = Repo::new("org/model").commit(COMMIT);
    repo.file("model.safetensors", File::cut("header", 1000))
        .file("config.json", File::whole(r#"{"a":1}"#))
}

fn hub() -> LocalHub {
    LocalHub::start([model()]).unwrap()
}

#[tokio::test]
async fn a_large_file_is_redirected_to_the_cdn_with_its_metadata() {
    let hub = hub();
    let first = send(get(&format!("{}{WEIGHTS}", hub.endpoint())).header(RANGE, "bytes=4-7")).await;
    assert_eq!(first.status(), StatusCode::FOUND);
    let headers = first.headers();
    assert_eq!(header(headers, "x-repo-commit"), Some(COMMIT));
    assert_eq!(header(headers, "x-linked-size"), Some("1000"));
    assert_eq!(header(headers, "x-linked-etag").map(str::len), Some(66));
    assert_eq!(
        header(headers, "ratelimit"),
        Some(r#""resolvers";r=3000;t=300"#)
    );
    let url = location(&first);
    assert!(url.starts_with(hub.cdn()), "{url}");
    assert_eq!(
        first.content_length(),
        Some(first.text().await.unwrap().len() as u64)
    );

    let second = send(get(&url).header(RANGE, "bytes=4-7")).await;
    assert_eq!(second.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(
        header(second.headers(), "content-range"),
        Some("bytes 4-7/1000")
    );
    assert_eq!(header(second.headers(), "x-repo-commit"), None);
    assert_eq!(second.bytes().await.unwrap(), "er\0\0");
}

/// The URL that the Hub signs for a request with this range.
async fn signed(hub: &LocalHub, range: Option<&str>) -> String {
    location(&send(ranged(&format!("{}{WEIGHTS}", hub.endpoint()), range)).await)
}

fn ranged(url: &str, range: Option<&str>) -> RequestBuilder {
    range
        .into_iter()
        .fold(get(url), |request, range| request.header(RANGE, range))
}

#[tokio::test]
async fn a_signed_url_serves_one_range_and_nothing_else() {
    let hub = hub();
    let url = signed(&hub, Some("bytes=0-7")).await;
    for (url, range, status) in [
        (url.clone(), Some("bytes=0-7"), 206),
        (url.clone(), Some("bytes=0-8"), 403),
        (url.clone(), None, 403),
        (
            url.replace("Policy=bytes%3D0-7", "Policy=bytes%3D0-8"),
            Some("bytes=0-8"),
            403,
        ),
        (
            url.replace("Signature=", "Signature=f"),
            Some("bytes=0-7"),
            403,
        ),
        (
            url.replace("/model.safetensors", "/config.json"),
            Some("bytes=0-7"),
            403,
        ),
        (
            url.split_once('?').unwrap().0.to_owned(),
            Some("bytes=0-7"),
            403,
        ),
        (signed(&hub, None).await, None, 200),
        (signed(&hub, None).await, Some("bytes=0-7"), 403),
    ] {
        assert_eq!(
            send(ranged(&url, range)).await.status(),
            status,
            "{url} {range:?}"
        );
    }
}

#[tokio::test]
async fn the_cdn_refuses_a_token_and_records_it() {
    let hub = LocalHub::builder()
        .repo(model())
        .token("hf_good")
        .start()
        .unwrap();
    let url = signed(&hub, None).await;
    assert_eq!(
        send(get(&url).bearer_auth("hf_good")).await.status(),
        StatusCode::BAD_REQUEST
    );
    let last = hub.log().pop().unwrap();
    assert_eq!((last.host, last.status), (Host::Cdn, 400));
    assert_eq!(last.authorization.as_deref(), Some("Bearer hf_good"));
}

#[tokio::test]
async fn ranges_are_strict_and_clamped() {
    let hub = hub();
    for (range, status, content_range) in [
        ("bytes=990-", 206, "bytes 990-999/1000"),
        ("bytes=990-2000", 206, "bytes 990-999/1000"),
        ("bytes=1000-1001", 416, "bytes */1000"),
        ("bytes=7-6", 416, "bytes */1000"),
        ("bytes=-5", 416, "bytes */1000"),
        ("bytes=0-1,4-5", 416, "bytes */1000"),
    ] {
        let url = signed(&hub, Some(range)).await;
        let response = send(get(&url).header(RANGE, range)).await;
        assert_eq!(response.status(), status, "{range}");
        assert_eq!(
            header(response.headers(), "content-range"),
            Some(content_range),
            "{range}"
        );
    }
}

#[tokio::test]
async fn a_file_of_terabytes_can_be_read_at_its_end() {
    let size = 7_000_000_000_000;
    let huge = Repo::new("huge").file("model.safetensors", File::cut("head", size));
    let hub = LocalHub::start([huge]).unwrap();
    let url = format!("{}/huge/resolve/main/model.safetensors", hub.endpoint());
    let range = format!("bytes={}-{}", size - 100_000, size - 1);
    let url = location(&send(get(&url).header(RANGE, &range)).await);
    let body = send(get(&url).header(RANGE, &range))
        .await
        .bytes()
        .await
        .unwrap();
    assert_eq!(body, vec![0; 100_000]);
}

#[tokio::test]
async fn a_small_file_is_redirected_on_the_same_host() {
    let hub = hub();
    let first = send(get(&format!("{}{CONFIG}", hub.endpoint()))).await;
    assert_eq!(first.status(), StatusCode::TEMPORARY_REDIRECT);
    assert_eq!(header(first.headers(), "x-repo-commit"), Some(COMMIT));
    let url = location(&first);
    let (path, query) = url.split_once('?').unwrap();
    assert_eq!(
        path,
        format!("/api/resolve-cache/models/org/model/{COMMIT}/config.json")
    );
    assert!(
        query.starts_with("%2Forg%2Fmodel%2Fresolve%2Fmain%2Fconfig.json=&etag=%22"),
        "{query}"
    );
    assert_eq!(
        first.content_length(),
        Some(first.text().await.unwrap().len() as u64)
    );

    for target in [&*url, path] {
        let second = send(get(&format!("{}{target}", hub.endpoint()))).await;
        assert_eq!(second.status(), StatusCode::OK);
        assert_eq!(header(second.headers(), "x-repo-commit"), Some(COMMIT));
        assert_eq!(header(second.headers(), "etag").map(str::len), Some(42));
        assert_eq!(second.text().await.unwrap(), r#"{"a":1}"#);
    }
    let part = send(get(&format!("{}{path}", hub.endpoint())).header(RANGE, "bytes=1-3")).await;
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.text().await.unwrap(), r#""a""#);
}

#[tokio::test]
async fn errors_are_those_of_the_hub() {
    let file = || File::whole("{}");
    let hub = LocalHub::builder()
        .repo(model())
        .repo(Repo::new("org/gated").file("config.json", file()).gated())
        .repo(
            Repo::new("org/private")
                .file("config.json", file())
                .private(),
        )
        .repo(
            Repo::new("org/disabled")
                .file("config.json", file())
                .disabled(),
        )
        .token("member")
        .outsider_token("outsider")
        .start()
        .unwrap();
    let bad_token = (401, None, "Invalid credentials in Authorization header");
    let anonymous = (401, Some("RepoNotFound"), "Invalid username or password.");
    let signed_in = (404, Some("RepoNotFound"), "Repository not found");
    for (path, token, (status, code, message)) in [
        (
            "org/model/resolve/main/none",
            "",
            (404, Some("EntryNotFound"), "Entry not found"),
        ),
        (
            "org/model/resolve/none/config.json",
            "",
            (404, Some("RevisionNotFound"), "Invalid rev id: none"),
        ),
        ("org/none/resolve/main/config.json", "", anonymous),
        ("org/none/resolve/main/config.json", "outsider", signed_in),
        ("org/private/resolve/main/config.json", "", anonymous),
        (
            "org/private/resolve/main/config.json",
            "outsider",
            signed_in,
        ),
        ("api/models/org/private", "", anonymous),
        ("org/model/resolve/main/config.json", "nonsense", bad_token),
        ("org/gated/resolve/main/config.json", "nonsense", bad_token),
        (
            "org/gated/resolve/main/config.json",
            "",
            (
                401,
                Some("GatedRepo"),
                "Access to model org/gated is restricted",
            ),
        ),
        (
            "org/gated/resolve/main/config.json",
            "outsider",
            (403, Some("GatedRepo"), "not in the authorized list"),
        ),
        (
            "org/disabled/resolve/main/config.json",
            "",
            (403, None, "Access to this resource is disabled."),
        ),
        ("no/such/route", "", (404, None, "Not Found")),
    ] {
        let request = get(&format!("{}/{path}", hub.endpoint()));
        let request = if token.is_empty() {
            request
        } else {
            request.bearer_auth(token)
        };
        let response = send(request).await;
        let headers = response.headers();
        assert_eq!(response.status(), status, "{path} {token}");
        assert_eq!(header(headers, "x-error-code"), code, "{path} {token}");
        assert!(
            header(headers, "x-error-message")
                .unwrap()
                .contains(message),
            "{path} {token}"
        );
        assert_eq!(
            header(headers, "x-repo-commit").is_some(),
            code == Some("EntryNotFound"),
            "{path} {token}"
        );
        assert!(header(headers, "x-request-id").is_some(), "{path} {token}");
    }
    for repo in ["private", "gated"] {
        let url = format!("{}/org/{repo}/resolve/main/config.json", hub.endpoint());
        assert_eq!(
            send(get(&url).bearer_auth("member")).await.status(),
            307,
            "{repo}"
        );
    }
}

#[tokio::test]
async fn errors_of_the_api_are_json() {
    let hub = hub();
    let body = send(get(&format!("{}/api/models/none", hub.endpoint())))
        .await
        .text()
        .await
        .unwrap();
    assert_eq!(body, r#"{"error":"Invalid username or password."}"#);
}

async fn weights_at(hub: &LocalHub, revision: &str) -> Option<String> {
    let url = format!(
        "{}/org/model/resolve/{revision}/model.safetensors",
        hub.endpoint()
    );
    let first = send(get(&url)).await;
    let commit = header(first.headers(), "x-repo-commit")?.to_owned();
    Some(commit + &send(get(&location(&first))).await.text().await.unwrap())
}

#[tokio::test]
async fn a_revision_names_a_commit_and_a_branch_may_move() {
    let repo = Repo::new("org/model")
        .commit(COMMIT)
        .file("model.safetensors", File::whole("old"))
        .commit(OTHER_COMMIT)
        .file("model.safetensors", File::whole("new"))
        .revision("refs/pr/1", COMMIT);
    let hub = LocalHub::start([repo]).unwrap();
    let (old, new) = (
        Some(format!("{COMMIT}old")),
        Some(format!("{OTHER_COMMIT}new")),
    );
    assert_eq!(weights_at(&hub, "main").await, new);
    assert_eq!(weights_at(&hub, COMMIT).await, old);
    assert_eq!(weights_at(&hub, "refs%2Fpr%2F1").await, old);
    assert_eq!(weights_at(&hub, "refs%2Fpr%2F2").await, None);
    hub.move_branch("org/model", "main", COMMIT);
    assert_eq!(weights_at(&hub, "main").await, old);
}

#[tokio::test]
async fn raw_tells_whether_a_file_exists() {
    let hub = hub();
    for (path, status) in [
        ("model.safetensors", 200),
        ("config.json", 200),
        ("none", 404),
    ] {
        let url = format!("{}/org/model/raw/main/{path}", hub.endpoint());
        assert_eq!(send(client().head(url)).await.status(), status, "{path}");
    }
    let url = format!("{}/org/model/raw/main/model.safetensors", hub.endpoint());
    let pointer = send(get(&url)).await.text().await.unwrap();
    assert!(
        pointer.starts_with("version https://git-lfs.github.com/spec/v1\noid sha256:"),
        "{pointer}"
    );
}

#[tokio::test]
async fn the_api_tells_the_commit_and_the_files() {
    let hub = hub();
    for path in ["", "/revision/main", "/revision/HEAD"] {
        let url = format!("{}/api/models/org/model{path}", hub.endpoint());
        let info: serde_json::Value =
            serde_json::from_str(&send(get(&url)).await.text().await.unwrap()).unwrap();
        assert_eq!(info["id"], "org/model");
        assert_eq!(info["sha"], COMMIT);
        assert_eq!(info["siblings"][1]["rfilename"], "model.safetensors");
    }
}

#[tokio::test]
async fn ids_and_paths_of_every_form_are_found() {
    let file = || File::whole("x");
    let hub = LocalHub::builder()
        .base_path("/hf")
        .repo(Repo::new("gpt2").file("model.safetensors", file()))
        .repo(Repo::new("datasets/org/set").file("ä b/c.txt", file()))
        .start()
        .unwrap();
    assert!(hub.endpoint().ends_with("/hf"));
    let large = send(get(&format!(
        "{}/gpt2/resolve/main/model.safetensors",
        hub.endpoint()
    )))
    .await;
    assert_eq!(
        send(get(&location(&large))).await.text().await.unwrap(),
        "x"
    );

    let small = send(get(&format!(
        "{}/datasets/org/set/resolve/main/%C3%A4%20b/c.txt",
        hub.endpoint()
    )))
    .await;
    let target = location(&small);
    assert!(
        target.starts_with("/hf/api/resolve-cache/datasets/org/set/"),
        "{target}"
    );
    let origin = hub.endpoint().strip_suffix("/hf").unwrap();
    assert_eq!(
        send(get(&format!("{origin}{target}")))
            .await
            .text()
            .await
            .unwrap(),
        "x"
    );
}

#[tokio::test]
async fn the_log_holds_every_request_in_order() {
    let hub = hub();
    let url = format!("{}{WEIGHTS}?download=true", hub.endpoint());
    let first = send(
        get(&url)
            .header(RANGE, "bytes=0-7")
            .header("user-agent", "test/1"),
    )
    .await;
    send(
        get(&location(&first))
            .header(RANGE, "bytes=0-7")
            .header("accept-encoding", "identity"),
    )
    .await;
    let [to_hub, to_cdn] = hub.log().try_into().unwrap();
    assert_eq!(
        (to_hub.host, to_hub.method, to_hub.status),
        (Host::Hub, Method::GET, 302)
    );
    assert_eq!(
        (&*to_hub.path, to_hub.query.as_deref()),
        (WEIGHTS, Some("download=true"))
    );
    assert_eq!(to_hub.user_agent.as_deref(), Some("test/1"));
    assert_eq!((to_cdn.host, to_cdn.status), (Host::Cdn, 206));
    assert_eq!(to_cdn.range.as_deref(), Some("bytes=0-7"));
    assert_eq!(to_cdn.accept_encoding.as_deref(), Some("identity"));
    hub.clear_log();
    assert_eq!(hub.log(), []);
}

#[tokio::test]
async fn http2_is_spoken_too_and_a_head_has_no_body() {
    let hub = hub();
    let client = Client::builder()
        .http2_prior_knowledge()
        .no_proxy()
        .build()
        .unwrap();
    let url = format!("{}{WEIGHTS}", hub.endpoint());
    let response = send(client.get(&url)).await;
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    assert_eq!(response.bytes().await.unwrap().len(), 1000);
    let response = send(client.head(&url)).await;
    assert_eq!(header(response.headers(), "content-length"), Some("1000"));
    assert_eq!(response.bytes().await.unwrap().len(), 0);
}

#[tokio::test]
async fn ordinary_model_folders_are_served_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, content: &[u8]| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let weights: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    write("one/model.safetensors", &weights);
    write("one/onnx/config.json", b"{}");
    write(
        "org/two/hub.json",
        format!(r#"{{"commit":"{COMMIT}","sizes":{{"model.safetensors":9}}}}"#).as_bytes(),
    );
    write("org/two/model.safetensors", b"head");
    write("org/notes.txt", b"no repo");

    let repos = load_folder(folder.path()).unwrap();
    assert_eq!(
        repos.iter().map(Repo::id).collect::<Vec<_>>(),
        ["one", "org/two"]
    );
    let hub = LocalHub::start(repos).unwrap();
    let client = Client::builder().no_proxy().build().unwrap();
    let read = async |path: &str, range: &str| {
        let url = format!("{}/{path}", hub.endpoint());
        send(client.get(url).header(RANGE, range))
            .await
            .bytes()
            .await
            .unwrap()
    };
    assert_eq!(
        read("one/resolve/main/model.safetensors", "bytes=0-").await,
        weights
    );
    assert_eq!(
        read("one/resolve/main/model.safetensors", "bytes=70001-799998").await,
        weights[70_001..799_999]
    );
    assert_eq!(
        read("one/resolve/main/onnx/config.json", "bytes=0-").await,
        "{}"
    );
    assert_eq!(
        read(
            &format!("org/two/resolve/{COMMIT}/model.safetensors"),
            "bytes=3-"
        )
        .await,
        "d\0\0\0\0\0"
    );
    assert_eq!(
        read("org/two/resolve/main/hub.json", "bytes=0-").await,
        "Entry not found"
    );
}
