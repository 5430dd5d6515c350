//! The `hub` plan: one request for all headers of a sharded repository, parsed by the Hub.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::call::Call;
use super::shards::SetReads;
use crate::backends::Fetched;
use crate::error::Error;
use crate::formats::safetensors::{INDEX_NAME, SafetensorsFileHeader, SafetensorsIndexJson};
use crate::formats::{FileHeader, HeaderError, RepoPath};
use crate::steps::{ReportBuilder, Target};

/// The maximum size of the response in bytes. For models with more tensors, the files are read instead.
const MAX_RESPONSE_BYTES: u64 = 64_000_000;

/// The Hub's response: headers by shard name.
#[derive(Deserialize)]
struct HubHeaders<'a> {
    #[serde(borrow)]
    headers: BTreeMap<RepoPath, &'a RawValue>,
}

impl Call {
    /// Reads all headers in one request, as parsed by the Hub. Returns `None` if the Hub has none for these weights.
    pub(super) async fn read_from_hub(&mut self) -> Result<Option<SetReads>, Error> {
        if self.context.formats.safetensors().is_none() {
            return Ok(None);
        }
        let path = match &self.context.target {
            Target::Folder(folder) => RepoPath::join(folder.as_ref(), INDEX_NAME),
            Target::File(path) if path.is_index() => path.clone(),
            Target::File(_) | Target::Shards(_) | Target::Quantization(_) => return Ok(None),
        };
        let Some(Fetched { value: json, commit, .. }) =
            self.files.parsed_headers(&path, MAX_RESPONSE_BYTES).await?
        else {
            return Ok(None);
        };
        let (limit, work) = (self.context.limits.header, self.state.work.clone());
        let parsed = work.run(json.len(), move || parse(&json, limit)).await;
        let Some(headers) = parsed else {
            tracing::debug!(%path, "the Hub's response is invalid; reading the files instead");
            return Ok(None);
        };
        self.pin(commit);
        self.state.weights = Some(path.clone());
        let mut assembly = ReportBuilder::new_sharded(&path, None, self.mode.keep_headers);
        for (shard, header) in headers {
            let header =
                header.map_err(|source| self.header_error(&path.sibling(&shard), source))?;
            assembly = self.add_header(assembly, shard, header).await;
        }
        if assembly.needs_config() {
            // The result is used when the headers are counted.
            let _ = self.config().await;
        }
        Ok(Some(SetReads { path, assembly, shards: Vec::new(), failures: Vec::new() }))
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
