//! Valid headers and indexes.

use std::collections::BTreeMap;

use hf_meta::{SafetensorsFileHeader, SafetensorsIndexJson, TensorInfo};
use hf_meta_count::count::{Counter, DtypeCount, ParameterCount};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{config, shard_name, stays_inside};

/// Generates a header with consecutive tensors of these names, and with metadata.
fn header_json(tensors: &BTreeMap<String, Vec<u64>>, metadata: &BTreeMap<String, String>) -> Value {
    let mut header = Map::from_iter([("__metadata__".to_owned(), json!(metadata))]);
    let mut begin = 0;
    for (at, (name, shape)) in tensors.iter().enumerate() {
        let (dtype, width) = [("U8", 1), ("F16", 2), ("I64", 8), ("NEW3", 3)][at % 4];
        let end = begin + shape.iter().product::<u64>() * width;
        let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": [begin, end] });
        header.insert(name.clone(), entry);
        begin = end;
    }
    Value::Object(header)
}

fn tensors() -> impl Strategy<Value = BTreeMap<String, Vec<u64>>> {
    let name = any::<String>().prop_filter("not a tensor", |name| name != "__metadata__");
    btree_map(name, vec(0_u64..5, 0..4), 0..6)
}

fn metadata() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(any::<String>(), any::<String>(), 0..4)
}

fn parsed(header: &Value) -> SafetensorsFileHeader {
    SafetensorsFileHeader::from_json(header.to_string().as_bytes()).unwrap()
}

fn listed(header: &SafetensorsFileHeader) -> Vec<(&str, TensorInfo)> {
    header.tensors().iter().collect()
}

/// Generates values for the `metadata` of an index.
fn plain_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
        (0_u32..1_000_000).prop_map(|number| Value::from(f64::from(number) / 2.0)),
    ]
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn headers_survive_the_round_trip(tensors in tensors(), metadata in metadata()) {
        let header = parsed(&header_json(&tensors, &metadata));
        prop_assert_eq!(header.tensors().len(), tensors.len());
        let again = parsed(&serde_json::to_value(&header).unwrap());
        prop_assert_eq!(again.metadata(), Some(&metadata));
        prop_assert_eq!(again, header);
    }

    #[test]
    fn whitespace_does_not_change_tensors(tensors in tensors(), metadata in metadata()) {
        let json = header_json(&tensors, &metadata);
        let spaced = format!("{json:#}  ");
        let spaced = SafetensorsFileHeader::from_json(spaced.as_bytes()).unwrap();
        let header = parsed(&json);
        prop_assert_eq!(listed(&spaced), listed(&header));
        prop_assert_eq!(spaced.metadata(), header.metadata());
        prop_assert_eq!(spaced.data_length(), header.data_length());
    }

    #[test]
    fn totals_are_the_sums_over_the_dtypes(tensors in tensors()) {
        let header = parsed(&header_json(&tensors, &BTreeMap::new()));
        let count = count(&header);
        let sum = |part: fn(&DtypeCount) -> u64| {
            count.rows().map(|(_, row)| part(row)).sum::<u64>()
        };
        prop_assert_eq!(sum(|row| row.parameters), count.total());
        prop_assert_eq!(count.iter().map(|(_, parameters)| parameters).sum::<u64>(), count.total());
        prop_assert_eq!(sum(|row| row.tensors), tensors.len() as u64);
        prop_assert_eq!(sum(|row| row.bytes), header.data_length());
        let scalars = tensors.values().filter(|shape| shape.is_empty()).count();
        prop_assert_eq!(sum(|row| row.scalars), scalars as u64);
        prop_assert_eq!(count.totals().scalars, scalars as u64);
        prop_assert!(count.rows().all(|(dtype, row)| count.get(dtype) == row.parameters));
    }

    #[test]
    fn counts_do_not_depend_on_the_order(
        (tensors, shuffled) in tensors().prop_flat_map(|tensors| {
            let header = header_json(&tensors, &BTreeMap::new());
            let entries: Vec<_> = header.as_object().unwrap().clone().into_iter().collect();
            (Just(tensors), Just(entries).prop_shuffle())
        })
    ) {
        let header = parsed(&header_json(&tensors, &BTreeMap::new()));
        let entry = |(name, entry): &(String, Value)| format!("{}:{entry}", json!(name));
        let entries: Vec<_> = shuffled.iter().map(entry).collect();
        let json = format!("{{{}}}", entries.join(","));
        let shuffled = SafetensorsFileHeader::from_json(json.as_bytes()).unwrap();
        prop_assert_eq!(count(&shuffled), count(&header));
        prop_assert_eq!(shuffled.file_size(), header.file_size());
        prop_assert!(header.tensors().iter().all(|(name, tensor)| shuffled.tensors().get(name) == Some(tensor)));
    }

    #[test]
    fn indexes_survive_the_round_trip(
        tensors in vec("[a-z.]{1,9}", 1..6),
        metadata in btree_map(any::<String>(), plain_value(), 0..5),
        dtype in proptest::option::of(any::<String>()),
    ) {
        let shards = ["a.safetensors", "b/c.safetensors"].into_iter().cycle();
        let weight_map: BTreeMap<_, _> = tensors.iter().zip(shards).collect();
        let json = json!({ "dtype": dtype, "metadata": metadata, "weight_map": weight_map });
        let index = SafetensorsIndexJson::from_json(json.to_string().as_bytes()).unwrap();
        let texts = metadata.into_iter().map(|(key, value)| (key, value.to_string()));
        prop_assert_eq!(index.metadata(), Some(&texts.collect()));
        let found = index.weight_map().map(|(name, shard)| (name, shard.as_str()));
        prop_assert!(found.eq(weight_map.into_iter().map(|(name, shard)| (name.as_str(), shard))));
        let written = serde_json::to_string(&index).unwrap();
        prop_assert_eq!(SafetensorsIndexJson::from_json(written.as_bytes()), Ok(index));
    }

    #[test]
    fn shards_of_an_index_stay_inside(shards in vec(shard_name(), 1..4)) {
        let places = shards.iter().enumerate().map(|(at, shard)| (at.to_string(), json!(shard)));
        let json = json!({ "weight_map": places.collect::<Value>() }).to_string();
        let index = SafetensorsIndexJson::from_json(json.as_bytes());
        prop_assert_eq!(index.is_ok(), shards.iter().all(|shard| stays_inside(shard)));
        for shard in index.iter().flat_map(SafetensorsIndexJson::shards) {
            prop_assert!(shards.contains(&shard.to_string()));
        }
    }
}

fn count(header: &SafetensorsFileHeader) -> ParameterCount {
    let mut counter = Counter::new();
    counter.add_file(header).unwrap();
    counter.finish().unwrap().0
}

/// A dtype with two elements per byte: 2^63.3 bytes have 2^64.3 elements.
const GIANTS: &str = r#"{
    "a":{"dtype":"F4","shape":[4611686018427387902],"data_offsets":[0,2305843009213693951]},
    "b":{"dtype":"F4","shape":[4611686018427387902],"data_offsets":[2305843009213693951,4611686018427387902]},
    "c":{"dtype":"F4","shape":[4611686018427387902],"data_offsets":[4611686018427387902,6917529027641081853]},
    "d":{"dtype":"F4","shape":[4611686018427387902],"data_offsets":[6917529027641081853,9223372036854775804]},
    "e":{"dtype":"F4","shape":[4611686018427387902],"data_offsets":[9223372036854775804,11529215046068469755]}
}"#;

#[test]
fn element_counts_above_64_bits_are_counter_errors() {
    let header = SafetensorsFileHeader::from_json(GIANTS.trim().as_bytes()).unwrap();
    let mut counter = Counter::new();
    let error = counter.add_file(&header).and_then(|()| counter.finish().map(drop));
    assert!(error.is_err());
}
