//! What the name of a file says of the weights in it.

use crate::formats::RepoPath;

/// How weights are spread over files. Where a model is there in several forms, the first is taken, as
/// loaders do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// One file.
    File,
    /// Shards that an index lists.
    Index,
    /// Shards whose names alone say that they belong together.
    Shards,
}

/// What a set of weights is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WeightsName {
    /// Without a slash at its end; empty at the top.
    pub(super) folder: String,
    /// `model`, `adapter_model`.
    pub(super) stem: String,
    /// `fp16`; empty for the plain one.
    pub(super) variant: String,
    pub(super) form: Form,
}

/// The place of a shard among its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardNumber {
    pub(super) number: u32,
    pub(super) total: u32,
}

/// The names that libraries give to weights; only after them a `.fp16` is known to be a variant and not
/// the end of a version such as `1.0`.
const STEMS: [&str; 5] =
    ["model", "diffusion_pytorch_model", "consolidated", "adapter_model", "pytorch_lora_weights"];

impl WeightsName {
    /// The name of the set that a file is of, the path that all files of the set have in common, and
    /// which shard of it the file is; `None` for a file that is neither weights nor an index of them.
    pub(super) fn parse(path: &RepoPath) -> Option<(Self, RepoPath, Option<ShardNumber>)> {
        let (folder, file) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
        let name = |form, text: &str| {
            let (stem, variant) = split_variant(text);
            Self { folder: folder.to_owned(), stem, variant, form }
        };
        if let Some(text) = indexed(file) {
            return Some((name(Form::Index, &text), path.clone(), None));
        }
        let text = file.strip_suffix(".safetensors")?;
        let Some((before, shard, after)) = split_shard(text) else {
            return Some((name(Form::File, text), path.clone(), None));
        };
        let common = format!("{before}*-of-{after}.safetensors");
        let variant = after.trim_start_matches(|c: char| c.is_ascii_digit());
        let text = format!("{}{variant}", &before[..before.len() - 1]);
        Some((
            name(Form::Shards, &text),
            path.sibling(&RepoPath::new_unchecked(&common)),
            Some(shard),
        ))
    }

    /// What a set has in common with those of another form: folder, stem and variant.
    pub(super) fn without_form(self) -> (String, String, String) {
        (self.folder, self.stem, self.variant)
    }

    /// Whether both are the same model, be it in another form or variant.
    pub(super) fn is_same_model(&self, other: &Self) -> bool {
        (&self.folder, &self.stem) == (&other.folder, &other.stem)
    }
}

/// Whether the name of a file says which shard it is, and of how many.
pub(crate) fn names_shard(path: &RepoPath) -> bool {
    WeightsName::parse(path).is_some_and(|(.., shard)| shard.is_some())
}

/// Whether a path is that of shards without an index, as [`WeightsName::parse`] writes it.
pub(crate) fn names_shards(path: &RepoPath) -> bool {
    path.as_str().contains("*-of-") && path.is_safetensors()
}

/// What an index is of. A variant stands behind its name, before or after the word `index`: `diffusers`
/// has written all three.
fn indexed(file: &str) -> Option<String> {
    let (stem, rest) = file.strip_suffix(".json")?.split_once(".safetensors")?;
    let variant = match rest.strip_suffix(".index") {
        Some(variant) => variant,
        None => rest.strip_prefix(".index").filter(|variant| variant.starts_with('.'))?,
    };
    Some(format!("{stem}{variant}"))
}

fn split_variant(text: &str) -> (String, String) {
    let variant = |stem: &str| text.strip_prefix(stem)?.strip_prefix('.');
    let found = STEMS.iter().find_map(|stem| Some((*stem, variant(stem)?)));
    let (stem, variant) = found.unwrap_or((text, ""));
    (stem.to_owned(), variant.to_owned())
}

/// Splits `model-00001-of-00072`, also with `_` or with a variant behind it, into what is before the
/// number, the shard, and what follows `-of-`. Numbers have five or six digits, as in huggingface.js.
fn split_shard(text: &str) -> Option<(&str, ShardNumber, &str)> {
    text.match_indices("-of-").find_map(|(at, of)| {
        let (head, after) = (&text[..at], &text[at + of.len()..]);
        let before = head.trim_end_matches(|c: char| c.is_ascii_digit());
        let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
        let shard = ShardNumber {
            number: number(&head[before.len()..])?,
            total: number(&after[..after.len() - rest.len()])?,
        };
        let is_whole = rest.is_empty() || rest.starts_with('.');
        (before.ends_with(['-', '_']) && is_whole).then_some((before, shard, after))
    })
}

fn number(digits: &str) -> Option<u32> {
    matches!(digits.len(), 5 | 6).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a name in a line: path of the set, stem, variant, form, shard.
    fn described(path: &str) -> String {
        let path = path.parse().unwrap();
        WeightsName::parse(&path).map_or_else(String::new, |(name, path, shard)| {
            let shard = shard
                .map_or_else(String::new, |shard| format!(" {}/{}", shard.number, shard.total));
            let WeightsName { folder, stem, variant, form } = name;
            format!("{path} = [{folder}] [{stem}] [{variant}] {form:?}{shard}")
        })
    }

    #[test]
    fn names_of_weights() {
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
            (".safetensors", ".safetensors = [] [] [] File"),
            ("pytorch_model.bin.index.json", ""),
            ("model.safetensors.indexes.json", ""),
            ("model.safetensors.json", ""),
            ("model_index.json", ""),
            ("model.bin", ""),
            ("safetensors", ""),
        ];
        for (path, expected) in cases {
            assert_eq!(described(path), expected);
        }
    }

    #[test]
    fn every_form_of_an_index_is_taken_for_one() {
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
