//! The loader that a configuration states, and the names of the weights that it finds.

use crate::base::json_object::{JsonObject, parse};
use crate::formats::RepoPath;

/// A loader that finds weights by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatedLoader {
    Transformers,
    Diffusers,
    Peft,
}

/// The names of a file, of an index, of a pickle, and of an index of pickles.
type Names = [&'static str; 4];

impl StatedLoader {
    /// Returns the loader that wrote `config.json`, or `adapter_config.json` next to an adapter; `None` if neither states
    /// one, or if it states the name of the weights, too.
    pub(crate) fn of(config: Option<&[u8]>, adapter: Option<&[u8]>) -> Option<Self> {
        if let Some(adapter) = adapter {
            let adapter: JsonObject<'_> = parse(adapter).ok()?;
            return adapter.raw("peft_type").map(|_| Self::Peft);
        }
        let config: JsonObject<'_> = parse(config?).ok()?;
        let has = |key: &str| config.raw(key).is_some();
        if has("_class_name") && has("_diffusers_version") {
            return Some(Self::Diffusers);
        }
        let classes: Option<Vec<String>> = config.get("architectures");
        let has_class = classes.is_some_and(|classes| !classes.is_empty());
        // MLX loads all files whose names begin with `model` or `weights`, and states its quantization at the root.
        let is_other = has("transformers_weights") || has("quantization");
        (has("model_type") && has_class && !is_other).then_some(Self::Transformers)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Transformers => "transformers",
            Self::Diffusers => "diffusers",
            Self::Peft => "PEFT",
        }
    }

    /// Returns the names that the loader looks for, if it is given no variant. Sources: `_get_resolved_checkpoint_files`
    /// in `modeling_utils.py` of transformers 5.23, `utils/constants.py` of diffusers 0.42.1 and of PEFT 0.21.2.
    pub(crate) fn names(self) -> Names {
        match self {
            Self::Transformers => [
                "model.safetensors",
                "model.safetensors.index.json",
                "pytorch_model.bin",
                "pytorch_model.bin.index.json",
            ],
            Self::Diffusers => [
                "diffusion_pytorch_model.safetensors",
                "diffusion_pytorch_model.safetensors.index.json",
                "diffusion_pytorch_model.bin",
                "diffusion_pytorch_model.bin.index.json",
            ],
            // PEFT reads no index.
            Self::Peft => [
                "adapter_model.safetensors",
                "adapter_model.safetensors",
                "adapter_model.bin",
                "adapter_model.bin",
            ],
        }
    }

    /// Returns the name that a set should have; `None` for files that are no weights of these loaders.
    pub(crate) fn expected(self, path: &RepoPath) -> Option<&'static str> {
        let [file, index, pickle, pickle_index] = self.names();
        let text = path.as_str();
        let has_end = |end: &str| text.to_ascii_lowercase().ends_with(end);
        match path.is_index() {
            true if text.contains(".bin.") => Some(pickle_index),
            true => Some(index),
            false if has_end(".safetensors") => Some(file),
            false if has_end(".bin") => Some(pickle),
            false => None,
        }
    }
}
