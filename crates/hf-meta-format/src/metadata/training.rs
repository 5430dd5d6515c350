//! The metadata that kohya-ss/sd-scripts writes after a training, with keys such as `ss_network_dim`.

use std::collections::{BTreeMap, HashMap};

/// The prefix of the keys.
pub const TRAINING_PREFIX: &str = "ss_";

/// The key of the tag frequencies: a JSON object per folder of images, with the number of images per tag.
pub const TAG_FREQUENCY: &str = "ss_tag_frequency";

/// The keys that describe a training best, in order: the base model, the network, its dimension and alpha, the resolution
/// and the steps (`train_network.py`, `SS_METADATA_MINIMUM_KEYS` and `metadata`).
pub const MAIN_TRAINING_KEYS: [&str; 13] = [
    "ss_base_model_version",
    "ss_sd_model_name",
    "ss_network_module",
    "ss_network_dim",
    "ss_network_alpha",
    "ss_network_args",
    "ss_resolution",
    "ss_steps",
    "ss_max_train_steps",
    "ss_epoch",
    "ss_num_epochs",
    "ss_num_train_images",
    TAG_FREQUENCY,
];

/// The maximum length of tag frequencies in bytes. Parsed, they take about ten times as much memory.
const MAX_TAG_FREQUENCY: usize = 10_000_000;

/// The number of images per tag, over all folders.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TagFrequencies {
    /// The number of folders.
    pub folders: usize,
    /// The tags and the number of their images, the most frequent ones first.
    pub tags: Vec<(String, u64)>,
}

impl TagFrequencies {
    /// Parses the value of [`TAG_FREQUENCY`]. Returns `None` if it has more than 10 MB or another structure.
    ///
    /// ```
    /// use hf_meta_format::metadata::TagFrequencies;
    ///
    /// let text = r#"{"10_dog":{"dog":12,"grass":3},"5_park":{"grass":5}}"#;
    /// let tags = TagFrequencies::parse(text).unwrap().tags;
    /// assert_eq!(tags, [("dog".to_owned(), 12), ("grass".to_owned(), 8)]);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_TAG_FREQUENCY {
            return None;
        }
        let folders: BTreeMap<String, HashMap<String, u64>> = serde_json::from_str(text).ok()?;
        let count = folders.len();
        let mut sums = HashMap::<String, u64>::new();
        for (tag, images) in folders.into_values().flatten() {
            let sum = sums.entry(tag).or_default();
            *sum = sum.saturating_add(images);
        }
        let mut tags: Vec<_> = sums.into_iter().collect();
        tags.sort_by(|(a, most), (b, least)| least.cmp(most).then_with(|| a.cmp(b)));
        Some(Self { folders: count, tags })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_frequencies_are_rejected() {
        let deep = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        let long = format!(r#"{{"a":{{"{}":1}}}}"#, "x".repeat(MAX_TAG_FREQUENCY));
        for text in
            ["", "[]", "1", r#"{"a":1}"#, r#"{"a":{"b":-1}}"#, r#"{"a":{"b":1e400}}"#, &deep, &long]
        {
            assert_eq!(TagFrequencies::parse(text), None, "{text:.40}");
        }
        let max = format!(r#"{{"a":{{"t":{0}}},"b":{{"t":{0}}}}}"#, u64::MAX);
        assert_eq!(TagFrequencies::parse(&max).unwrap().tags, [("t".to_owned(), u64::MAX)]);
        assert_eq!(TagFrequencies::parse("{}").unwrap().tags, []);
    }
}
