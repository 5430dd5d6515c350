use super::*;

fn parse(json: impl AsRef<[u8]>) -> Result<SafetensorsFileHeader, HeaderError> {
    SafetensorsFileHeader::from_json(json.as_ref())
}

/// Returns a header of `U8` tensors with these names and offsets.
fn spans(tensors: &[(&str, u64, u64)]) -> String {
    let entry = |(name, begin, end): &(&str, u64, u64)| {
        format!(
            r#""{name}":{{"dtype":"U8","shape":[{}],"data_offsets":[{begin},{end}]}}"#,
            end - begin
        )
    };
    format!("{{{}}}", tensors.iter().map(entry).collect::<Vec<_>>().join(","))
}

#[test]
fn file_order_is_preserved() {
    let header = parse(spans(&[("z", 4, 6), ("a", 0, 4), ("m", 6, 7)])).unwrap();
    assert_eq!(header.tensors().names().collect::<Vec<_>>(), ["z", "a", "m"]);
    assert_eq!(header.tensors().get("a").unwrap().data_offsets, (0, 4));
    assert_eq!(header.tensors().get("b"), None);
    assert_eq!(header.data_length(), 7);
}

#[test]
fn serializes_to_the_json_it_came_from() {
    let json =
        r#"{"__metadata__":{"format":"pt"},"w":{"dtype":"F3","shape":[2,0],"data_offsets":[0,0]}}"#;
    assert_eq!(serde_json::to_string(&parse(json).unwrap()).unwrap(), json);
}

#[test]
fn unusual_headers_are_valid() {
    let cases = [
        "{}",
        "{}        ",
        r#"{"__metadata__":null}"#,
        r#"{"__metadata__":{"format":"pt"}}"#,
        r#"{"s":{"dtype":"F16","shape":[],"data_offsets":[0,2]}}"#,
        r#"{"e":{"dtype":"F16","shape":[0,9],"data_offsets":[0,0]},"f":{"dtype":"F16","shape":[0],"data_offsets":[0,0]}}"#,
        r#"{"x":{"dtype":"NEW3","shape":[16],"data_offsets":[0,2]}}"#,
        r#"{"x":{"dtype":"F4","shape":[6],"data_offsets":[0,3],"extra":[{}]}}"#,
    ];
    for json in cases {
        assert!(parse(json).is_ok(), "{json}: {:?}", parse(json));
    }
}

#[test]
fn the_declared_total_is_not_checked() {
    let header = parse(r#"{"__metadata__":{"total_parameters":"333312"}}"#).unwrap();
    assert_eq!((header.declared_total(), header.tensors().len()), (Some(333_312), 0));
}

/// Covers every broken rule. The error contains the tensor and both numbers.
#[test]
fn tensors_that_break_a_rule_are_errors() {
    use HeaderErrorKind::{DuplicateTensor, Gap, Overflow, Overlap, PartialBlock};
    use HeaderErrorKind::{ReversedOffsets, SizeMismatch, TooManyElements};
    let one = |shape: &str, dtype: &str, end: u64| {
        format!(r#"{{"b":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{end}]}}}}"#)
    };
    let reversed = r#"{"b":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}}"#;
    let gap = |begin, end| {
        format!("the data has a gap from byte {begin} to byte {end}, before tensor `b`")
    };
    let overlap = |begin| {
        format!(
            "tensor `b` begins at byte {begin} of the data, inside a tensor that ends at byte 4"
        )
    };
    let of_b = |rule: &str| format!("tensor `b` {rule}");
    let huge = || "the size of tensor `b` overflows 64 bits".to_owned();
    let cases = [
        (spans(&[("a", 0, 4), ("b", 5, 6)]), Gap, gap(4, 5)),
        (spans(&[("b", 1, 4)]), Gap, gap(0, 1)),
        (spans(&[("a", 0, 4), ("b", 3, 6)]), Overlap, overlap(3)),
        (spans(&[("a", 0, 4), ("b", 0, 4)]), Overlap, overlap(0)),
        (spans(&[("b", 0, 1), ("b", 1, 2)]), DuplicateTensor, of_b("appears twice in the header")),
        (reversed.to_owned(), ReversedOffsets, of_b("ends at byte 1, before it begins at byte 2")),
        (
            one("[3]", "F32", 11),
            SizeMismatch,
            of_b("has 3 elements of F32, which is 12 bytes, but spans 11 bytes"),
        ),
        (
            one("[3]", "F4", 2),
            PartialBlock,
            of_b("has 3 elements of F4, which is not a whole number of bytes"),
        ),
        (
            one("[17]", "NEW3", 2),
            TooManyElements,
            of_b("has 17 elements of NEW3, too many for its 2 bytes"),
        ),
        (one("[9223372036854775808,2]", "F32", 0), Overflow, huge()),
        (one("[9223372036854775808]", "F32", 0), Overflow, huge()),
        (one("[9223372036854775808,2]", "NEW3", 0), Overflow, huge()),
    ];
    for (json, kind, message) in cases {
        let tensor = Some("b".to_owned());
        assert_eq!(parse(&json), Err(HeaderError { kind, tensor, message }), "{json}");
    }
}

#[test]
fn text_that_is_not_a_json_object_is_an_error() {
    use HeaderErrorKind::{Empty, NotAnObject, NotUtf8, NulPadding};
    let cases: [(&[u8], _, &str); 8] = [
        (b"", Empty, "the header is empty"),
        (b" \n", Empty, "the header is empty"),
        (b"[]", NotAnObject, "the header starts with byte 0x5b instead of `{`"),
        (b"\x0c{}", NotAnObject, "the header starts with byte 0x0c instead of `{`"),
        (b"\0\0", NotAnObject, "the header starts with byte 0x00 instead of `{`"),
        (
            b"{}\0\0\0",
            NulPadding,
            "the header is padded with NUL bytes from byte 2; it must be padded with spaces",
        ),
        (b"{\"\xff\":1}", NotUtf8, "the header is not valid UTF-8 at byte 2"),
        (b"{\"a\":\"\xc3", NotUtf8, "the header is not valid UTF-8 at byte 6"),
    ];
    for (json, kind, message) in cases {
        assert_eq!(parse(json), Err(HeaderError::new(kind, message)));
    }
}

/// The `safetensors` crate and both Hub clients accept it.
#[test]
fn whitespace_around_the_header_is_accepted() {
    let entry = r#""w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}"#;
    let plain = SafetensorsFileHeader::from_json(format!("{{{entry}}}").as_bytes()).unwrap();
    for space in [" ", "\n", "\t\r\n  "] {
        let json = format!("{space}{{{entry}}}{space}");
        let header = SafetensorsFileHeader::from_json(json.as_bytes()).unwrap();
        assert_eq!(header.tensors(), plain.tensors());
        assert_eq!(header.length(), json.len() as u64);
        assert_eq!([&header, &plain].map(|header| header.has_leading_space), [true, false]);
    }
}

/// JSON errors name the entry that contains them.
#[test]
fn invalid_json_is_an_error() {
    let entry = |value: &str| {
        format!(r#"{{"ok":{{"dtype":"U8","shape":[],"data_offsets":[0,1]}},"b":{value}}}"#)
    };
    let of_b = [
        entry(r#"{"dtype":"U8","shape":[-1],"data_offsets":[1,2]}"#),
        entry(r#"{"dtype":"U8","shape":[1.0],"data_offsets":[1,2]}"#),
        entry(r#"{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[1,2]}"#),
        entry(r#"{"dtype":"U8","shape":[1],"data_offsets":[1,2,3]}"#),
        entry(r#"{"dtype":"U8","shape":[1],"data_offsets":[1]}"#),
        entry(r#"{"dtype":8,"shape":[1],"data_offsets":[1,2]}"#),
        entry(r#"{"dtype":"U8","shape":[1]}"#),
        entry(r#"{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[1,2]}"#),
        entry(r#"["U8",[1],[1,2]]"#),
        entry("null"),
    ];
    for json in of_b {
        let error = parse(&json).unwrap_err();
        assert!(
            error.kind == HeaderErrorKind::InvalidEntry && error.tensor.as_deref() == Some("b"),
            "{json}: {error}"
        );
    }
    let of_no_tensor = [
        "{",
        "{}{}",
        "{} x",
        r#"{"__metadata__":{"n":1}}"#,
        r#"{"__metadata__":[]}"#,
        r#"{"__metadata__":{"a":"1","a":"2"}}"#,
        r#"{"__metadata__":{},"__metadata__":{}}"#,
    ];
    for json in of_no_tensor {
        let error = parse(json).unwrap_err();
        assert_eq!(error.kind, HeaderErrorKind::InvalidJson, "{json}: {error}");
    }
}

#[test]
fn errors_of_metadata_have_an_offset() {
    let error = parse(r#"{"__metadata__":{"format":1}}"#).unwrap_err();
    let message = "the header is malformed: expected a string, found `1` at byte 26";
    assert_eq!(error.to_string(), message);
}

#[test]
fn errors_of_long_names_are_short() {
    let json = format!(r#"{{"{}":1}}"#, "n".repeat(1_000_000));
    assert!(parse(json).unwrap_err().to_string().len() < 1_000);
}

#[test]
fn the_file_ends_with_the_data() {
    let header = parse(spans(&[("a", 0, 4)])).unwrap();
    let size = header.file_size();
    assert_eq!(size, 8 + header.length() + 4);
    assert_eq!(header.check_file_size(size), Ok(()));
    for found in [0, size - 1, size + 1] {
        let error = header.check_file_size(found).unwrap_err();
        assert_eq!(error.kind, HeaderErrorKind::FileSizeMismatch);
        let message = format!(
            "according to its header, the file ends with tensor `a` at byte {size}, but it has {found} bytes"
        );
        assert_eq!((error.tensor.as_deref(), error.message), (Some("a"), message));
    }
}

#[test]
fn numbers_have_up_to_64_bits() {
    let shape = |number: &str| {
        let json = format!(r#"{{"w":{{"dtype":"U8","shape":[{number},0],"data_offsets":[0,0]}}}}"#);
        let header = parse(&json)?;
        Ok::<_, HeaderError>(header.tensors().get("w").unwrap().shape.clone())
    };
    assert_eq!(shape(&u64::MAX.to_string()), Ok(vec![u64::MAX, 0]));
    for too_large in ["18446744073709551616", "100000000000000000000"] {
        assert!(shape(too_large).is_err(), "{too_large}");
    }
}

#[test]
fn leading_zeros_are_rejected() {
    for number in ["01", "00000000000000000001"] {
        let json = format!(r#"{{"w":{{"dtype":"U8","shape":[{number}],"data_offsets":[0,1]}}}}"#);
        assert!(SafetensorsFileHeader::from_json(json.as_bytes()).is_err(), "{number}");
    }
}

/// The last delimiter of the text is searched for once. Otherwise this text would take hours.
#[test]
fn many_unknown_fields_before_a_long_word_take_linear_time() {
    let json = format!(r#"{{"w":{{{}{}"#, r#""a":1,"#.repeat(200_000), "x".repeat(2_000_000));
    assert!(SafetensorsFileHeader::from_json(json.as_bytes()).is_err());
}
