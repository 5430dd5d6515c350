//! The list of formats.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use super::content::{ByContent, FileContent};
use super::path::split_folder;
use super::{Format, RepoPath, WeightFileName, gguf, pytorch, safetensors};
use crate::base::sort::Ordered;

/// The accepted formats in order of preference: safetensors, the other built-in formats, and the formats of the caller.
#[derive(Clone, Debug)]
pub struct Formats(Arc<[Arc<dyn Format>]>);

impl Formats {
    /// Returns the built-in formats.
    pub fn built_in() -> &'static Self {
        static BUILT_IN: LazyLock<Formats> = LazyLock::new(|| {
            Formats(Arc::new([
                Arc::new(ByContent(safetensors::Safetensors, FileContent::Safetensors)),
                Arc::new(ByContent(gguf::Gguf, FileContent::Gguf)),
                Arc::new(ByContent(pytorch::PyTorch, FileContent::PyTorch)),
            ]))
        });
        &BUILT_IN
    }

    /// Returns the formats with one more.
    #[must_use]
    pub fn with(&self, format: Arc<dyn Format>) -> Self {
        Self(self.0.iter().cloned().chain([format]).collect())
    }

    /// Returns whether no two formats have the same name or extension. The second one would never be used.
    pub fn are_distinct(&self) -> bool {
        let are_distinct = |text: fn(&dyn Format) -> &'static str| {
            let texts: BTreeSet<_> = self.0.iter().map(|format| text(&**format)).ordered();
            texts.len() == self.0.len()
        };
        are_distinct(|format| format.name()) && are_distinct(|format| format.extension())
    }

    /// Restricts the list to the format with a name; `None` if it does not exist.
    pub fn only(&self, name: &str) -> Option<Self> {
        let found = self.0.iter().find(|format| format.name() == name)?;
        Some(Self(Arc::new([Arc::clone(found)])))
    }

    /// Returns the index of safetensors, whose weights have standard names and index files; `None` if it is not
    /// accepted.
    pub fn safetensors(&self) -> Option<usize> {
        self.0.iter().position(|format| format.extension() == safetensors::EXTENSION)
    }

    /// Returns the index and the format for a file extension; `None` if no format matches.
    pub fn find(&self, path: &str) -> Option<(usize, &dyn Format)> {
        let mut formats = self.0.iter().map(AsRef::as_ref).enumerate();
        formats.find(|(_, format)| format.match_extension(path).is_some())
    }

    /// Returns the format for the name of a file or an index, or safetensors if no format matches. The content of the file
    /// decides what it is parsed as.
    pub fn find_or_safetensors(&self, path: &RepoPath) -> &dyn Format {
        let index = self.find_index(path.as_str()).map(|(_, format, _)| format);
        let found = index.or_else(|| Some(self.find(path.as_str())?.1));
        found.unwrap_or(&ByContent(safetensors::Safetensors, FileContent::Safetensors))
    }

    /// Returns the index and the format of the shards of an index, and the name of the weights with their variant.
    /// Returns `None` if the path is not named like an index in some format.
    pub fn find_index(&self, path: &str) -> Option<(usize, &dyn Format, String)> {
        let (_, file) = split_folder(path);
        let mut formats = self.0.iter().map(AsRef::as_ref).enumerate();
        formats.find_map(|(at, format)| {
            Some((at, format, safetensors::split_index(file, format.extension())?))
        })
    }

    /// Returns the name of the format at an index.
    pub fn name(&self, position: usize) -> &'static str {
        self.0.get(position).map_or("", |format| format.name())
    }

    /// Returns the glob pattern for weight files, such as `*.gguf`.
    pub fn pattern(&self) -> String {
        let patterns: Vec<_> = self.0.iter().map(|one| format!("*{}", one.extension())).collect();
        patterns.join(" or ")
    }

    /// Returns whether a text is just the name of a quantization in some format.
    pub fn is_quantization(&self, text: &str) -> bool {
        let is_one = |parts: WeightFileName| parts.is_quantized && parts.model.is_empty();
        self.0.iter().any(|format| format.split_name(text).is_some_and(is_one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_gives_the_format() {
        let cases = [
            ("model.safetensors", Some((0, "safetensors"))),
            ("Q4_K_M/a-00001-of-00002.gguf", Some((1, "gguf"))),
            ("model.gguf.safetensors", Some((0, "safetensors"))),
            ("pytorch_model.bin", Some((2, "pytorch"))),
            ("a/last.ckpt", Some((2, "pytorch"))),
            ("a/training_args.bin", Some((2, "pytorch"))),
            ("gguf", None),
        ];
        for (path, expected) in cases {
            let found = Formats::built_in().find(path).map(|(at, format)| (at, format.name()));
            assert_eq!(found, expected, "{path}");
            let name = Formats::built_in().find_or_safetensors(&path.parse().unwrap()).name();
            assert_eq!(name, expected.map_or("safetensors", |(_, name)| name));
            assert!(expected.is_none_or(|(at, name)| Formats::built_in().name(at) == name));
        }
        assert_eq!((Formats::built_in().safetensors(), Formats::built_in().name(3)), (Some(0), ""));
        assert_eq!([gguf::Gguf.title(), safetensors::Safetensors.title()], ["GGUF", "safetensors"]);
        for (path, expected) in [
            ("a/pytorch_model.bin.index.json", "pytorch"),
            ("diffusion_pytorch_model.bin.index.fp16.json", "pytorch"),
            ("model.safetensors.index.json", "safetensors"),
        ] {
            let format = Formats::built_in().find_or_safetensors(&path.parse().unwrap());
            assert_eq!(format.name(), expected, "{path}");
        }
    }

    #[test]
    fn a_variant_may_name_a_quantization() {
        let texts = ["Q4_K_M", "bf16", "fp16", "Llama-Q4_K_M", "model", ""];
        let found = texts.map(|text| Formats::built_in().is_quantization(text));
        assert_eq!(found, [true, true, true, false, false, false]);
    }

    #[test]
    fn a_single_format_can_be_selected() {
        let gguf = Formats::built_in().only("gguf").unwrap();
        assert_eq!((gguf.name(0), gguf.name(1), gguf.safetensors()), ("gguf", "", None));
        assert!(Formats::built_in().only("onnx").is_none());
        let added = gguf.with(Arc::new(safetensors::Safetensors));
        assert_eq!((added.name(1), added.safetensors()), ("safetensors", Some(1)));
    }
}
