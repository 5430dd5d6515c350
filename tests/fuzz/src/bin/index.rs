//! Indexes: what parses names safe shards only, is consistent, survives being written, and its first shard is known
//! from its start.

#![no_main]

use hf_meta_format::{RepoPath, SafetensorsIndexJson};
use hf_meta_fuzz::check_messages;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|json: &[u8]| {
    let read = SafetensorsIndexJson::from_json(json);
    check_start(json, read.as_ref().ok());
    match read {
        Ok(index) => {
            check_shards(&index);
            check_tensors(&index);
            check_metadata(&index);
            check_round_trip(&index);
        }
        Err(error) => check_messages(&error),
    }
});

/// Checks that a start of an index names its first shard, or none.
fn check_start(json: &[u8], index: Option<&SafetensorsIndexJson>) {
    let end = json.first().map_or(0, |first| json.len() * usize::from(*first) / 255);
    let start = SafetensorsIndexJson::first_shard(&json[..end], ".safetensors");
    if let (Some(start), Some(index)) = (start, index) {
        let first = index.weight_map().next();
        assert_eq!(first.map(|(_, shard)| shard), Some(&start));
    }
}

/// Shards are files beside or below the index, each listed once, in order.
fn check_shards(index: &SafetensorsIndexJson) {
    let shards = index.shards();
    assert!((1..=SafetensorsIndexJson::MAX_SHARDS).contains(&shards.len()));
    assert!(shards.is_sorted_by(|one, next| one < next));
    for shard in shards {
        let path = shard.as_str();
        assert!(path.ends_with(".safetensors"), "{path}");
        assert!(path.len() <= 1_024, "{} bytes", path.len());
        assert!(!path.contains(['\\', ':']) && !path.contains(char::is_control), "{path:?}");
        assert!(path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{path}");
        assert!(shard.segments().eq(path.split('/')));
        assert_eq!(path.parse::<RepoPath>().as_ref(), Ok(shard));
    }
}

/// Every tensor has a shard of the list, and every shard of the list a tensor.
fn check_tensors(index: &SafetensorsIndexJson) {
    let mut is_used = vec![false; index.shards().len()];
    for (tensor, shard) in index.weight_map() {
        assert_eq!(index.shard(tensor), Some(shard), "{tensor:?}");
        let at = index.shards().binary_search(shard).expect("a shard that is not listed");
        is_used[at] = true;
    }
    assert!(is_used.iter().all(|&is_used| is_used), "a shard without tensors");
    assert!(index.weight_map().len() >= index.shards().len());
}

/// Checks that the metadata of the index has no nested values, and that the totals are those of the metadata.
fn check_metadata(index: &SafetensorsIndexJson) {
    let metadata = index.metadata();
    assert!(metadata.into_iter().flatten().all(|(_, text)| !text.starts_with(['{', '['])));
    let totals = [("total_size", index.total_size()), ("total_parameters", index.declared_total())];
    for (key, total) in totals {
        let text = metadata.and_then(|metadata| metadata.get(key));
        let value = text.map(|text| text.trim_matches('"'));
        match value.map(|value| (value.parse::<u64>(), value.parse::<f64>())) {
            Some((Ok(number), _)) => assert_eq!(total, Some(number)),
            Some((_, Ok(_))) => {}
            _ => assert_eq!(total, None),
        }
    }
}

/// An index equals itself read again.
fn check_round_trip(index: &SafetensorsIndexJson) {
    let written = serde_json::to_vec(index).expect("an index can be written");
    assert_eq!(SafetensorsIndexJson::from_json(&written).as_ref(), Ok(index));
}
