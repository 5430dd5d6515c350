use super::*;
use crate::formats::safetensors::DetectedFormat;
use crate::formats::{PathError, clip};

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
    assert_eq!(index.tensor_at(2).0, "m");
    assert_eq!(serde_json::to_string(&index).unwrap(), json);
}

#[test]
fn line_endings_of_windows_are_white_space() {
    let json = "{\r\n  \"metadata\": {\"total_size\": 8},\r\n  \"weight_map\": {\"w\": \"a.safetensors\"}\r\n}\r\n";
    assert_eq!(parse(json).unwrap().total_size(), Some(8));
}

#[test]
fn metadata_has_scalars_only() {
    let json = r#"{"metadata":{"a":true,"b":-1,"c":2,"d":0.5,"e":"x","f":null,"g":[1],"h":{}},
        "weight_map":{"w":"a.safetensors"}}"#;
    let index = parse(json).unwrap();
    let metadata = serde_json::to_string(index.metadata().unwrap()).unwrap();
    assert_eq!(metadata, r#"{"a":true,"b":-1,"c":2,"d":0.5,"e":"x","f":null}"#);
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

/// Found by fuzzing: floats are serialized exactly, to the last bit.
#[test]
fn floats_survive_the_round_trip() {
    let json = r#"{"metadata":{"a":0.446744073709551535},"weight_map":{"w":"a.safetensors"}}"#;
    let index = parse(json).unwrap();
    assert_eq!(parse(serde_json::to_vec(&index).unwrap()), Ok(index));
}

#[test]
fn unsafe_shard_names_are_refused() {
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
        assert!(
            matches!(&error, IndexError::UnsafeShardName { tensor, source: PathError { path, .. } }
                if tensor == "w" && path == shard),
            "{shard}: {error}"
        );
    }
}

#[test]
fn indexes_that_break_a_rule_are_errors() {
    let tensor = || "w".to_owned();
    let conflict =
        "{\n  \"weight_map\": {\n<<<<<<< HEAD\n\"w\": \"a.safetensors\"\n=======\n>>>>>>> x\n}}";
    let many: Vec<_> = (0..=10_000).map(|n| format!(r#""{n}":"{n}.safetensors""#)).collect();
    let cases = [
        (conflict.to_owned(), IndexError::MergeConflict { line: 3 }),
        ("{}".to_owned(), IndexError::NoWeightMap),
        (r#"{"metadata":{"total_size":1}}"#.to_owned(), IndexError::NoWeightMap),
        (r#"{"weight_map":{}}"#.to_owned(), IndexError::EmptyWeightMap),
        (
            r#"{"weight_map":{"w":"a.safetensors","v":"a.safetensors","w":"b.safetensors"}}"#
                .to_owned(),
            IndexError::DuplicateTensor { tensor: tensor() },
        ),
        (
            naming("pytorch_model-00001-of-00002.bin"),
            IndexError::NotSafetensors {
                tensor: tensor(),
                shard: "pytorch_model-00001-of-00002.bin".to_owned(),
            },
        ),
        (
            format!(r#"{{"weight_map":{{{}}}}}"#, many.join(",")),
            IndexError::TooManyShards { limit: 10_000 },
        ),
        (
            "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n".to_owned(),
            IndexError::NotAnIndex { detected: DetectedFormat::GitLfsPointer },
        ),
        (
            "<!DOCTYPE html><html>".to_owned(),
            IndexError::NotAnIndex { detected: DetectedFormat::Html },
        ),
    ];
    for (json, error) in cases {
        assert_eq!(parse(&json), Err(error), "{}", clip(&json));
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
        assert!(matches!(parse(&json), Err(IndexError::InvalidJson { .. })), "{}", clip(&json));
    }
}
