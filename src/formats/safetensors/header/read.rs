//! From the JSON of a header to its tensors: by the fast parser if it can, else by the general one.

use serde::Deserializer;

use super::plain;
use super::scan::{Scan, Scanned, Sink};
use crate::formats::names::LONGEST;
use crate::formats::safetensors::HeaderError;

/// Hands every tensor to a sink, and checks every rule.
pub(super) fn scan<S: Sink>(
    json: &[u8],
    sink: impl Fn() -> S,
) -> Result<(Scanned, S), HeaderError> {
    let json = text(json)?;
    plain(json, sink()).unwrap_or_else(|| general(json, sink()))
}

fn plain<S: Sink>(json: &str, sink: S) -> Option<Result<(Scanned, S), HeaderError>> {
    let mut scan = Scan::new(sink);
    plain::read(json, &mut scan)?;
    Some(scan.finish())
}

fn general<S: Sink>(json: &str, sink: S) -> Result<(Scanned, S), HeaderError> {
    let mut scan = Scan::new(sink);
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let read = (&mut deserializer).deserialize_map(&mut scan);
    match read.and_then(|()| deserializer.end()) {
        Ok(()) => scan.finish(),
        Err(error) => Err(scan.describe(&error)),
    }
}

/// The header as text, with the flaws that a JSON parser would only call unexpected bytes.
pub(super) fn text(json: &[u8]) -> Result<&str, HeaderError> {
    match json.first() {
        None => return Err(HeaderError::Empty),
        Some(b'{') => {}
        Some(&first) => return Err(HeaderError::NotAnObject { first }),
    }
    if json.len() > LONGEST {
        return Err(HeaderError::OverLimit { length: json.len() as u64, limit: LONGEST as u64 });
    }
    let padding = json.iter().rev().take_while(|&&byte| byte == 0).count();
    if padding > 0 {
        return Err(HeaderError::NulPadding { at: json.len() - padding });
    }
    std::str::from_utf8(json).map_err(|error| HeaderError::NotUtf8 { at: error.valid_up_to() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::formats::TensorInfo;

    /// All that a sink is told.
    #[derive(Debug, Default, PartialEq)]
    struct Told(Vec<String>);

    impl Sink for Told {
        fn take(&mut self, name: &str, tensor: &TensorInfo) -> Result<(), HeaderError> {
            self.0.push(format!("{name} {tensor:?}"));
            Ok(())
        }
    }

    /// Headers as writers make them, pieces of them in any order, and bytes that do damage.
    fn header() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            " ",
            "\n",
            "\"",
            "\\",
            "\"\\u0041\"",
            "0",
            "00",
            "1",
            "12",
            "-1",
            "1.0",
            "1e2",
            "18446744073709551615",
            "18446744073709551616",
            "null",
            "\"dtype\"",
            "\"U8\"",
            "\"shape\"",
            "\"data_offsets\"",
            "\"more\"",
            "\"ß\"",
            "\"__metadata__\"",
            "{}",
            "[]",
            "{\"format\":\"pt\"}",
        ]);
        let entry = (0_u64..4, 0_u64..4, any::<bool>()).prop_map(|(begin, length, is_spaced)| {
            let end = begin + length;
            let entry = format!(
                r#""t{begin}":{{"dtype":"U8","shape":[{length}],"data_offsets":[{begin},{end}]}}"#
            );
            if is_spaced { entry.replace(':', ": ").replace(',', ", ") } else { entry }
        });
        let metadata = Just(r#""__metadata__":{"format":"pt","n":"\""}"#.to_owned());
        let entries = prop::collection::vec(prop_oneof![4 => entry, 1 => metadata], 0..5);
        (entries, prop::option::of((any::<prop::sample::Index>(), piece, any::<bool>()))).prop_map(
            |(entries, damage)| {
                let mut json = format!("{{{}}}", entries.join(","));
                if let Some((at, piece, is_inserted)) = damage {
                    let at = at.index(json.len());
                    let end = if is_inserted { at } else { at + 1 };
                    json.replace_range(at..end, piece);
                }
                json
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn the_fast_parser_reads_what_the_general_one_does(json in header()) {
            if let Some(fast) = plain(&json, Told::default()) {
                prop_assert_eq!(fast, general(&json, Told::default()));
            }
        }
    }

    #[test]
    fn what_writers_make_is_read_fast() {
        let cases = [
            "{}",
            "{}      ",
            r#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#,
            r#"{"__metadata__":{"a":"\n\u00df"},"ß":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#,
            r#"{"w": {"shape": [2, 3], "data_offsets": [0, 24], "dtype": "F32"}, "__metadata__": null}"#,
        ];
        for json in cases {
            let fast = plain(json, Told::default()).unwrap();
            assert_eq!(fast, general(json, Told::default()), "{json}");
            assert!(fast.is_ok(), "{json}");
        }
    }
}
