//! The SAI Model Spec 1.0.1, a convention for the metadata of safetensors files.
//!
//! The fields, their order and their types are a table. A value that does not have its type is listed as invalid and stays
//! available as text, because the metadata come from strangers.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::thumbnail::{Thumbnail, ThumbnailError};

/// The prefix of the keys.
pub const MODEL_SPEC_PREFIX: &str = "modelspec.";

/// The importance of a field in the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Requirement {
    /// The field is required in every model.
    Must,
    /// The field is required in some models only, such as image models.
    MustInCategory,
    /// The field is recommended.
    Should,
    /// The field is optional.
    Can,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldType {
    Text,
    /// Comma-separated names.
    List,
    /// An ISO-8601 date, with or without a time.
    Date,
    /// `0x` and hexadecimal digits.
    Hash,
    /// `(width)x(height)` in pixels.
    Resolution,
    /// `<min>,<max>`.
    Range,
    Flag,
    Thumbnail,
}

/// A field of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelSpecField {
    /// The name, such as `usage_hint`.
    pub name: &'static str,
    /// The name in JSON, such as `usageHint`.
    pub json_name: &'static str,
    /// The importance.
    pub requirement: Requirement,
    field_type: FieldType,
}

/// Declares a field.
const fn field(
    name: &'static str,
    json_name: &'static str,
    requirement: Requirement,
    field_type: FieldType,
) -> ModelSpecField {
    ModelSpecField { name, json_name, requirement, field_type }
}

/// The fields, in the order of the specification (Stability-AI/ModelSpec, `README.md`, version 1.0.1).
pub const MODEL_SPEC_FIELDS: [ModelSpecField; 27] = {
    use FieldType::{Date, Flag, Hash, List, Range, Resolution, Text};
    use Requirement::{Can, Must, MustInCategory, Should};
    [
        field("sai_model_spec", "saiModelSpec", Must, Text),
        field("architecture", "architecture", Must, Text),
        field("implementation", "implementation", Must, Text),
        field("title", "title", Must, Text),
        field("description", "description", Should, Text),
        field("author", "author", Should, Text),
        field("date", "date", Should, Date),
        field("hash_sha256", "hashSha256", Should, Hash),
        field("implementation_version", "implementationVersion", Can, Text),
        field("license", "license", Can, Text),
        field("usage_hint", "usageHint", Can, Text),
        field("thumbnail", "thumbnail", Can, FieldType::Thumbnail),
        field("tags", "tags", Can, List),
        field("merged_from", "mergedFrom", Can, List),
        field("resolution", "resolution", MustInCategory, Resolution),
        field("trigger_phrase", "triggerPhrase", Can, Text),
        field("prediction_type", "predictionType", Can, Text),
        field("timestep_range", "timestepRange", Can, Range),
        field("encoder_layer", "encoderLayer", Can, Text),
        field("preprocessor", "preprocessor", Can, Text),
        field("is_negative_embedding", "isNegativeEmbedding", Can, Flag),
        field("unet_dtype", "unetDtype", Can, List),
        field("vae_dtype", "vaeDtype", Can, List),
        field("data_format", "dataFormat", MustInCategory, Text),
        field("format_type", "formatType", Should, Text),
        field("language", "language", Can, List),
        field("format_template", "formatTemplate", Can, Text),
    ]
};

/// The keys of GGUF files that mean the same as fields of the specification (llama.cpp, `gguf-py/gguf/constants.py`,
/// `Keys.General`).
const GGUF_KEYS: [(&str, &str); 5] = [
    ("title", "general.name"),
    ("description", "general.description"),
    ("author", "general.author"),
    ("license", "general.license"),
    ("architecture", "general.architecture"),
];

/// The value of a field. Serializes without a tag.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum ModelSpecValue {
    /// A text.
    Text(String),
    /// Names.
    List(Vec<String>),
    /// A width and a height in pixels.
    #[non_exhaustive]
    Resolution {
        /// The width in pixels.
        width: u32,
        /// The height in pixels.
        height: u32,
    },
    /// The first and the last number of a range.
    Range([u64; 2]),
    /// Yes or no.
    Flag(bool),
    /// The description of a thumbnail.
    Thumbnail(ThumbnailSummary),
}

/// The type and the size of a thumbnail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ThumbnailSummary {
    /// The media type according to the bytes, such as `image/jpeg`.
    pub media_type: &'static str,
    /// The width in pixels.
    pub width: u32,
    /// The height in pixels.
    pub height: u32,
    /// The size of the image file in bytes.
    pub bytes: u64,
}

impl From<&Thumbnail> for ThumbnailSummary {
    fn from(Thumbnail { image, bytes }: &Thumbnail) -> Self {
        Self {
            media_type: image.image_type.media_type(),
            width: image.width,
            height: image.height,
            bytes: bytes.len() as u64,
        }
    }
}

/// A field whose value does not have the type that the specification requires.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidField {
    /// The field.
    pub field: &'static ModelSpecField,
    /// The violated rule, such as `is not an ISO-8601 date`.
    pub rule: String,
}

/// The fields of the SAI Model Spec in the metadata of a file.
///
/// Serializes to an object of the typed values with names in camel case, and `missing`, the required fields that the file
/// does not have.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use hf_meta_format::metadata::ModelSpec;
///
/// let metadata = BTreeMap::from([
///     ("modelspec.sai_model_spec".to_owned(), "1.0.1".to_owned()),
///     ("modelspec.resolution".to_owned(), "1024x768".to_owned()),
///     ("modelspec.tags".to_owned(), "Person, Style".to_owned()),
/// ]);
/// let spec = ModelSpec::from_metadata(&metadata).unwrap();
/// assert_eq!(spec.missing().collect::<Vec<_>>(), ["architecture", "implementation", "title"]);
/// let json = r#"{"saiModelSpec":"1.0.1","tags":["Person","Style"],"resolution":{"width":1024,"height":768},"missing":["architecture","implementation","title"]}"#;
/// assert_eq!(serde_json::to_string(&spec).unwrap(), json);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelSpec {
    values: Vec<(&'static ModelSpecField, ModelSpecValue)>,
    missing: Vec<&'static str>,
    invalid: Vec<InvalidField>,
}

impl ModelSpec {
    /// Reads the fields from the metadata of a safetensors file, or the keys `general.…` with the same meaning from those of
    /// a GGUF file. Returns `None` without any.
    pub fn from_metadata(metadata: &BTreeMap<String, String>) -> Option<Self> {
        let has_fields = metadata.keys().any(|key| key.starts_with(MODEL_SPEC_PREFIX));
        let mut spec = Self::default();
        for field in &MODEL_SPEC_FIELDS {
            let key = if has_fields {
                format!("{MODEL_SPEC_PREFIX}{}", field.name)
            } else {
                let gguf = GGUF_KEYS.iter().find(|(name, _)| *name == field.name);
                gguf.map_or_else(String::new, |(_, key)| (*key).to_owned())
            };
            match metadata.get(&key).map(|text| parse(field.field_type, text)) {
                Some(Ok(value)) => spec.values.push((field, value)),
                Some(Err(rule)) => spec.invalid.push(InvalidField { field, rule }),
                None if has_fields && field.requirement == Requirement::Must => {
                    spec.missing.push(field.name);
                }
                None => {}
            }
        }
        (has_fields || !spec.values.is_empty()).then_some(spec)
    }

    /// Returns the value of a field; `None` if it is missing or invalid.
    pub fn get(&self, name: &str) -> Option<&ModelSpecValue> {
        let found = self.values.iter().find(|(field, _)| field.name == name);
        found.map(|(_, value)| value)
    }

    /// Returns the values, in the order of the specification.
    pub fn values(&self) -> impl Iterator<Item = (&'static ModelSpecField, &ModelSpecValue)> {
        self.values.iter().map(|(field, value)| (*field, value))
    }

    /// Returns the names of the fields that every model must have and this one does not have. A file without any field
    /// does not follow the specification, so nothing is missing.
    pub fn missing(&self) -> impl Iterator<Item = &'static str> {
        self.missing.iter().copied()
    }

    /// Returns the fields with values of another type.
    pub fn invalid(&self) -> impl Iterator<Item = &InvalidField> {
        self.invalid.iter()
    }

    /// Returns the SHA-256 hash of the data that the metadata state, as 64 hexadecimal digits in lower case.
    pub fn data_hash(&self) -> Option<String> {
        let Some(ModelSpecValue::Text(hash)) = self.get("hash_sha256") else { return None };
        Some(hash.trim().strip_prefix("0x")?.to_ascii_lowercase())
    }

    /// Returns the description of the thumbnail.
    pub fn thumbnail(&self) -> Option<ThumbnailSummary> {
        match self.get("thumbnail") {
            Some(ModelSpecValue::Thumbnail(summary)) => Some(*summary),
            _ => None,
        }
    }
}

impl Serialize for ModelSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (field, value) in &self.values {
            map.serialize_entry(field.json_name, value)?;
        }
        map.serialize_entry("missing", &self.missing)?;
        map.end()
    }
}

/// Parses a value. Returns the violated rule if it does not have the type.
fn parse(field_type: FieldType, text: &str) -> Result<ModelSpecValue, String> {
    let trimmed = text.trim();
    let value = match field_type {
        FieldType::Text => Ok(ModelSpecValue::Text(text.to_owned())),
        FieldType::List => {
            let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
            Ok(ModelSpecValue::List(names.map(str::to_owned).collect()))
        }
        FieldType::Date if is_date(trimmed) => Ok(ModelSpecValue::Text(text.to_owned())),
        FieldType::Date => Err("is not an ISO-8601 date, such as 2023-07-16"),
        FieldType::Hash if is_hash(trimmed) => Ok(ModelSpecValue::Text(text.to_owned())),
        FieldType::Hash => Err("is not `0x` and 64 hexadecimal digits"),
        FieldType::Resolution => resolution(trimmed)
            .map(|(width, height)| ModelSpecValue::Resolution { width, height })
            .ok_or("is not a width and a height, such as 1024x1024"),
        FieldType::Range => range(trimmed)
            .map(ModelSpecValue::Range)
            .ok_or("is not a first and a last number, such as 0,499"),
        FieldType::Flag if trimmed.eq_ignore_ascii_case("true") => Ok(ModelSpecValue::Flag(true)),
        FieldType::Flag if trimmed.eq_ignore_ascii_case("false") => Ok(ModelSpecValue::Flag(false)),
        FieldType::Flag => Err("is not `true` or `false`"),
        FieldType::Thumbnail => {
            let thumbnail =
                Thumbnail::parse(text).map_err(|error: ThumbnailError| error.to_string())?;
            Ok(ModelSpecValue::Thumbnail((&thumbnail).into()))
        }
    };
    value.map_err(str::to_owned)
}

fn is_hash(text: &str) -> bool {
    let digits = text.strip_prefix("0x").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn resolution(text: &str) -> Option<(u32, u32)> {
    let (width, height) = text.split_once(['x', 'X', '×'])?;
    let [width, height] = [width, height].map(|side| side.trim().parse::<u32>().ok());
    Some((width?, height?)).filter(|(width, height)| *width > 0 && *height > 0)
}

fn range(text: &str) -> Option<[u64; 2]> {
    let (first, last) = text.split_once(',')?;
    // JavaScript has no exact integers beyond 2^53, and no model has billions of steps.
    let number = |text: &str| text.trim().parse::<u32>().ok().map(u64::from);
    Some([number(first)?, number(last)?])
}

/// Returns whether a text is a date, with or without a time, in the extended or basic format of ISO 8601. The
/// specification itself has an example with typographic hyphens, and Python writes a space before the time.
fn is_date(text: &str) -> bool {
    let text = text.replace('\u{2010}', "-");
    let (date, time) = text.split_once(['T', 't', ' ']).unwrap_or((&text, "0"));
    let is_number = |digits: &str, length: usize, max: u32| {
        digits.len() == length
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && digits.parse::<u32>().is_ok_and(|number| (1..=max).contains(&number))
    };
    let is_day = match date.split('-').collect::<Vec<_>>()[..] {
        [year] if year.len() == 8 && year.is_ascii() => {
            is_number(&year[..4], 4, 9999)
                && is_number(&year[4..6], 2, 12)
                && is_number(&year[6..], 2, 31)
        }
        [year] => is_number(year, 4, 9999),
        [year, week] if week.starts_with('W') => {
            is_number(year, 4, 9999) && is_number(&week[1..], 2, 53)
        }
        [year, month] => {
            is_number(year, 4, 9999) && (is_number(month, 2, 12) || is_number(month, 3, 366))
        }
        [year, week, day] if week.starts_with('W') => {
            is_number(year, 4, 9999) && is_number(&week[1..], 2, 53) && is_number(day, 1, 7)
        }
        [year, month, day] => {
            is_number(year, 4, 9999) && is_number(month, 2, 12) && is_number(day, 2, 31)
        }
        _ => false,
    };
    let is_part = |byte: u8| byte.is_ascii_digit() || b":.,+-Zz ".contains(&byte);
    is_day && time.starts_with(|first: char| first.is_ascii_digit()) && time.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(entries: &[(&str, &str)]) -> Option<ModelSpec> {
        let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        ModelSpec::from_metadata(&entries.collect())
    }

    /// The example of the specification, and the keys that kohya-ss/sd-scripts writes.
    #[test]
    fn published_metadata_are_valid() {
        let example = [
            ("modelspec.sai_model_spec", "1.0.0"),
            ("modelspec.architecture", "stable-diffusion-xl-v1-base"),
            ("modelspec.implementation", "sgm"),
            ("modelspec.title", "Example Model Version 1.0"),
            ("other_keys", "..."),
        ];
        let found = spec(&example).unwrap();
        assert_eq!((found.missing().count(), found.invalid().count()), (0, 0));
        let kohya = [
            ("modelspec.date", "2025-06-01T12:30:59"),
            ("modelspec.resolution", "1024x1024"),
            ("modelspec.timestep_range", "0,999"),
            ("modelspec.encoder_layer", "2"),
            ("modelspec.prediction_type", "epsilon"),
        ];
        let found = spec(&[&example[..], &kohya].concat()).unwrap();
        assert_eq!((found.missing().count(), found.invalid().count()), (0, 0));
        assert_eq!(found.get("timestep_range"), Some(&ModelSpecValue::Range([0, 999])));
        assert_eq!(spec(&[("format", "pt"), ("ss_epoch", "1")]), None);
    }

    #[test]
    fn the_table_has_the_names_of_the_specification() {
        for field in &MODEL_SPEC_FIELDS {
            let mut words = field.name.split('_');
            let first = words.next().unwrap().to_owned();
            let camel = words.fold(first, |name, word| {
                let (initial, rest) = word.split_at(1);
                format!("{name}{}{rest}", initial.to_ascii_uppercase())
            });
            assert_eq!(field.json_name, camel);
        }
    }

    #[test]
    fn dates_are_recognized() {
        for date in [
            "2023-07-16",
            "2023\u{2010}07\u{2010}16T18:13:38Z",
            "2023-07-16T18:13:38.123456+02:00",
            "2023-07-16 18:13:38",
            "20230716T181338Z",
            "2023",
            "2023-07",
            "2023-197",
            "2023-W28",
            "2023-W28-7",
        ] {
            assert!(is_date(date), "{date}");
        }
        for text in [
            "",
            "16.07.2023",
            "July 2023",
            "2023-13-01",
            "2023-07-32",
            "2023-07-16Tx",
            "1689531218.5",
        ] {
            assert!(!is_date(text), "{text}");
        }
    }

    #[test]
    fn values_of_another_type_are_invalid() {
        let cases = [
            ("modelspec.date", "yesterday"),
            ("modelspec.resolution", "1024"),
            ("modelspec.resolution", "0x512"),
            ("modelspec.resolution", "99999999999x1"),
            ("modelspec.hash_sha256", "abc"),
            ("modelspec.timestep_range", "0-999"),
            ("modelspec.timestep_range", "0,18446744073709551615"),
            ("modelspec.is_negative_embedding", "maybe"),
            ("modelspec.thumbnail", "data:image/svg+xml;base64,PHN2Zy8+"),
        ];
        for (key, value) in cases {
            let found = spec(&[(key, value)]).unwrap();
            let invalid: Vec<_> = found.invalid().map(|invalid| invalid.field.name).collect();
            assert_eq!(invalid, [key.strip_prefix("modelspec.").unwrap()], "{value}");
            assert!(found.values().next().is_none());
        }
    }

    #[test]
    fn keys_of_gguf_have_the_same_names() {
        let found = spec(&[("general.name", "A model"), ("general.license", "mit")]).unwrap();
        assert_eq!(found.get("title"), Some(&ModelSpecValue::Text("A model".to_owned())));
        let json = r#"{"title":"A model","license":"mit","missing":[]}"#;
        assert_eq!(serde_json::to_string(&found).unwrap(), json);
    }
}
