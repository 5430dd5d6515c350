//! The widths that two parts of a repository share, according to their configurations.

use serde_json::value::RawValue;

use super::parts::{Parts, RepoPart};
use crate::results::Finding;
use hf_meta_format::base::json_object::{JsonObject, parse, standard_json, strings};
use hf_meta_format::formats::{RepoPath, clip};

/// The keys of a text encoder's width, in order of precedence.
const WIDTHS: [&str; 4] = ["hidden_size", "d_model", "dim", "n_embd"];

/// A component, and the keys of its width in order of precedence.
type Source = (&'static str, &'static [&'static str]);

/// The keys of a diffusion model with widths of other components: the class, the key, and the components with the keys of
/// their widths. The width is their sum.
///
/// Sources: the calls of the text encoders in the pipelines of diffusers 0.42 (`encode_prompt`), and the layers of the models
/// that take their results.
const JOINS: [(&str, &str, &[Source]); 18] = [
    // The autoencoder decodes the results.
    ("UNet2DConditionModel", "out_channels", &[("vae", &["latent_channels"])]),
    ("FluxTransformer2DModel", "joint_attention_dim", &[("text_encoder_2", &WIDTHS)]),
    ("FluxTransformer2DModel", "pooled_projection_dim", &[("text_encoder", &WIDTHS)]),
    ("SD3Transformer2DModel", "joint_attention_dim", &[("text_encoder_3", &WIDTHS)]),
    (
        "SD3Transformer2DModel",
        "pooled_projection_dim",
        &[("text_encoder", &["projection_dim"]), ("text_encoder_2", &["projection_dim"])],
    ),
    ("SD3Transformer2DModel", "in_channels", &[("vae", &["latent_channels"])]),
    ("WanTransformer3DModel", "text_dim", &[("text_encoder", &WIDTHS)]),
    ("WanTransformer3DModel", "out_channels", &[("vae", &["z_dim"])]),
    ("ChromaTransformer2DModel", "joint_attention_dim", &[("text_encoder", &WIDTHS)]),
    ("LTXVideoTransformer3DModel", "caption_channels", &[("text_encoder", &WIDTHS)]),
    ("PixArtTransformer2DModel", "caption_channels", &[("text_encoder", &WIDTHS)]),
    ("SanaTransformer2DModel", "caption_channels", &[("text_encoder", &WIDTHS)]),
    ("CogVideoXTransformer3DModel", "text_embed_dim", &[("text_encoder", &WIDTHS)]),
    ("MochiTransformer3DModel", "text_embed_dim", &[("text_encoder", &WIDTHS)]),
    ("Lumina2Transformer2DModel", "cap_feat_dim", &[("text_encoder", &WIDTHS)]),
    ("AuraFlowTransformer2DModel", "joint_attention_dim", &[("text_encoder", &WIDTHS)]),
    ("HunyuanDiT2DModel", "cross_attention_dim", &[("text_encoder", &WIDTHS)]),
    ("HunyuanDiT2DModel", "cross_attention_dim_t5", &[("text_encoder_2", &WIDTHS)]),
];

/// The width of the vectors between two modules of sentence-transformers, and the file that states it.
type Width<'a> = Option<(u64, &'a RepoPath)>;

/// The configurations of parts, by path.
pub(crate) struct PartConfigs<'a>(Vec<(&'a RepoPath, JsonObject<'a>)>);

impl<'a> PartConfigs<'a> {
    fn of(&self, part: &RepoPart) -> Option<&(&'a RepoPath, JsonObject<'a>)> {
        let is_of_part = |(path, _): &&(&RepoPath, JsonObject<'_>)| path.folder() == part.folder;
        self.0.iter().find(is_of_part)
    }
}

/// Returns the first of several keys that is a positive number.
fn first(config: &JsonObject<'_>, keys: &[&str]) -> Option<u64> {
    keys.iter().find_map(|key| config.number(key).filter(|number| *number > 0))
}

impl Parts {
    /// Returns the configurations of modules without weights.
    pub(crate) fn configs(&self) -> impl Iterator<Item = RepoPath> {
        let is_pooling = |part: &&RepoPart| part.class == "Pooling";
        let pooling = self.parts.iter().filter(is_pooling);
        pooling.map(|part| RepoPath::join(part.folder.as_ref(), "config.json"))
    }

    /// Compares the widths that parts share. `configs` are the configurations by path.
    pub(crate) fn joins(&self, configs: &[(RepoPath, Vec<u8>)]) -> Vec<Finding> {
        let texts: Vec<_> =
            configs.iter().map(|(path, json)| (path, standard_json(json))).collect();
        let configs = texts.iter().filter_map(|(path, json)| Some((*path, parse(json).ok()?)));
        let configs = PartConfigs(configs.collect());
        if self.loader == Some("diffusers") {
            self.joins_of_components(&configs)
        } else {
            self.joins_of_modules(&configs)
        }
    }

    fn joins_of_components(&self, configs: &PartConfigs<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for part in &self.parts {
            let Some((path, config)) = configs.of(part) else { continue };
            findings.extend(other_class(part, path, config));
            findings.extend(self.text_width(part, path, config, configs));
            for (_, key, others) in JOINS.iter().filter(|(class, ..)| *class == part.class) {
                let width = |(name, keys): &(&str, &[&str])| {
                    let other = self.parts.iter().find(|part| part.name == *name)?;
                    let (_, config) = configs.of(other)?;
                    let nested = || config.get::<JsonObject<'_>>("text_config");
                    first(config, keys).or_else(|| first(&nested()?, keys))
                };
                let widths: Option<Vec<_>> = others.iter().map(width).collect();
                let (Some(widths), Some(found)) = (widths, config.number(key)) else { continue };
                let expected = widths.iter().fold(0, |sum: u64, width| sum.saturating_add(*width));
                if expected != found {
                    let names: Vec<_> = others.iter().map(|(name, _)| *name).collect();
                    findings.push(Finding::WidthMismatch {
                        file: clip(path.as_str()),
                        key: (*key).to_owned(),
                        found,
                        other: names.join(" and "),
                        expected,
                    });
                }
            }
        }
        findings
    }

    /// Compares the cross attention of a `UNet` with the widths of its text encoders. Stable Diffusion XL concatenates two
    /// (`encode_prompt` of its pipelines in diffusers 0.42); others project them to another width.
    fn text_width(
        &self,
        part: &RepoPart,
        path: &RepoPath,
        config: &JsonObject<'_>,
        configs: &PartConfigs<'_>,
    ) -> Option<Finding> {
        const KEY: &str = "cross_attention_dim";
        const CLASSES: [&str; 2] = ["CLIPTextModel", "CLIPTextModelWithProjection"];

        let is_projected = config.number("encoder_hid_dim").is_some();
        if is_projected || part.class != "UNet2DConditionModel" {
            return None;
        }
        let found = config.number(KEY)?;
        let encoders = self.parts.iter().filter(|part| part.name.starts_with("text_encoder"));
        let (mut names, mut expected) = (Vec::new(), 0_u64);
        for encoder in encoders {
            let (_, config) = configs.of(encoder)?;
            if !CLASSES.contains(&&*encoder.class) {
                return None;
            }
            let width = config.number("hidden_size").filter(|width| *width > 0)?;
            expected = expected.checked_add(width)?;
            names.push(&*encoder.name);
        }
        (!names.is_empty() && expected != found).then(|| Finding::WidthMismatch {
            file: clip(path.as_str()),
            key: KEY.to_owned(),
            found,
            other: names.join(" and "),
            expected,
        })
    }

    /// Follows the width of the vectors through the modules of sentence-transformers.
    fn joins_of_modules(&self, configs: &PartConfigs<'_>) -> Vec<Finding> {
        let (mut width, mut findings): (Width<'_>, _) = (None, Vec::new());
        for part in &self.parts {
            let Some((path, config)) = configs.of(part) else {
                if !["Normalize", "Dropout", "WordWeights"].contains(&&*part.class) {
                    width = None;
                }
                continue;
            };
            if part.class == "Dense" {
                findings.extend(missing_key(path, config));
            }
            let is_of_sentences = |name: &RawValue| name.get().contains("sentence_embedding");
            let key = match &*part.class {
                "Transformer" => {
                    width = first(config, &WIDTHS).map(|width| (width, *path));
                    continue;
                }
                "Pooling" if config.number("embedding_dimension").is_some() => {
                    "embedding_dimension"
                }
                "Pooling" => "word_embedding_dimension",
                "Dense" if config.raw("module_input_name").is_none_or(is_of_sentences) => {
                    "in_features"
                }
                "LayerNorm" => "dimension",
                _ => {
                    width = None;
                    continue;
                }
            };
            let found = config.number(key);
            if let (Some((expected, other)), Some(found)) = (width, found)
                && expected != found
            {
                let (file, other) = (clip(path.as_str()), clip(other.as_str()));
                let key = key.to_owned();
                findings.push(Finding::WidthMismatch { file, key, found, other, expected });
            }
            let output = |width| match &*part.class {
                "Pooling" => pooled(config, width),
                "Dense" => config.number("out_features"),
                _ => Some(width),
            };
            width = found.and_then(output).map(|width| (width, *path));
        }
        findings
    }
}

/// Returns the finding that a Dense module lacks a number without which it is not built (`Dense.__init__` of
/// sentence-transformers 6.2).
fn missing_key(path: &RepoPath, config: &JsonObject<'_>) -> Option<Finding> {
    const KEYS: [&str; 2] = ["in_features", "out_features"];

    let key = KEYS.iter().find(|key| config.number(key).is_none())?;
    let (file, reason) = (clip(path.as_str()), format!("it has no number `{key}`"));
    Some(Finding::InvalidConfig { file, reason })
}

/// Returns the width after pooling: the modes are concatenated.
fn pooled(config: &JsonObject<'_>, width: u64) -> Option<u64> {
    let modes = match config.raw("pooling_mode") {
        Some(modes) if modes.get().starts_with('[') => strings(Some(modes), 16)?.len(),
        Some(_) => 1,
        None => {
            let is_mode = |(key, value): &(&str, &RawValue)| {
                key.starts_with("pooling_mode_") && value.get() == "true"
            };
            config.entries().filter(is_mode).count()
        }
    };
    width.checked_mul(modes as u64).filter(|width| *width > 0)
}

/// Compares the class of a component with the one that its configuration states. Both are classes of diffusers: a model of
/// transformers may be saved as another class.
fn other_class(part: &RepoPart, path: &RepoPath, config: &JsonObject<'_>) -> Option<Finding> {
    // The class of PixArt and DiT before diffusers 0.29 (`_CLASS_REMAPPING_DICT`).
    const OLD: &str = "Transformer2DModel";

    let stated = config.get::<String>("_class_name");
    let is_diffusers = |name: &str| {
        name.contains("Transformer") || name.starts_with("UNet") || name.starts_with("Autoencoder")
    };
    let other = match stated {
        Some(stated) if stated != part.class => stated,
        None if is_diffusers(&part.class) => config.get::<String>("model_type")?,
        _ => return None,
    };
    (part.class != OLD && other != OLD).then(|| Finding::OtherClass {
        file: clip(path.as_str()),
        found: clip(&other),
        component: clip(&part.name),
        expected: clip(&part.class),
    })
}
