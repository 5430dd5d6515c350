use proptest::collection::vec;
use proptest::prelude::*;
use safetensors::SafeTensors;

use super::*;

const TENSORS: &str = r#""b" : {"dtype":"U8","shape":[2], "data_offsets":[1,3], "note":[{}] },
 "a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;

fn set(key: &str, value: &str) -> MetadataEdit {
    MetadataEdit::Set { key: key.to_owned(), value: value.to_owned() }
}

fn delete(pattern: &str) -> MetadataEdit {
    MetadataEdit::Delete(pattern.to_owned())
}

fn edit(json: &str, edits: &[MetadataEdit]) -> String {
    String::from_utf8(edit_header(json.as_bytes(), edits).unwrap()).unwrap()
}

#[test]
fn only_the_metadata_changes() {
    let add = [set("t", "x")];
    let clear = [delete("*")];
    let cases = [
        // Without metadata, with `null`, and with entries before and after it.
        (format!("{{{TENSORS}}}  "), &add, format!(r#"{{"__metadata__":{{"t":"x"}},{TENSORS}}}"#)),
        ("{ }".to_owned(), &add, r#"{"__metadata__":{"t":"x"} }"#.to_owned()),
        (
            format!(r#" {{ "__metadata__" : null , {TENSORS} }}"#),
            &add,
            format!(r#" {{ "__metadata__" : {{"t":"x"}} , {TENSORS} }}"#),
        ),
        (
            format!(r#"{{{TENSORS}, "__metadata__": {{"a" : "\u0041", "b":"2"}} }}"#),
            &add,
            format!(r#"{{{TENSORS}, "__metadata__": {{"a" : "\u0041","b":"2","t":"x"}} }}"#),
        ),
        // Metadata without entries is removed, with one comma.
        (
            format!(r#"{{"__metadata__":{{"a":"1"}} , {TENSORS}}}"#),
            &clear,
            format!("{{ {TENSORS}}}"),
        ),
        (
            format!(r#"{{{TENSORS} , "__metadata__":{{"a":"1"}} }}"#),
            &clear,
            format!("{{{TENSORS}  }}"),
        ),
        (r#"{"__metadata__":{"a":"1"}}"#.to_owned(), &clear, "{}".to_owned()),
    ];
    for (json, edits, expected) in cases {
        assert_eq!(edit(&json, edits), expected, "{json}");
    }
}

#[test]
fn an_edit_that_changes_nothing_keeps_every_byte() {
    let json = format!(r#"{{"__metadata__": {{ "a" : "\u00e9" , "b":"2" }}, {TENSORS}}}"#);
    assert_eq!(edit(&json, &[set("a", "é"), delete("c*")]), json);
    // A deleted entry that is set again is a new one, at the end.
    let moved = json.replace(r#"{ "a" : "\u00e9" , "b":"2" }"#, r#"{"b":"2","a":"é"}"#);
    assert_eq!(edit(&json, &[delete("a"), set("a", "é")]), moved);
    assert_eq!(edit(r#"{"__metadata__":{}}"#, &[delete("*")]), r#"{"__metadata__":{}}"#);
    assert_eq!(edit(r#"{"__metadata__":null}"#, &[delete("*")]), r#"{"__metadata__":null}"#);
}

#[test]
fn deleting_all_keeps_the_format() {
    let json = r#"{"__metadata__":{"a":"1","format":"pt","b":"2"}}"#;
    assert_eq!(edit(json, &[MetadataEdit::DeleteAll]), r#"{"__metadata__":{"format":"pt"}}"#);
    assert_eq!(edit(json, &[MetadataEdit::DeleteAll, delete("format")]), "{}");
}

#[test]
fn patterns_match_whole_keys() {
    let cases = [
        ("ss_*", "ss_tag_frequency", true),
        ("ss_*", "xss_", false),
        ("*", "", true),
        ("", "a", false),
        ("a*b*c", "a--b--b-c", true),
        ("a*b*c", "a--c--b", false),
        ("?", "é", true),
        ("?b", "éb", true),
        ("??", "é", false),
        ("*?", "", false),
        ("*a?", "aaé", true),
        ("[a]", "a", false),
    ];
    for (pattern, text, expected) in cases {
        assert_eq!(matches_glob(pattern, text), expected, "{pattern} {text}");
    }
    let (pattern, text) = ("*a".repeat(1_000) + "b", "a".repeat(10_000));
    assert!(!matches_glob(&pattern, &text));
}

#[test]
fn limits_are_errors() {
    let long = "x".repeat(MAX_METADATA_VALUE + 1);
    for edit in [set(&long, ""), set("k", &long)] {
        let error = edit_header(b"{}", &[edit]).unwrap_err();
        assert!(matches!(error, EditError::TooLong { bytes: 1_000_001, .. }), "{error}");
    }
    assert!(edit_header(b"{}", &[set("k", &long[1..])]).is_ok());
    let many: Vec<_> = (0..101).map(|key| set(&key.to_string(), &long[1..])).collect();
    let error = edit_header(b"{}", &many).unwrap_err();
    assert!(error.to_string().contains("exceeds the limit of 100000000 bytes"), "{error}");
    for reserve in [100_000_000, usize::MAX] {
        assert!(padded_header(b"{}".to_vec(), reserve).is_err());
    }
    assert_eq!(padded_header(b"{}".to_vec(), 99_999_998).unwrap().len(), 100_000_000);
    assert!(edit_header(b"{\"x\":1}", &[]).is_err());
}

/// A hundred thousand keys are edited in time that grows with their number.
#[test]
fn many_keys_are_edited() {
    let edits: Vec<_> = (0..100_000).map(|key| set(&format!("key {key}"), "\n")).collect();
    let json = edit_header(b"{}", &edits).unwrap();
    assert_eq!(edit_header(&json, &edits).unwrap(), json);
    assert_eq!(edit_header(&json, &[delete("*0*"), delete("key *")]).unwrap(), b"{}");
    let more = edit_header(&json, &[set("another", "")]).unwrap_err();
    assert!(more.to_string().contains("more than 100000 entries"), "{more}");
}

/// The file of a header and its data.
fn file(json: &[u8]) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes(), json, b"xyz"].concat()
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-c]{1,2}", 1 => Just("format".to_owned()), 1 => ".{0,4}"]
}

fn random_edit() -> impl Strategy<Value = MetadataEdit> {
    prop_oneof![
        4 => (key(), ".{0,20}").prop_map(|(key, value)| set(&key, &value)),
        2 => key().prop_map(|key| delete(&key)),
        1 => "[a-c?*]{1,3}".prop_map(|pattern| delete(&pattern)),
        1 => Just(MetadataEdit::DeleteAll),
    ]
}

/// Applies an edit to a list of entries.
fn apply(entries: &mut Vec<(String, String)>, edit: &MetadataEdit) {
    match edit {
        MetadataEdit::Set { key, value } => match entries.iter_mut().find(|(old, _)| old == key) {
            Some((_, old)) => old.clone_from(value),
            None => entries.push((key.clone(), value.clone())),
        },
        MetadataEdit::Delete(pattern) => entries.retain(|(key, _)| !matches_glob(pattern, key)),
        MetadataEdit::DeleteAll => entries.retain(|(key, _)| key == "format"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The edited header contains the edits, and the `safetensors` crate reads the same tensors and metadata.
    #[test]
    fn reading_back_returns_the_edits(
        first in vec((key(), ".{0,20}"), 0..5),
        edits in vec(random_edit(), 0..12),
        place in 0..3_u8,
        reserve in 0..20_usize,
    ) {
        let mut expected = Vec::new();
        for (key, value) in &first {
            apply(&mut expected, &set(key, value));
        }
        let sets: Vec<_> = expected.iter().map(|(key, value)| set(key, value)).collect();
        let metadata = edit("{}", &sets);
        let metadata = metadata[1..metadata.len() - 1].to_owned();
        let json = match (metadata.is_empty(), place) {
            (true, _) => format!("{{{TENSORS}}}"),
            (_, 0) => format!("{{{metadata} ,\n{TENSORS}}}"),
            (_, 1) => format!("{{{TENSORS},{metadata}}}"),
            _ => format!(" {{ {}\n}}  ", TENSORS.replacen("},\n", &format!("}},{metadata},\n"), 1)),
        };
        for edit in &edits {
            apply(&mut expected, edit);
        }
        let edited = padded_header(edit_header(json.as_bytes(), &edits).unwrap(), reserve).unwrap();
        prop_assert!(edited.len().is_multiple_of(8) && edited.ends_with(&vec![b' '; reserve]));
        let text = std::str::from_utf8(&edited).unwrap();
        let found = MetadataText::find(text.trim_end()).unwrap();
        let entries = found.entries.iter().map(|entry| (entry.key.to_string(), entry.value.to_string()));
        prop_assert_eq!(entries.collect::<Vec<_>>(), expected.clone());
        for tensor in TENSORS.split(",\n ") {
            prop_assert!(text.contains(tensor));
        }
        let (before, after) = (file(json.as_bytes()), file(&edited));
        let (_, read) = SafeTensors::read_metadata(&after).unwrap();
        let read_metadata = read.metadata().clone().unwrap_or_default();
        prop_assert_eq!(read_metadata, expected.into_iter().collect());
        let [before, after] = [&before, &after].map(|file| SafeTensors::deserialize(file).unwrap());
        for (name, tensor) in before.tensors() {
            prop_assert_eq!(after.tensor(&name).unwrap().data(), tensor.data());
        }
    }
}
