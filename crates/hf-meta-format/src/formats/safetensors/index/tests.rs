use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::formats::clip;
use crate::formats::safetensors::{DetectedFormat, IndexErrorKind};

fn parse(json: impl AsRef<[u8]>) -> Result<SafetensorsIndexJson, IndexError> {
    SafetensorsIndexJson::from_json(json.as_ref())
}

fn naming(shard: &str) -> String {
    format!(r#"{{"weight_map":{{"w":{}}}}}"#, serde_json::to_string(shard).unwrap())
}

#[test]
fn shards_are_listed_once_and_sorted() {
    let json = r#"{"dtype":"BF16","weight_map":{"z":"b.safetensors","a":"a.safetensors","m":"b.safetensors"}}"#;
    let index = parse(json).unwrap();
    assert_eq!(
        index.shards().iter().map(RepoPath::as_str).collect::<Vec<_>>(),
        ["a.safetensors", "b.safetensors"]
    );
    assert_eq!(index.shard("m").unwrap().as_str(), "b.safetensors");
    assert_eq!(index.shard("x"), None);
    assert_eq!(index.names_per_shard(), [(1, 1), (2, 2)]);
    assert_eq!(index.weight_map().nth(2).unwrap().0, "m");
    assert_eq!(serde_json::to_string(&index).unwrap(), json);
}

#[test]
fn crlf_is_whitespace() {
    let json = "{\r\n  \"metadata\": {\"total_size\": 8},\r\n  \"weight_map\": {\"w\": \"a.safetensors\"}\r\n}\r\n";
    assert_eq!(parse(json).unwrap().total_size(), Some(8));
}

#[test]
fn metadata_has_scalars_only() {
    let json = r#"{"metadata":{"a":true,"b":-1,"c":2,"d":0.5,"e":"x","f":null,"g":[1],"h":{}},
        "weight_map":{"w":"a.safetensors"}}"#;
    let index = parse(json).unwrap();
    let written = serde_json::to_string(&index).unwrap();
    let metadata = r#"{"a":true,"b":-1,"c":2,"d":0.5,"e":"x","f":null}"#;
    assert_eq!(
        written,
        format!(r#"{{"metadata":{metadata},"weight_map":{{"w":"a.safetensors"}}}}"#)
    );
    assert_eq!(index.metadata().unwrap()["e"], "\"x\"");
}

#[test]
fn totals_are_read_in_every_spelling() {
    let cases = [
        ("352494542848", Some(352_494_542_848)),
        ("\"352494542848\"", Some(352_494_542_848)),
        ("3.52494542848e11", Some(352_494_542_848)),
        ("\"8.0\"", Some(8)),
        ("18446744073709551615", Some(u64::MAX)),
        // Found by fuzzing: a float parser that is wrong in the last bit reads other integers.
        ("8844082180512063.0", Some(8_844_082_180_512_063)),
        ("3210266188636.000000", Some(3_210_266_188_636)),
        ("1e300", None),
        ("0.5", None),
        ("-1", None),
        ("null", None),
        ("{\"a\":[[[1]]]}", None),
    ];
    for (text, total) in cases {
        let json = format!(
            r#"{{"metadata":{{"total_size":{text}}},"weight_map":{{"w":"a.safetensors"}}}}"#
        );
        assert_eq!(parse(&json).unwrap().total_size(), total, "{text}");
    }
    assert_eq!(
        parse(r#"{"metadata":null,"weight_map":{"w":"a.safetensors"}}"#).unwrap().metadata(),
        None
    );
}

/// Found by fuzzing: numbers are serialized exactly, to the last bit.
#[test]
fn numbers_are_kept_as_written() {
    for number in ["0.446744073709551535", "1e999", "184467440737095516160", "-0.0"] {
        let json =
            format!(r#"{{"metadata":{{"a":{number}}},"weight_map":{{"w":"a.safetensors"}}}}"#);
        let index = parse(&json).unwrap();
        assert_eq!(serde_json::to_string(&index).unwrap(), json);
    }
}

#[test]
fn unsafe_shard_names_are_rejected() {
    let unsafe_names = [
        "../../other/resolve/main/model.safetensors",
        "/etc/model.safetensors",
        "https://example.org/model.safetensors",
        "..\\model.safetensors",
        "a/./model.safetensors",
        "",
    ];
    for shard in unsafe_names {
        let error = parse(naming(shard)).unwrap_err();
        assert_eq!(error.tensor.as_deref(), Some("w"));
        assert_eq!(error.kind, IndexErrorKind::UnsafeShardName);
        let reason = shard.parse::<RepoPath>().unwrap_err();
        let message = "the index lists tensor `w` in a shard with an unsafe name";
        assert_eq!(error.message, format!("{message}: {reason}"));
    }
}

#[test]
fn invalid_indexes_are_errors() {
    use IndexErrorKind::{DuplicateTensor, EmptyWeightMap, MergeConflict, NoWeightMap};
    use IndexErrorKind::{TooManyShards, UnexpectedExtension, WrongFormat};
    let conflict =
        "{\n  \"weight_map\": {\n<<<<<<< HEAD\n\"w\": \"a.safetensors\"\n=======\n>>>>>>> x\n}}";
    let twice = r#"{"weight_map":{"w":"a.safetensors","v":"a.safetensors","w":"b.safetensors"}}"#;
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    let many: Vec<_> = (0..=10_000).map(|n| format!(r#""{n}":"{n}.safetensors""#)).collect();
    let many = format!(r#"{{"weight_map":{{{}}}}}"#, many.join(","));
    let pickle = naming("pytorch_model-00001-of-00002.bin");
    let cases = [
        (
            conflict,
            MergeConflict,
            None,
            "the index contains an unresolved merge conflict at byte 20",
        ),
        ("{}", NoWeightMap, None, "the index has no `weight_map`"),
        (r#"{"metadata":{"total_size":1}}"#, NoWeightMap, None, "the index has no `weight_map`"),
        (r#"{"weight_map":{}}"#, EmptyWeightMap, None, "the `weight_map` of the index is empty"),
        (twice, DuplicateTensor, Some("w"), "tensor `w` appears twice in the index"),
        (
            &pickle,
            UnexpectedExtension,
            Some("w"),
            "the index lists tensor `w` in `pytorch_model-00001-of-00002.bin`, which is not a `.safetensors` file",
        ),
        (&many, TooManyShards, None, "the index lists more than 10000 shards"),
        (
            pointer,
            WrongFormat(DetectedFormat::GitLfsPointer),
            None,
            "the file looks like a Git LFS pointer in place of its content (`git lfs pull` fetches it)",
        ),
        (
            "<!DOCTYPE html><html>",
            WrongFormat(DetectedFormat::Html),
            None,
            "the file looks like an HTML or XML page",
        ),
    ];
    for (json, kind, tensor, message) in cases {
        let (tensor, message) = (tensor.map(str::to_owned), message.to_owned());
        assert_eq!(parse(json), Err(IndexError { kind, tensor, message }), "{}", clip(json));
    }
}

#[test]
fn invalid_json_is_an_error() {
    let many: Vec<_> = (0..=1_000).map(|n| format!("\"{n}\":0")).collect();
    let cases = [
        String::new(),
        "[]".to_owned(),
        "{".to_owned(),
        r#"{"weight_map":{"w":1}}"#.to_owned(),
        r#"{"weight_map":null}"#.to_owned(),
        r#"{"weight_map":{},"weight_map":{}}"#.to_owned(),
        r#"{"metadata":{},"metadata":{},"weight_map":{"w":"a.safetensors"}}"#.to_owned(),
        r#"{"metadata":{"total_size":1,"total_size":2},"weight_map":{"w":"a.safetensors"}}"#
            .to_owned(),
        r#"{"dtype":"a","dtype":"b","weight_map":{"w":"a.safetensors"}}"#.to_owned(),
        r#"{"metadata":[],"weight_map":{"w":"a.safetensors"}}"#.to_owned(),
        format!(r#"{{"metadata":{{{}}},"weight_map":{{"w":"a.safetensors"}}}}"#, many.join(",")),
        format!(r#"{{"x":{}"#, "[".repeat(1_000_000)),
        format!("{} x", naming("a.safetensors")),
        "{\"weight_map\":{\"\u{0}\":\"a.safetensors\"}}".to_owned(),
    ];
    for json in cases {
        let kind = parse(&json).unwrap_err().kind;
        assert_eq!(kind, IndexErrorKind::InvalidJson, "{}", clip(&json));
    }
}

/// Removes the parser's message from a result, because the two parsers word them differently, and find them in a
/// different order: a merge conflict is invalid JSON, too.
fn without_message<T>(verdict: Result<T, IndexError>) -> Result<T, IndexError> {
    verdict.map_err(|error| match error.kind {
        IndexErrorKind::InvalidJson | IndexErrorKind::MergeConflict => {
            IndexError::malformed_index("")
        }
        _ => error,
    })
}

/// Checks that the result does not depend on the parser, and that the first shard is known before the rest arrives.
fn check(json: &[u8]) {
    let whole = SafetensorsIndexJson::from_json(json);
    assert_eq!(without_message(whole.clone()), without_message(oracle::from_json(json)));
    if let Ok(index) = whole {
        let (_, first) = index.weight_map().next().unwrap();
        let starts = (0..=json.len()).filter_map(|end| first_shard(&json[..end]));
        let starts: Vec<_> = starts.collect();
        assert!(!starts.is_empty() && starts.iter().all(|start| start == first));
    }
}

fn first_shard(start: &[u8]) -> Option<RepoPath> {
    SafetensorsIndexJson::first_shard(start, EXTENSION)
}

const INDEXES: &[&str] = &[
    "",
    "{",
    "{}",
    "[]",
    " \u{c} <html>",
    "\u{c}{}",
    "version https://git-lfs.github.com/spec/v1",
    "vers",
    "PK\u{3}\u{4}",
    "GGUF",
    "null",
    r#"{"weight_map":{}}"#,
    r#"{"weight_map":{"w":"a.safetensors"}}"#,
    r#"{"weight_map":{"w":"a.safetensors"}} {"#,
    r#"{"weight_map":{"w":"a.safetensors"},}"#,
    r#"{"weight_map":{"w":"a.safetensors",}}"#,
    r#"{"weight_map":{"w":"../a.safetensors"}"#,
    r#"{"weight_map":{"w":"a.bin"}"#,
    r#"{"weight_map":{"w":"a.safetensors","w":"a.safetensors"}}"#,
    r#"{"weight_map":{"w":"a.safetensors","v":"b.safetensors","w":"b.safetensors"}}"#,
    r#"{"weight_map":{"\u00df\ud83d\ude00\"\\":"\u0061.safetensors","ß😀":"a.safetensors"}}"#,
    r#"{"weight_map":{"\ud83d":"a.safetensors"}}"#,
    r#"{"weight_map":{"\x":"a.safetensors"}}"#,
    r#"{"w\u0065ight_map":{"w":"a.safetensors"},"weight_map":{}}"#,
    r#"{"metadata":null,"metadata":{},"weight_map":{"w":"a.safetensors"}}"#,
    r#"{"dtype":null,"dtype":1,"dtype":"a","weight_map":{"w":"a.safetensors"}}"#,
    r#"{"metadata":{"a":[1],"a":2,"b":1.5e3},"x":-0.5e-3,"y":1e999,"weight_map":{"w":"a.safetensors"}}"#,
    "{\"metadata\":[\n1],\n\"weight_map\":{}}",
    r#"{"metadata":{"a":1e999},"weight_map":{"w":"a.safetensors"}}"#,
    r#"{"x":[{"a":[1,-2.5,"]"]},true,false,null],"weight_map":{"w":"a.safetensors"},"z":7}"#,
    "{\r\n\t\"weight_map\" : {\n \"w\" :\"a.safetensors\" , \"v\"\n:\n\"b/c.safetensors\"\n}\n}\n",
    "{\n\"weight_map\": {\n<<<<<<< HEAD\n\"w\": \"a.safetensors\"\n",
    "{\n\"weight_map\" 1,\n<<<<<< \n<<<<<<<\n <<<<<<< \n<<<<<<< HEAD",
    "{\"weight_map\": <<<<<<< HEAD",
    "{\"w\":\"\n<<<<<<< HEAD\n",
];

#[test]
fn both_parsers_give_the_same_result() {
    for json in INDEXES {
        for end in 0..=json.len() {
            check(&json.as_bytes()[..end]);
        }
    }
}

#[test]
fn merge_conflicts_are_found_in_every_part() {
    let conflict = "<<<<<<< HEAD\n=======\n>>>>>>> x\n";
    let cases = [
        format!("{{\"metadata\": {{\n{conflict}\"total_size\": 1}}}}"),
        format!("{{\"metadata\": {{\n\"total_size\": 1\n{conflict}}}}}"),
        format!("{{\"x\": [{{\n\"y\": 1,\n{conflict}}}]}}"),
        format!("{{\n{conflict}\"weight_map\": {{}}}}"),
        format!("{{\"weight_map\": {{\n\"w\": \"a.safetensors\",\n{conflict}}}}}"),
        format!("{{\"weight_map\": {{\n\"w\": \"a.safetensors\"}}\n{conflict}}}"),
        format!("{{\"weight_map\": {{\n\"w\": \"a.safetensors\"}}}}\n{conflict}"),
    ];
    for json in cases {
        let at = json.find(conflict).unwrap();
        let message = format!("the index contains an unresolved merge conflict at byte {at}");
        let error = parse(&json).unwrap_err();
        assert_eq!(error, IndexError::new(IndexErrorKind::MergeConflict, &*message), "{json}");
    }
}

/// Generates realistic indexes with up to two defects.
fn index() -> impl Strategy<Value = Vec<u8>> {
    let damage: Vec<&[u8]> = vec![
        b"",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b" ",
        b"\n",
        b"\"",
        b"\\",
        b"\\u0041",
        b"\\ud83d",
        b"0",
        b"-1",
        b"1e5",
        b"\0",
        b"\x1f",
        b"\x7f",
        b"\xff",
        b"\xc3",
        b"\xc3\x9f",
        b"null",
        b"\n<<<<<<< ",
        b"<",
        b"version ",
        b"\"weight_map\"",
        b"\"metadata\"",
        b"\"dtype\"",
        b"\"a\":1",
        b"..",
        b".bin",
    ];
    let damage = vec((any::<Index>(), 0_usize..4, select(damage)), 0..3);
    let tensor = (0_u8..9, select(vec!["a", "b", "c/d", "c/e"]))
        .prop_map(|(name, shard)| format!(r#""h.{name}": "{shard}.safetensors""#));
    let weight_map = vec(tensor, 0..6)
        .prop_map(|tensors| format!("\"weight_map\": {{\n  {}\n}}", tensors.join(",\n  ")));
    let other = select(vec![
        r#""metadata": {"total_size": 1.5e9, "total_parameters": "7", "x": {"y": [1]}}"#.to_owned(),
        r#""metadata":null"#.to_owned(),
        r#""dtype":"BF16""#.to_owned(),
        r#""more":[{"a":[]},-1.25E+2,"\"]"]"#.to_owned(),
    ]);
    let entries = vec(prop_oneof![weight_map, other], 0..5);
    (entries, damage).prop_map(|(entries, damage)| {
        let mut json = format!("{{{}}}", entries.join(",\n")).into_bytes();
        for (at, length, chunk) in damage {
            let at = at.index(json.len());
            let end = json.len().min(at + length);
            json.splice(at..end, chunk.iter().copied());
            json.push(b'\n');
        }
        json
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn both_parsers_agree_about_any_index(json in index()) {
        check(&json);
    }
}

#[test]
fn the_first_shard_is_known_before_the_rest_of_the_index() {
    let json = r#"{"metadata":{"x":1},"weight_map": {"v": "b.safetensors", "w": "a.safetensors"}}"#;
    let end = json.find(", \"w\"").unwrap();
    for at in 0..=json.len() {
        let found = first_shard(&json.as_bytes()[..at]);
        assert_eq!(
            found.map(|shard| shard.to_string()),
            (at >= end).then(|| "b.safetensors".to_owned())
        );
    }
    for other in
        ["", "<html>", r#"{"weight_map":{"v":"../a.safetensors""#, r#"{"weight_map":{"v":"a.bin""#]
    {
        assert_eq!(first_shard(other.as_bytes()), None, "{other}");
    }
    let of_pytorch = br#"{"weight_map":{"v":"a.bin""#;
    assert!(SafetensorsIndexJson::first_shard(of_pytorch, ".bin").is_some());
}

#[test]
fn errors_have_an_offset() {
    let cases = [
        ("", "unexpected end at byte 0"),
        ("[]", "expected an index object with a `weight_map` at byte 0"),
        ("{\n  7", "expected a string key at byte 4"),
        ("{\n\n\"weight_map\": {\"w\", 1}", "expected `:` at byte 21"),
        ("{\"weight_map\":[]}", "expected a `weight_map` object at byte 14"),
        ("{\"weight_map\":{\"w\":1}}", "expected a shard name, a string at byte 19"),
        ("{\"weight_map\":{\"w\":\"a.safetensors\"\n\"v\"", "expected `,` or `}` at byte 35"),
        ("{\"weight_map\":{\"w\":\"a.safetensors\"\n", "unexpected end at byte 35"),
        ("{} x", "expected nothing more at byte 3"),
        ("{\"dtype\":\"a\",\"dtype\"", "unexpected end at byte 20"),
        ("{\"dtype\":\"a\",\"dtype\":", "`dtype` appears twice at byte 21"),
        (
            "{\n\"metadata\": {\n \"a\": 1,\n  \"a\": 2}}",
            "a key in `metadata` appears twice at byte 33",
        ),
        ("{\n\"metadata\": {\"a\" 1}}", "expected `:` at byte 19"),
        ("{\"metadata\":{\"a\":11e}}", "invalid number at byte 20"),
        ("{\"weight_map\":{\"\\x\":", "invalid escape at byte 15"),
    ];
    for (json, message) in cases {
        assert_eq!(parse(json), Err(IndexError::malformed_index(message)), "{json}");
    }
    let verdict = parse("<!DOC");
    assert_eq!(verdict.unwrap_err().kind, IndexErrorKind::WrongFormat(DetectedFormat::Html));
}
