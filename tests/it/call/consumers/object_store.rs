//! An object store: the headers of a checkpoint in a store with a custom interface, without the client.

use std::ops::Range;

use hf_meta::{RepoPath, SafetensorsFileHeader, SafetensorsIndexJson, SafetensorsParseFromRepo};
use hf_meta_count::count::Configs;
use hf_meta_format::formats::safetensors::{DEFAULT_HEADER_LIMIT, header_range};

/// Any error of this program.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A store of objects, such as a bucket.
pub(crate) trait Store {
    fn size(&self, path: &str) -> Result<u64>;
    fn read(&self, path: &str, range: Range<u64>) -> Result<Vec<u8>>;
}

/// Reads and checks the header of a file.
fn header(store: &impl Store, path: &str) -> Result<SafetensorsFileHeader> {
    let size = store.size(path)?;
    let prefix = store.read(path, 0..8)?;
    let header = header_range(&prefix, Some(size), DEFAULT_HEADER_LIMIT)?;
    let start = store.read(path, 0..header.end)?;
    Ok(SafetensorsFileHeader::from_file_start(&start, Some(size))?)
}

/// Counts a sharded checkpoint in a folder of the store.
pub(crate) fn count(store: &impl Store, folder: &str) -> Result<SafetensorsParseFromRepo> {
    let path = format!("{folder}/model.safetensors.index.json");
    let index = SafetensorsIndexJson::from_json(&store.read(&path, 0..store.size(&path)?)?)?;
    let read = |shard: &RepoPath| Ok((shard.clone(), header(store, &format!("{folder}/{shard}"))?));
    let headers = index.shards().iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(SafetensorsParseFromRepo::from_headers(Some(index), headers, &Configs::default())?)
}
