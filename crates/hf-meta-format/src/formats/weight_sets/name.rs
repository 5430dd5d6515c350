//! Parses names of weights.

use crate::formats::path::split_folder;
use crate::formats::{Formats, NumberedName, RepoPath, WeightFileName};

/// The distribution of weights over files. If a model has several forms, the first in this order is used, as loaders
/// do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sharding {
    /// One file.
    File,
    /// Shards with an index.
    Index,
    /// Shards without an index, matched by name.
    Shards,
}

/// The parts of the name of a set of weights.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WeightsName {
    /// The folder without a trailing slash; empty for the root folder.
    pub(super) folder: String,
    /// The parts of the file name. The model name, such as `adapter_model`, has no step.
    pub(super) file: WeightFileName,
    /// The training step or epoch of the weights; `None` for the result of the run.
    pub(super) step: Option<u64>,
    pub(super) sharding: Sharding,
    /// The index of the format in the list of formats.
    pub(super) format: usize,
}

/// The common path of files that are numbered without their total.
pub(super) const SERIES: &str = "model-*.safetensors";

/// A shard number and the number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardNumber {
    pub(super) number: u32,
    pub(super) total: u32,
}

impl WeightsName {
    /// Returns the name of the set that a file belongs to, the path of the set, and the shard number. Returns `None`
    /// if the file is neither weights nor an index.
    pub(super) fn parse(
        formats: &Formats,
        path: &RepoPath,
    ) -> Option<(Self, RepoPath, Option<ShardNumber>)> {
        let (folder, file) = split_folder(path.as_str());
        if let Some((position, format, text)) = formats.find_index(file) {
            let name = Self::new(folder, format.split_name(&text)?, Sharding::Index, position);
            return Some((name, path.clone(), None));
        }
        let (position, format) = formats.find(file)?;
        let extension = format.match_extension(file)?;
        let text = file.strip_suffix(extension)?;
        let name = |sharding, text: &str| {
            Some(Self::new(folder, format.split_name(text)?, sharding, position))
        };
        let Some((parts, shard)) = find_shard(text) else {
            return Some((name(Sharding::File, text)?, path.clone(), None));
        };
        let NumberedName { stem, total, end, .. } = parts;
        let common = RepoPath::new_unchecked(&format!("{stem}*-of-{total}{end}{extension}"));
        let text = format!("{}{end}", &stem[..stem.len() - 1]);
        Some((name(Sharding::Shards, &text)?, path.sibling(&common), Some(shard)))
    }

    fn new(folder: &str, mut file: WeightFileName, sharding: Sharding, format: usize) -> Self {
        let (model, step) = split_step(&file.model);
        file.model = model.to_owned();
        // Large variants have their own folder.
        let has_own_folder = file.is_quantized && is_variant_folder(folder, &file.variant);
        let folder = if has_own_folder { split_folder(folder).0 } else { folder }.to_owned();
        Self { folder, file, step, sharding, format }
    }

    /// Returns the name of one file with this model, variant and step, which is the same for all forms of the model.
    pub(super) fn unsharded(&self) -> Self {
        Self { sharding: Sharding::File, ..self.clone() }
    }

    /// Returns whether both names belong to the same model, in any form or variant and at any step.
    pub(super) fn is_same_model(&self, other: &Self) -> bool {
        (&self.folder, &self.file.model) == (&other.folder, &other.file.model)
    }
}

/// The file name of adapters written by `diffusers`.
pub(super) const LORA: &str = "pytorch_lora_weights";

/// The folder and the name of a set: the standard ones in the order of huggingface.js, then others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Location {
    Model,
    Transformer,
    Unet,
    DiffusionModel,
    Consolidated,
    Adapter,
    Lora,
    FirstModule,
    /// The root folder, with any other name.
    Root,
    Subfolder,
}

impl Location {
    /// Returns the location of a set in a folder that is searched like a repository.
    pub(super) fn of(name: &WeightsName, root: &str, has_modules: bool) -> Self {
        let folder = name.folder.strip_prefix(root).unwrap_or(&name.folder);
        match (folder.trim_start_matches('/'), &*name.file.model) {
            ("", _) if name.step.is_some() => Self::Root,
            ("", "model") => Self::Model,
            ("transformer", "diffusion_pytorch_model") => Self::Transformer,
            ("unet", "diffusion_pytorch_model") => Self::Unet,
            ("", "diffusion_pytorch_model") => Self::DiffusionModel,
            ("", "consolidated") => Self::Consolidated,
            ("", "adapter_model") => Self::Adapter,
            ("", LORA) => Self::Lora,
            (module, "model") if has_modules && is_first_module(module) => Self::FirstModule,
            ("", _) => Self::Root,
            _ => Self::Subfolder,
        }
    }
}

/// Returns whether a folder is the first module of a `sentence-transformers` model, which contains the model.
fn is_first_module(folder: &str) -> bool {
    folder.starts_with("0_") && !folder.contains('/')
}

/// Returns whether the last folder of a path is named after a variant.
fn is_variant_folder(folder: &str, variant: &str) -> bool {
    split_folder(folder).1.to_ascii_lowercase().contains(&variant.to_ascii_lowercase())
}

/// Returns the number of a shard and the number of shards, according to the name of a file.
pub fn shard_number(path: &RepoPath) -> Option<(u32, u32)> {
    let (.., shard) = WeightsName::parse(Formats::built_in(), path)?;
    shard.map(|shard| (shard.number, shard.total))
}

/// Returns the expected paths of all shards of a set, at most `limit`, given one of them, such as
/// `model-00002-of-00072.safetensors`. Returns none if its name has no numbers.
pub fn numbered_shards(shard: &RepoPath, limit: u32) -> Vec<RepoPath> {
    let file = shard.file_name();
    let Some((name, ShardNumber { number, total })) = find_shard(file.as_str()) else {
        return Vec::new();
    };
    let NumberedName { stem, number: digits, total: of, end } = name;
    let width = digits.len();
    // A few sets begin with 0.
    let first = number.min(1);
    let paths = (first..first.saturating_add(total.min(limit))).map(|number| {
        let name = format!("{stem}{number:0width$}-of-{of}{end}");
        shard.sibling(&RepoPath::new_unchecked(&name))
    });
    paths.collect()
}

/// Returns whether a path is the pattern of shards without an index, with a `*` in place of the number.
pub fn is_shard_pattern(formats: &Formats, path: &RepoPath) -> bool {
    let is_pattern = path.as_str().contains("*-of-") || path.file_name().as_str() == SERIES;
    is_pattern && formats.find(path.as_str()).is_some()
}

/// Splits a model name into the training run's name and the step, as in `0000100_adapters` (MLX), `name-000001` and
/// `name-step00000500` (kohya), and `learned_embeds-steps-500` (diffusers).
fn split_step(text: &str) -> (&str, Option<u64>) {
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((digits, name)) = text.split_once('_')
        && digits.len() == 7
        && is_number(digits)
    {
        return (name, digits.parse().ok());
    }
    let name = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &text[name.len()..];
    let suffixes = ["-steps-", "-step-", "-step"];
    let with_word = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
    let epoch = || if digits.len() == 6 { name.strip_suffix('-') } else { None };
    match (with_word.or_else(epoch), digits.parse().ok()) {
        (Some(name), Some(step)) if !name.is_empty() => (name, Some(step)),
        _ => (text, None),
    }
}

/// Finds the shard number in a name without extension, such as `model-00001-of-00072` or
/// `model_00001-of-00072.fp16`. Numbers have five or six digits, as in huggingface.js.
fn find_shard(text: &str) -> Option<(NumberedName<'_>, ShardNumber)> {
    let number = |digits: &str| matches!(digits.len(), 5 | 6).then(|| digits.parse().ok())?;
    NumberedName::split(text).find_map(|parts| {
        let shard = ShardNumber { number: number(parts.number)?, total: number(parts.total)? };
        let is_whole = parts.end.is_empty() || parts.end.starts_with('.');
        (parts.stem.ends_with(['-', '_']) && is_whole).then_some((parts, shard))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats a name as one line: path of the set, folder, stem, variant, form, shard.
    fn described(path: &str) -> String {
        let path = path.parse().unwrap();
        WeightsName::parse(Formats::built_in(), &path).map_or_else(
            String::new,
            |(name, path, shard)| {
                let shard = shard
                    .map_or_else(String::new, |shard| format!(" {}/{}", shard.number, shard.total));
                let WeightsName { folder, file, step: at, sharding, .. } = name;
                let at = at.map_or_else(String::new, |step| format!(" step {step}"));
                let WeightFileName { model, variant, .. } = file;
                format!("{path} = [{folder}] [{model}]{at} [{variant}] {sharding:?}{shard}")
            },
        )
    }

    #[test]
    fn names_are_split_into_their_parts() {
        let cases = [
            ("model.safetensors", "model.safetensors = [] [model] [] File"),
            (
                "a/b/model.fp16.safetensors",
                "a/b/model.fp16.safetensors = [a/b] [model] [fp16] File",
            ),
            (
                "sd_xl_base_1.0.safetensors",
                "sd_xl_base_1.0.safetensors = [] [sd_xl_base_1.0] [] File",
            ),
            (
                "model-00001-of-00003.safetensors",
                "model-*-of-00003.safetensors = [] [model] [] Shards 1/3",
            ),
            (
                "model_00072-of-00072.safetensors",
                "model_*-of-00072.safetensors = [] [model] [] Shards 72/72",
            ),
            (
                "x/model-00001-of-000163.safetensors",
                "x/model-*-of-000163.safetensors = [x] [model] [] Shards 1/163",
            ),
            (
                "unet/diffusion_pytorch_model-00001-of-00002.fp16.safetensors",
                "unet/diffusion_pytorch_model-*-of-00002.fp16.safetensors = [unet] \
                 [diffusion_pytorch_model] [fp16] Shards 1/2",
            ),
            (
                "model.fp16-00001-of-00002.safetensors",
                "model.fp16-*-of-00002.safetensors = [] [model] [fp16] Shards 1/2",
            ),
            ("model.safetensors.index.json", "model.safetensors.index.json = [] [model] [] Index"),
            (
                "model.safetensors.index.fp16.json",
                "model.safetensors.index.fp16.json = [] [model] [fp16] Index",
            ),
            (
                "model.fp16.safetensors.index.json",
                "model.fp16.safetensors.index.json = [] [model] [fp16] Index",
            ),
            (
                "model.safetensors.fp16.index.json",
                "model.safetensors.fp16.index.json = [] [model] [fp16] Index",
            ),
            ("a-1-of-2.safetensors", "a-1-of-2.safetensors = [] [a-1-of-2] [] File"),
            (
                "00001-of-00002.safetensors",
                "00001-of-00002.safetensors = [] [00001-of-00002] [] File",
            ),
            (
                "x-00001-of-00002-b.safetensors",
                "x-00001-of-00002-b.safetensors = [] [x-00001-of-00002-b] [] File",
            ),
            (
                "0000100_adapters.safetensors",
                "0000100_adapters.safetensors = [] [adapters] step 100 [] File",
            ),
            ("lora-000004.safetensors", "lora-000004.safetensors = [] [lora] step 4 [] File"),
            (
                "lora-step00000500.safetensors",
                "lora-step00000500.safetensors = [] [lora] step 500 [] File",
            ),
            (
                "learned_embeds-steps-500.safetensors",
                "learned_embeds-steps-500.safetensors = [] [learned_embeds] step 500 [] File",
            ),
            ("llama-7.safetensors", "llama-7.safetensors = [] [llama-7] [] File"),
            ("-000004.safetensors", "-000004.safetensors = [] [-000004] [] File"),
            (
                "x-step99999999999999999999.safetensors",
                "x-step99999999999999999999.safetensors = [] [x-step99999999999999999999] [] File",
            ),
            (".safetensors", ".safetensors = [] [] [] File"),
            ("pytorch_model.bin.index.json", "pytorch_model.bin.index.json = [] [model] [] Index"),
            (
                "pytorch_model-00001-of-00002.fp16.bin",
                "pytorch_model-*-of-00002.fp16.bin = [] [model] [fp16] Shards 1/2",
            ),
            ("model.safetensors.indexes.json", ""),
            ("model.safetensors.json", ""),
            ("model_index.json", ""),
            ("model.bin", "model.bin = [] [model] [] File"),
            ("optimizer.bin", ""),
            ("safetensors", ""),
        ];
        for (path, expected) in cases {
            assert_eq!(described(path), expected);
        }
    }

    #[test]
    fn one_shard_shows_the_names_of_all() {
        let names = |shard: &str, limit| {
            let shards = numbered_shards(&shard.parse().unwrap(), limit);
            shards.iter().map(RepoPath::to_string).collect::<Vec<_>>().join(" ")
        };
        let expected = "x/m_00001-of-000002.fp16.safetensors x/m_00002-of-000002.fp16.safetensors";
        assert_eq!(names("x/m_00002-of-000002.fp16.safetensors", 9), expected);
        assert_eq!(names("m-00000-of-00002.bin", 9), "m-00000-of-00002.bin m-00001-of-00002.bin");
        assert_eq!(names("m-00007-of-99999.bin", 1), "m-00001-of-99999.bin");
        for other in [
            "model.safetensors",
            "a-1-of-2.safetensors",
            "00001-of-00002.safetensors",
            "x.bin.index.json",
        ] {
            assert_eq!(names(other, 9), "", "{other}");
        }
    }

    #[test]
    fn every_form_of_an_index_is_recognized() {
        for path in [
            "model.safetensors.index.json",
            "unet/model.safetensors.index.fp16.json",
            "model.safetensors.fp16.index.json",
        ] {
            assert!(path.parse::<RepoPath>().unwrap().is_index(), "{path}");
        }
        for path in [
            "model_index.json",
            "model.safetensors",
            "x.index.fp16.json",
            "a.safetensors.index./b.json",
        ] {
            assert!(!path.parse::<RepoPath>().unwrap().is_index(), "{path}");
        }
    }
}
