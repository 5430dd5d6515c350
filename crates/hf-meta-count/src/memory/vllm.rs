//! The blocks that vLLM reserves for one request.
//!
//! Layers of different kinds share a pool of blocks of equal size. A layer with a smaller page gets more tokens per block,
//! or its page is padded. Layers are divided into groups, and a block belongs to one group: it has the page of each layer
//! in the group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::{CacheDtype, CacheKind, LayerCache};
use hf_meta_format::base::sort::Ordered;

/// The version of vLLM whose rules apply.
pub const VLLM_VERSION: &str = "0.33.0";

/// The share of a GPU's memory that vLLM uses for weights, activations and caches: `--gpu-memory-utilization`.
///
/// ```
/// use hf_meta_count::memory::GpuShare;
///
/// let share: GpuShare = "0.95".parse()?;
/// assert_eq!((share.of(80_000_000_000), share.to_string().as_str()), (76_000_000_000, "0.95"));
/// assert!("1.5".parse::<GpuShare>().is_err());
/// # Ok::<(), hf_meta_count::memory::InvalidShare>(())
/// ```
// In millionths, so that options can be compared and hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GpuShare(u32);

/// The error for a text that is not a [`GpuShare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a number above 0 and at most 1, such as 0.9")]
pub struct InvalidShare;

impl GpuShare {
    const DIGITS: usize = 6;
    const ONE: u32 = 1_000_000;

    /// Returns this share of a size in bytes, rounded down.
    pub fn of(self, bytes: u64) -> u64 {
        let share = u128::from(bytes) * u128::from(self.0) / u128::from(Self::ONE);
        u64::try_from(share).unwrap_or(bytes)
    }
}

impl Default for GpuShare {
    /// The default of vLLM, 0.9.
    fn default() -> Self {
        Self(Self::ONE / 10 * 9)
    }
}

impl FromStr for GpuShare {
    type Err = InvalidShare;

    fn from_str(text: &str) -> Result<Self, InvalidShare> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(InvalidShare);
        }
        // Further digits would change a size by less than the output shows.
        let digits = &fraction[..fraction.len().min(Self::DIGITS)];
        let digits = format!("0{whole}{digits:0<width$}", width = Self::DIGITS);
        let share = digits.parse().ok().filter(|share| (1..=Self::ONE).contains(share));
        share.map(Self).ok_or(InvalidShare)
    }
}

impl fmt::Display for GpuShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, fraction) = (self.0 / Self::ONE, self.0 % Self::ONE);
        let digits = format!("{fraction:0width$}", width = Self::DIGITS);
        match digits.trim_end_matches('0') {
            "" => whole.fmt(f),
            digits => write!(f, "{whole}.{digits}"),
        }
    }
}

impl Serialize for GpuShare {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / f64::from(Self::ONE))
    }
}

/// The options of vLLM that change the size of its cache. The defaults are those of `vllm serve` on an H100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VllmOptions {
    /// The number of GPUs among which each layer is divided: `--tensor-parallel-size`.
    pub gpus: u64,
    /// The number of stages among which the layers are divided: `--pipeline-parallel-size`.
    pub stages: u64,
    /// The maximum number of tokens of a step: `--max-num-batched-tokens`. The default depends on the GPU.
    pub max_batched_tokens: Option<u64>,
    /// The number of tokens that a draft predicts in each step: `num_speculative_tokens`.
    pub speculative_tokens: Option<u64>,
    /// `true` if a step is prepared while another one runs, so that the tokens of two steps are in flight.
    pub async_scheduling: bool,
    /// The number of tokens of a block: `--block-size`. By default, it depends on the model.
    pub block_size: Option<u64>,
    /// `true` if prefixes are cached.
    pub prefix_caching: bool,
    /// `true` if windows are stored as such. Otherwise, they store all tokens if other layers do.
    pub hybrid_manager: bool,
    /// The share of the memory of each GPU that vLLM uses. Activations are part of it, too.
    pub gpu_memory_utilization: GpuShare,
}

impl Default for VllmOptions {
    fn default() -> Self {
        Self {
            gpus: 1,
            stages: 1,
            max_batched_tokens: None,
            speculative_tokens: None,
            async_scheduling: true,
            block_size: None,
            prefix_caching: true,
            hybrid_manager: true,
            gpu_memory_utilization: GpuShare::default(),
        }
    }
}

impl VllmOptions {
    /// Returns the maximum number of tokens of a step, by default the one on an H100.
    pub fn batched_tokens(&self) -> u64 {
        self.max_batched_tokens.unwrap_or(8_192)
    }

    /// Returns the maximum number of tokens in flight: those of a step in each stage, and of the step that is prepared.
    pub fn tokens_in_flight(&self) -> u64 {
        self.batched_tokens().saturating_mul(self.stages + u64::from(self.async_scheduling))
    }
}

/// The layers of a model in vLLM, on one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VllmLayers {
    /// The layers that store a cache, grouped. States are in bytes.
    pub caches: Vec<LayerCache>,
    /// The default number of tokens of a block.
    pub block_size: u64,
    /// The blocks of a hybrid model are a multiple of this number of tokens, and of `step` if prefixes are cached.
    pub(super) unit: u64,
    pub(super) step: u64,
    /// The additional blocks of a state if prefixes are cached.
    pub(super) checkpoints: u64,
    /// The default of the maximum number of tokens of a step.
    pub(super) batched_tokens: u64,
    /// True unless the class has states only. A hybrid model may have no attention layer, too.
    pub(super) is_hybrid: bool,
}

/// The blocks for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VllmPlan {
    /// The options.
    pub options: VllmOptions,
    /// The number of tokens of a block.
    pub block_size: u64,
    /// The size of a block in bytes, over the layers of its group.
    pub bytes_per_block: u64,
    /// The number of blocks, over all groups.
    pub blocks: u64,
}

/// Layers with equal pages: their kind, the tokens of their window, and the size of a token or a state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Page {
    kind: CacheKind,
    window: Option<u64>,
    size: u128,
}

impl Page {
    fn is_state(&self) -> bool {
        self.kind == CacheKind::State
    }

    /// Returns what layers must have in common to be in one group.
    fn group(&self) -> (CacheKind, Option<u64>) {
        let kind = if self.kind == CacheKind::Index { CacheKind::Full } else { self.kind };
        (kind, self.window)
    }
}

/// The arithmetic for one request: its tokens, the options, and the tokens of a block.
struct Request<'a> {
    layers: &'a VllmLayers,
    options: &'a VllmOptions,
    context: u128,
    block: u128,
    /// True if the blocks of states are aligned with those of prefixes.
    is_aligned: bool,
    /// The size of a state, which is padded to the page of attention.
    state_page: Option<u128>,
}

/// Larger numbers are those of no model, and could overflow.
const MAX_NUMBER: u64 = 1 << 40;

impl VllmLayers {
    /// The tokens of a block in the attention of most models.
    const BLOCK: u64 = 16;

    /// Returns whether all layers have keys and values of heads, in blocks of the usual size.
    pub(super) fn has_attention_only(&self) -> bool {
        let is_state = |cache: &LayerCache| cache.kind == CacheKind::State;
        let has_usual_blocks = self.block_size == Self::BLOCK && self.unit == Self::BLOCK;
        has_usual_blocks && !self.caches.iter().any(is_state)
    }

    /// Returns whether all layers store every token, so that they are one group.
    pub(super) fn has_one_group(&self) -> bool {
        self.caches.iter().all(|cache| matches!(cache.kind, CacheKind::Full | CacheKind::Index))
    }

    /// Computes the blocks of one request; `None` if a number is out of range.
    pub(super) fn plan(
        &self,
        context: u64,
        dtype: CacheDtype,
        options: &VllmOptions,
    ) -> Option<VllmPlan> {
        let max_batched_tokens = options.max_batched_tokens.or(Some(self.batched_tokens));
        let options = &VllmOptions { max_batched_tokens, ..*options };
        let in_flight = options.tokens_in_flight();
        let numbers = [context, in_flight, options.block_size.unwrap_or(1), self.block_size];
        let are_valid = numbers.iter().all(|number| (1..MAX_NUMBER).contains(number));
        let pages = self.pages(dtype, options).filter(|pages| are_valid && !pages.is_empty())?;
        let request = Request::new(self, options, context, &pages);
        let groups: BTreeSet<_> = pages.keys().map(Page::group).ordered();
        if groups.len() > 1 && !options.hybrid_manager {
            // An error of vLLM: `_promote_local_kv_cache_specs` in `v1/core/kv_cache_planning.py`.
            return None;
        }
        let (bytes, blocks) =
            if groups.len() == 1 { request.one_group(&pages) } else { request.groups(&pages) };
        let number = |number: u128| u64::try_from(number).ok();
        Some(VllmPlan {
            options: *options,
            block_size: number(request.block)?,
            bytes_per_block: number(bytes)?,
            blocks: number(blocks)?,
        })
    }

    /// Returns the number of layers by their pages.
    fn pages(&self, dtype: CacheDtype, options: &VllmOptions) -> Option<BTreeMap<Page, u128>> {
        let is_window = |kind| matches!(kind, CacheKind::Window | CacheKind::Chunk);
        let is_full = !options.hybrid_manager
            && self.caches.iter().any(|cache| cache.kind == CacheKind::Full);
        let mut pages = BTreeMap::new();
        for cache in &self.caches {
            let (kind, window) = match cache.kind {
                kind if is_full && is_window(kind) => (CacheKind::Full, None),
                kind => (kind, cache.tokens),
            };
            let size = match kind {
                CacheKind::State | CacheKind::Index => cache.elements,
                _ => dtype.bytes(cache.elements)?,
            };
            if size.max(window.unwrap_or(1)) >= MAX_NUMBER {
                return None;
            }
            let page = Page { kind, window, size: u128::from(size) };
            *pages.entry(page).or_insert(0) += u128::from(cache.layers);
        }
        Some(pages)
    }
}

impl<'a> Request<'a> {
    /// Chooses the tokens of a block. In a hybrid model, the page of attention must hold the largest state.
    fn new(
        layers: &'a VllmLayers,
        options: &'a VllmOptions,
        context: u64,
        pages: &BTreeMap<Page, u128>,
    ) -> Self {
        let mut block = u128::from(options.block_size.unwrap_or(layers.block_size));
        let token = pages.keys().find(|page| !page.is_state()).map(|page| page.size);
        let state = pages.keys().filter(|page| page.is_state()).map(|page| page.size).max();
        let is_aligned = options.prefix_caching && layers.is_hybrid;
        let mut state_page = None;
        if let (Some(token), Some(state)) = (token, state) {
            let unit = block.max(u128::from(layers.unit));
            let step = if is_aligned { u128::from(layers.step) } else { 1 };
            let unit = least_common_multiple(unit, step);
            block = block.max(unit * state.div_ceil(unit * token));
            state_page = Some(block * token);
        }
        Self { layers, options, context: u128::from(context), block, is_aligned, state_page }
    }

    /// Returns the size of the page of a layer in bytes.
    fn page_size(&self, page: &Page) -> u128 {
        let state = self.state_page.unwrap_or(page.size);
        if page.is_state() { state } else { self.block * page.size }
    }

    /// Returns the number of blocks of a layer, with `block` tokens each.
    fn blocks(&self, page: &Page, block: u128) -> u128 {
        let in_flight = u128::from(self.options.tokens_in_flight());
        let window = u128::from(page.window.unwrap_or(1));
        let blocks = |tokens: u128| tokens.min(self.context).div_ceil(block);
        match page.kind {
            // A window may begin in the middle of a block.
            CacheKind::Window => blocks(window - 1 + in_flight) + 1,
            CacheKind::Chunk => blocks(window + in_flight),
            CacheKind::Cross => u128::from(self.options.batched_tokens()).div_ceil(block),
            CacheKind::State if self.is_aligned => 2 + u128::from(self.layers.checkpoints),
            CacheKind::State => 1,
            _ => blocks(self.context),
        }
    }

    /// Returns the size of a block and the number of blocks for layers of one kind.
    fn one_group(&self, pages: &BTreeMap<Page, u128>) -> (u128, u128) {
        let bytes = pages.iter().map(|(page, layers)| layers * self.page_size(page)).sum();
        let blocks = pages.keys().map(|page| self.blocks(page, self.block)).max();
        (bytes, blocks.unwrap_or(0))
    }

    /// Returns the size of a block and the number of blocks for layers of several kinds.
    fn groups(&self, pages: &BTreeMap<Page, u128>) -> (u128, u128) {
        let largest = pages.keys().map(|page| self.page_size(page)).max().unwrap_or(1);
        let counts = || pages.values().copied();
        let (fewest, most) = (counts().min().unwrap_or(1), counts().max().unwrap_or(1));
        // Groups of equal length, which waste no more than half a group.
        let length = if 2 * most < 3 * fewest { most } else { fewest };
        let groups = |layers: u128| layers.div_ceil(length);
        let longest = counts().map(|layers| layers.div_ceil(groups(layers))).max().unwrap_or(0);
        let blocks = pages.iter().map(|(page, layers)| {
            let size = self.page_size(page);
            let is_scaled = !page.is_state() && largest.is_multiple_of(size);
            let block = if is_scaled { self.block * (largest / size) } else { self.block };
            groups(*layers) * self.blocks(page, block)
        });
        (longest * largest, blocks.sum())
    }
}

fn least_common_multiple(one: u128, other: u128) -> u128 {
    let (mut divisor, mut rest) = (one, other);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    one / divisor * other
}
