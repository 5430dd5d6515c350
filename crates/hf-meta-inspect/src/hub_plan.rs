//! The `hub` plan: one request for all headers of a sharded repository, parsed by the Hub.

use std::collections::BTreeMap;
use std::sync::Arc;

use hf_meta_count::results::Plan;
use hf_meta_count::steps::Target;
use hf_meta_format::formats::safetensors::{
    INDEX_NAME, SafetensorsFileHeader, SafetensorsIndexJson,
};
use hf_meta_format::formats::{FileHeader, HeaderError, RepoPath};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::call::Call;
use super::error::Error;
use super::locate::{FoundWeights, Located};

/// The maximum size of the response in bytes. For models with more tensors, the files are read instead.
const MAX_RESPONSE_BYTES: u64 = 64_000_000;

/// The Hub's response: headers by shard name.
#[derive(Deserialize)]
struct HubHeaders<'a> {
    #[serde(borrow)]
    headers: BTreeMap<RepoPath, &'a RawValue>,
}

impl Call {
    /// Requests all headers at once, as parsed by the Hub, if that is the plan. Returns `None` if the Hub has none for
    /// these weights.
    pub(crate) async fn find_parsed_headers(&self) -> Result<Option<Located>, Error> {
        let settings = &self.settings;
        let is_planned = settings.plan == Plan::Hub && !settings.list_sets;
        if !is_planned || settings.formats.safetensors().is_none() {
            return Ok(None);
        }
        let path = match &settings.target {
            Target::Folder(folder) => RepoPath::join(folder.as_ref(), INDEX_NAME),
            Target::File(path) if path.is_index() => path.clone(),
            Target::File(_) | Target::Shards(_) | Target::Quantization(_) => return Ok(None),
        };
        let Some(response) = self.files.parsed_headers(&path, MAX_RESPONSE_BYTES).await? else {
            return Ok(None);
        };
        let (limit, json) = (settings.limits.header, Arc::clone(&response.bytes));
        let length = json.len();
        let Some(parsed) = self.files.run(length, move || parse(&json, limit)).await else {
            return Ok(None);
        };
        let mut headers = Vec::new();
        for (shard, header) in parsed {
            let invalid = |source| self.header_error(&path.sibling(&shard), source);
            let header = header.map_err(invalid)?;
            headers.push((shard, header));
        }
        let weights = FoundWeights::Headers { headers };
        Ok(Some(Located::new(&self.files, path, weights, response.commit)))
    }
}

/// A header by its shard.
type ParsedHeader = (RepoPath, Result<FileHeader, HeaderError>);

/// Parses the response; `None` if it is invalid.
fn parse(json: &[u8], limit: u64) -> Option<Vec<ParsedHeader>> {
    let HubHeaders { headers } = serde_json::from_slice(json).ok()?;
    let is_too_long = |header: &RawValue| header.get().len() as u64 > limit;
    let is_sharded = (1..=SafetensorsIndexJson::MAX_SHARDS).contains(&headers.len());
    if !is_sharded || headers.values().any(|header| is_too_long(header)) {
        return None;
    }
    let parse = |(shard, header): (RepoPath, &RawValue)| {
        let header = SafetensorsFileHeader::from_json(header.get().as_bytes());
        (shard, header.map(FileHeader::from))
    };
    Some(headers.into_iter().map(parse).collect())
}
