//! Invalid files: each is a typed error with the name of the file and, if known, of the tensor.

mod refused;

use hf_meta::Error;
use hf_meta_format::formats::safetensors::IndexErrorKind;

use crate::hub::{File, LocalHub, Repo};
use crate::support::{self, error_chain, file_with_header};

/// Returns a file that declares a header of the given length.
fn starting_with(length: u64, size: u64) -> File {
    File::padded(length.to_le_bytes().to_vec(), size)
}

/// Returns a header with a tensor `w` of this dtype and shape, in this span.
fn entry(dtype: &str, shape: &str, begin: u64, end: u64) -> String {
    format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}}}"#)
}

pub(crate) async fn error_of(file: File) -> Error {
    let hub = LocalHub::start([Repo::new("org/bad").file("model.safetensors", file)]).unwrap();
    support::parse(&hub, "org/bad").await.unwrap_err()
}

const PREFIX: &str = "`org/bad/model.safetensors` is not a valid safetensors file: ";

/// Invalid safetensors files with their errors.
pub(crate) fn bad_files() -> Vec<(File, &'static str)> {
    let max = u64::MAX;
    let page = "<!DOCTYPE html><html><body>Please log in</body></html>";
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    let two = r#"{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"w":{"dtype":"U8","shape":[2],"data_offsets":["#;
    vec![
        (File::from_bytes(""), "the file has only 0 bytes; a safetensors file has at least 8"),
        (
            File::from_bytes("1234567"),
            "the file has only 7 bytes; a safetensors file has at least 8",
        ),
        (file_with_header("", 0), "the header is empty"),
        (starting_with(7, 100), "the header starts with byte 0x00 instead of `{`"),
        (
            starting_with(100_000_001, 1 << 40),
            "a header of 100000001 bytes exceeds the limit of 100000000 bytes",
        ),
        (
            starting_with(max, 1 << 40),
            "a header of 18446744073709551615 bytes exceeds the limit of 100000000 bytes",
        ),
        (
            starting_with(1_000, 1_007),
            "a header of 1000 bytes does not fit in a file of 1007 bytes",
        ),
        (
            File::from_bytes(pointer),
            "the file looks like a Git LFS pointer in place of its content (`git lfs pull` fetches it)",
        ),
        (File::from_bytes(page), "the file looks like an HTML or XML page"),
        (
            file_with_header("{nope}", 0),
            "the header is malformed: expected a string key, found `nope` at byte 1",
        ),
        (
            File::from_bytes([&6_u64.to_le_bytes()[..], b"{\"\xff\":1"].concat()),
            "the header is not valid UTF-8 at byte 2",
        ),
        (file_with_header("[1, 2]", 0), "the header starts with byte 0x5b instead of `{`"),
        (
            file_with_header("{}\0\0\0\0", 0),
            "the header is padded with NUL bytes from byte 2; it must be padded with spaces",
        ),
        (
            file_with_header(
                &[
                    entry("U8", "[1]", 0, 1).trim_end_matches("}}"),
                    "},",
                    &entry("U8", "[1]", 1, 2)[1..],
                ]
                .concat(),
                2,
            ),
            "tensor `w` appears twice in the header",
        ),
        (
            file_with_header(&format!("{two}5,7]}}}}"), 7),
            "the data has a gap from byte 4 to byte 5, before tensor `w`",
        ),
        (
            file_with_header(&format!("{two}3,5]}}}}"), 5),
            "tensor `w` begins at byte 3 of the data, inside a tensor that ends at byte 4",
        ),
        (
            file_with_header(&entry("U8", "[9]", 0, 9), 8),
            "according to its header, the file ends with tensor `w` at byte 70, but it has 69 bytes",
        ),
        (
            file_with_header(&entry("U8", "[9]", 0, 9), 10),
            "according to its header, the file ends with tensor `w` at byte 70, but it has 71 bytes",
        ),
        (
            file_with_header(&entry("F32", "[3]", 0, 8), 8),
            "tensor `w` has 3 elements of F32, which is 12 bytes, but spans 8 bytes",
        ),
        (
            file_with_header(&entry("F32", "[9223372036854775808,2]", 0, 8), 8),
            "the size of tensor `w` overflows 64 bits",
        ),
        (
            file_with_header(&entry("F32", "[9223372036854775808]", 0, 8), 8),
            "the size of tensor `w` overflows 64 bits",
        ),
        (
            file_with_header(r#"{"__metadata__":{"format":1}}"#, 0),
            "the header is malformed: expected a string, found `1` at byte 26",
        ),
    ]
}

#[tokio::test]
async fn invalid_headers_are_errors() {
    for (file, message) in bad_files() {
        let error = error_of(file).await;
        assert_eq!(error_chain(&error), format!("{PREFIX}{message}"));
        assert!(error.is_malformed() && matches!(error, Error::InvalidHeader { .. }), "{error:?}");
    }
}

/// Indexes that are invalid or disagree with two shards with `x` and `y`, and their errors.
pub(crate) fn bad_indexes() -> Vec<(File, &'static str)> {
    let conflict = "{\n\"weight_map\": {\n<<<<<<< HEAD\n\"x\": \"a.safetensors\"\n=======\n}}";
    let naming = |shard: &str| support::index(&[("x", shard)]);
    vec![
        (File::from_bytes(conflict), "the index contains an unresolved merge conflict at byte 18"),
        (File::from_bytes("{}"), "the index has no `weight_map`"),
        (File::from_bytes("<html>"), "the file looks like an HTML or XML page"),
        (
            naming("../../../other/resolve/main/a.safetensors"),
            "the index lists tensor `x` in a shard with an unsafe name: \
             `../../../other/resolve/main/a.safetensors` contains an empty, `.` or `..` segment",
        ),
        (
            naming("/etc/a.safetensors"),
            "the index lists tensor `x` in a shard with an unsafe name: `/etc/a.safetensors` is absolute",
        ),
        (
            naming("https://example.org/a.safetensors"),
            "the index lists tensor `x` in a shard with an unsafe name: \
             `https://example.org/a.safetensors` contains a colon, like a URL or a drive letter",
        ),
        (
            naming(r"..\\a.safetensors"),
            "the index lists tensor `x` in a shard with an unsafe name: \
             `..\\a.safetensors` contains a backslash",
        ),
        (
            naming("pytorch_model-00001-of-00002.bin"),
            "the index lists tensor `x` in `pytorch_model-00001-of-00002.bin`, which is not a `.safetensors` file",
        ),
        (
            support::index(&[("x", "a.safetensors"), ("z", "b.safetensors")]),
            "the index lists tensor `z` in `b.safetensors`, but no shard contains it",
        ),
    ]
}

#[tokio::test]
async fn invalid_indexes_are_errors() {
    for (index, message) in bad_indexes() {
        let repo = support::sharded("org/bad").file("model.safetensors.index.json", index);
        let hub = LocalHub::start([repo]).unwrap();
        let error = support::parse(&hub, "org/bad").await.unwrap_err();
        let prefix = "`org/bad/model.safetensors.index.json` is not a valid shard index: ";
        assert_eq!(error_chain(&error), format!("{prefix}{message}"));
        assert!(error.is_malformed() && matches!(error, Error::InvalidIndex { .. }), "{error:?}");
        let shards = hub.log().iter().filter(|entry| entry.path.contains("a.safetensors")).count();
        let disagrees = message.contains("no shard contains it");
        assert_eq!(shards > 0, disagrees, "a bad index is refused before any shard is asked for");
    }
}

#[tokio::test]
async fn shards_that_disagree_are_an_error() {
    let repo = support::sharded("org/bad").file("b.safetensors", support::weights(&["x", "y"]));
    let hub = LocalHub::start([repo]).unwrap();
    let error = support::parse(&hub, "org/bad").await.unwrap_err();
    let Error::InvalidIndex { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.kind, IndexErrorKind::TensorInTwoShards);
    assert_eq!(source.tensor.as_deref(), Some("x"));
}

#[tokio::test]
async fn a_malformed_shard_is_named() {
    let repo = support::sharded("org/bad").file("b.safetensors", File::from_bytes(""));
    let hub = LocalHub::start([repo]).unwrap();
    let error = support::parse(&hub, "org/bad").await.unwrap_err();
    assert!(error_chain(&error).starts_with("`org/bad/b.safetensors` is not a valid"), "{error}");
}

#[tokio::test]
async fn an_index_with_windows_line_endings_is_valid() {
    let index = "{\r\n  \"weight_map\": {\r\n\"x\": \"a.safetensors\",\r\n\"y\": \"b.safetensors\"}\r\n}\r\n";
    let repo =
        support::sharded("org/good").file("model.safetensors.index.json", File::from_bytes(index));
    let hub = LocalHub::start([repo]).unwrap();
    assert_eq!(support::parse(&hub, "org/good").await.unwrap().parameter_count().total(), 2);
}
