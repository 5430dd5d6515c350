//! Servers that send other responses than requested.

use hf_meta::{Client, ClientBuilder, Error, ErrorKind, HttpErrorKind, RetryPolicy, Source};
use wiremock::matchers::{header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::{error_chain, file_start};

const HEADER: &str = r#"{"w":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}}"#;

/// Returns the whole file.
fn file() -> Vec<u8> {
    [file_start(HEADER), vec![0; 4]].concat()
}

fn range(first: usize, last: usize) -> ResponseTemplate {
    ResponseTemplate::new(206)
        .insert_header("content-range", format!("bytes {first}-{last}/{}", file().len()))
        .set_body_bytes(&file()[first..=last])
}

fn last() -> usize {
    7 + HEADER.len()
}

/// Starts a server with one response for each of the two ranges.
async fn server(first: ResponseTemplate, second: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    for (range, response) in
        [("bytes=0-7".to_owned(), first), (format!("bytes=8-{}", last()), second)]
    {
        let mock = Mock::given(method("GET")).and(path("/x.safetensors"));
        mock.and(header("range", range.as_str())).respond_with(response).mount(&server).await;
    }
    server
}

async fn parse_with(builder: ClientBuilder, server: &MockServer) -> Result<u64, Error> {
    let source: Source = format!("{}/x.safetensors", server.uri()).parse().unwrap();
    let parsed = builder.build().unwrap().source(source).parse_safetensors_metadata().await?;
    Ok(parsed.parameter_count().total())
}

async fn parse(first: ResponseTemplate, second: ResponseTemplate) -> Result<u64, Error> {
    parse_with(without_retries(), &server(first, second).await).await
}

/// Returns a builder without retries.
fn without_retries() -> ClientBuilder {
    Client::builder().retry_policy(RetryPolicy::default().max_attempts(1))
}

/// Returns the kind of an error, and the defect of the response.
fn defect(result: Result<u64, Error>) -> (HttpErrorKind, String) {
    let Err(Error::RequestFailed { source, .. }) = result else { panic!("{result:?}") };
    let defect = std::error::Error::source(&*source).unwrap().to_string();
    (source.kind.clone(), defect)
}

#[tokio::test]
async fn two_exact_ranges_are_accepted() {
    assert_eq!(parse(range(0, 7), range(8, last())).await.unwrap(), 4);
}

#[tokio::test]
async fn other_responses_to_the_second_range_are_errors() {
    let total = file().len();
    let body = file()[8..=last()].to_vec();
    let length = HEADER.len() as u64;
    let with_range = |text: &str| range(8, last()).insert_header("content-range", text);
    let (first, last_byte) = (8, 7 + length);
    let mismatch = |found_first: u64, found_last: u64| {
        format!("requested bytes {first}-{last_byte}, got {found_first}-{found_last} of {total}")
    };
    let no_content_range = "`Content-Range` does not have the form `bytes a-b/size`";
    let removed = "`Content-Range` is missing, so that the bytes may be other ones than requested; a proxy (`server: \
                   Artifactory/7.98.9`) may have removed it";
    let wrong_length = |found: u64| format!("expected {length} bytes, got {found}");
    let page = ResponseTemplate::new(200).set_body_raw("<html></html>", "text/html");
    let no_range = ResponseTemplate::new(206).set_body_bytes(body.clone());
    let no_range = no_range.insert_header("server", "Artifactory/7.98.9");
    let cases = [
        (page, HttpErrorKind::WebPage, "the server sent a web page".to_owned()),
        (no_range, HttpErrorKind::WrongHeaders, removed.to_owned()),
        (with_range("bytes 8-60/*"), HttpErrorKind::WrongHeaders, no_content_range.to_owned()),
        (
            with_range(&format!("bytes 0-{}/{total}", last() - 8)),
            HttpErrorKind::WrongHeaders,
            mismatch(0, length - 1),
        ),
        (range(8, last() - 1), HttpErrorKind::WrongHeaders, mismatch(8, last_byte - 1)),
        (range(8, last()).set_body_bytes(&body[..10]), HttpErrorKind::WrongBody, wrong_length(10)),
        (
            range(8, last()).set_body_bytes([body.clone(), vec![0; 10]].concat()),
            HttpErrorKind::WrongBody,
            wrong_length(length + 10),
        ),
        (
            range(8, last()).insert_header("content-encoding", "gzip"),
            HttpErrorKind::WrongHeaders,
            "unexpected `Content-Encoding`".to_owned(),
        ),
    ];
    for (response, kind, description) in cases {
        assert_eq!(defect(parse(range(0, 7), response).await), (kind, description));
    }
}

/// Artifactory removes `Content-Range`. The length and the size of the file prove the range.
#[tokio::test]
async fn ranges_without_content_range_are_read() {
    let part =
        |start: usize, end| ResponseTemplate::new(206).set_body_bytes(file()[start..=end].to_vec());
    let server = server(part(0, 7), part(8, last())).await;
    let size = ResponseTemplate::new(200).insert_header("content-length", file().len().to_string());
    Mock::given(method("HEAD")).respond_with(size).mount(&server).await;
    assert_eq!(parse_with(without_retries(), &server).await.unwrap(), 4);
}

#[tokio::test]
async fn a_200_response_is_cut_to_the_range() {
    let whole = ResponseTemplate::new(200).set_body_bytes(file());
    assert_eq!(parse(range(0, 7), whole.clone()).await.unwrap(), 4);
    let server = server(whole, ResponseTemplate::new(500)).await;
    assert_eq!(parse_with(without_retries(), &server).await.unwrap(), 4);
    assert_eq!(server.received_requests().await.unwrap().len(), 1, "one body has the header");
    let page = ResponseTemplate::new(200).set_body_string("<html>Please log in</html>");
    let error = parse(page, range(8, last())).await.unwrap_err();
    assert!(error_chain(&error).ends_with("the file looks like an HTML or XML page"), "{error:?}");
}

/// A server such as `python -m http.server`. The header is longer than the first bytes of the body that are read.
#[tokio::test]
async fn a_long_header_is_read_from_a_server_without_ranges() {
    let header = format!("{HEADER}{}", " ".repeat(100_000));
    let whole = [file_start(&header), vec![0; 4]].concat();
    let server = MockServer::start().await;
    let response = ResponseTemplate::new(200).set_body_bytes(whole);
    Mock::given(method("GET")).respond_with(response).mount(&server).await;
    assert_eq!(parse_with(without_retries(), &server).await.unwrap(), 4);
    assert_eq!(server.received_requests().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_file_that_grows_between_two_ranges_is_an_error() {
    let total = file().len();
    let grown = range(8, last()).insert_header("content-range", format!("bytes 8-{}/999", last()));
    let error = parse(range(0, 7), grown).await.unwrap_err();
    let expected = total as u64;
    let sizes = format!("its size was {expected} bytes, then 999 bytes");
    assert!(
        matches!(error, Error::Changed { .. }) && error.to_string().ends_with(&sizes),
        "{error:?}"
    );
}

#[tokio::test]
async fn errors_are_classified_by_status() {
    for (status, is_not_found, is_transient) in [
        (404, true, false),
        (410, true, false),
        (418, false, false),
        (429, false, true),
        (500, false, true),
        (501, false, false),
        (503, false, true),
    ] {
        let error = parse(ResponseTemplate::new(status), range(8, last())).await.unwrap_err();
        assert_eq!(error.is_not_found(), is_not_found, "{error:?}");
        assert_eq!(error.is_transient(), is_transient, "{error:?}");
        assert_eq!(error.kind() == ErrorKind::RateLimited, status == 429, "{error:?}");
        assert!(error.kind() != ErrorKind::Timeout && !error.has_no_weights(), "{error:?}");
        assert_eq!((error.status(), error.retry_after()), (Some(status), None), "{error:?}");
        assert!(error_chain(&error).contains(&format!("status {status}")), "{error:?}");
    }
}

#[tokio::test]
async fn redirects_are_followed_within_limits() {
    let server = server(range(0, 7), range(8, last())).await;
    let cases = [
        ("/x.safetensors", None),
        ("/loop", Some("too many redirects")),
        ("file:///etc/passwd", Some("the target is not HTTP")),
        ("http://[", Some("the target is not a URL")),
    ];
    for (target, reason) in cases {
        let redirect = ResponseTemplate::new(302).insert_header("location", target);
        let at = if target == "/loop" { "/loop" } else { "/from" };
        let mock = Mock::given(path(at)).respond_with(redirect).up_to_n_times(50);
        let mock = mock.mount_as_scoped(&server).await;
        let source: Source = format!("{}{at}", server.uri()).parse().unwrap();
        let result =
            without_retries().build().unwrap().source(source).parse_safetensors_metadata().await;
        match (result, reason) {
            (Ok(parsed), None) => assert_eq!(parsed.report().fetch.requests, 4),
            (Err(error), Some(reason)) => {
                assert!(error_chain(&error).contains(reason), "{error:?}");
            }
            (result, _) => panic!("{target}: {result:?}"),
        }
        drop(mock);
    }
}

#[tokio::test]
async fn errors_do_not_contain_signed_urls() {
    let server = MockServer::start().await;
    let to = format!("{}/signed?Signature=s3cr3t", server.uri());
    let redirect = ResponseTemplate::new(302).insert_header("location", to.as_str());
    Mock::given(path("/x.safetensors")).respond_with(redirect).mount(&server).await;
    let error_response = ResponseTemplate::new(418).insert_header("x-error-message", "no");
    Mock::given(path("/signed")).respond_with(error_response).mount(&server).await;
    let error = parse_with(without_retries(), &server).await.unwrap_err();
    assert!(error_chain(&error).contains("/signed…"), "{}", error_chain(&error));
    assert!(!format!("{} {error:?}", error_chain(&error)).contains("s3cr3t"));
}

#[tokio::test]
async fn a_closed_port_is_a_connect_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let source: Source = format!("http://{address}/x.safetensors").parse().unwrap();
    let result =
        without_retries().build().unwrap().source(source).parse_safetensors_metadata().await;
    match result.unwrap_err() {
        Error::RequestFailed { source, .. } => {
            assert_eq!(source.kind, HttpErrorKind::Connect);
            assert!(!source.to_string().contains("proxy"), "{source}");
        }
        other => panic!("{other:?}"),
    }
}
