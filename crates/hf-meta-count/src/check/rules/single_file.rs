//! Compares files of whole diffusion models with the parts that diffusers reads from them.
//!
//! A file such as `v1-5-pruned.safetensors` has no configuration. diffusers recognizes the model by its names, converts the
//! names of each part, and builds the part with the configuration of the original model (`from_single_file` in
//! `loaders/single_file.py`, 0.42). `single_file_layouts.txt` has the modules before the conversion. Its lines
//! `single-file KIND PREFIX=LAYOUT …` list the parts of a kind of files; `?` begins a part that files may lack.
//!
//! A file with one part alone is sound, because diffusers and ComfyUI load the other ones from elsewhere.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::config::ModelCheck;
use super::model_class::ModelClass;
use super::stored_modules::StoredModules;
use super::{MismatchKind, Mismatches};
use crate::architectures::architecture::{names_of, text_of};
use crate::architectures::blueprint::Blueprint;
use crate::base::model_config::ModelConfig;
use crate::results::text::counted;
use hf_meta_format::base::json_object::JsonObject;
use hf_meta_format::formats::{Headers, all_tensors, loaded_tensors};

/// Compares the tensors with the kind of files that has most of them. Returns `None` if they are of no kind, and the
/// reason if they are of another model with similar names.
pub(super) fn check_single_file(
    headers: &Headers,
    found: &mut Mismatches,
) -> Option<Result<(), String>> {
    /// The maximum number of tensors. Known files have 3,000, and five times more if they are quantized.
    const MAX_TENSORS: usize = 30_000;
    /// The minimum number of tensors with known names and shapes.
    const MIN_KNOWN: usize = 8;

    let tensors: usize = headers.iter().map(|(_, header)| header.tensors().len()).sum();
    if !(MIN_KNOWN..=MAX_TENSORS).contains(&tensors) {
        return None;
    }
    let names = all_tensors(headers).map(|(name, _)| name);
    let roots: BTreeSet<_> = names.filter_map(|name| name.split('.').next()).collect();
    let checks = names_of("single-file").map(|kind| FileCheck::new(kind, headers, &roots));
    let best =
        checks.max_by_key(|check| (check.known, Reverse((check.found.found.len(), check.kind))))?;
    if best.known < MIN_KNOWN {
        return None;
    }
    if best.is_other {
        return Some(Err(format!("the names and shapes are not those of `{}`", best.kind)));
    }
    found.append(best.found);
    Some(Ok(()))
}

/// A comparison of a file with one kind.
struct FileCheck {
    kind: &'static str,
    /// The number of tensors with the names and shapes of the kind.
    known: usize,
    /// True if the file contains another model with similar names.
    is_other: bool,
    found: Mismatches,
}

impl FileCheck {
    fn new(kind: &'static str, headers: &Headers, roots: &BTreeSet<&str>) -> Self {
        let mut check = Self { kind, known: 0, is_other: false, found: Mismatches::default() };
        let (mut stored, mut missing) = (0, Vec::new());
        for part in text_of("single-file", kind).into_iter().flat_map(|text| text.split(' ')) {
            let Some((prefix, layout)) = part.split_once('=') else { continue };
            let required = prefix.strip_prefix('?');
            let prefixes = required.unwrap_or(prefix).split('|');
            let mut prefixes = prefixes.filter(|prefix| may_have(prefix, layout, roots)).peekable();
            let blueprint = prefixes.peek().and_then(|_| blueprint(layout));
            if blueprint.is_some_and(|blueprint| {
                prefixes.any(|prefix| check.check_part(prefix, &blueprint, headers))
            }) {
                stored += 1;
            } else if required.is_none() {
                let path = prefix.split('|').next().unwrap_or_default().trim_end_matches('.');
                missing.push((path, layout));
            }
        }
        if stored < 2 {
            return check;
        }
        for (path, layout) in missing {
            let modules = blueprint(layout).map_or(0, |blueprint| blueprint.entries.len());
            let modules = counted(modules as u64, "module");
            check.found.add(MismatchKind::MissingModules, path, kind, "", modules);
        }
        check
    }

    /// Compares the tensors below a prefix with a layout. Returns whether any is one of the layout.
    fn check_part(&mut self, prefix: &str, layout: &Blueprint<'_>, headers: &Headers) -> bool {
        /// The number of tensors with other shapes, and of short lists of layers, that a defect has. Another model has more:
        /// distilled models have fewer layers in every list.
        const MAX_WRONG: usize = 2;

        let is_inside = |name: &str| {
            let inside = name.strip_prefix(prefix);
            inside
                .and_then(|name| name.split_once('.'))
                .is_some_and(|(root, _)| layout.has_root(root))
                || inside.is_some_and(|name| layout.has_root(name))
        };
        if !all_tensors(headers).any(|(name, _)| is_inside(name)) {
            return false;
        }
        let inside = || loaded_tensors(headers).filter(|(name, _)| is_inside(name));
        let stored = StoredModules::of_tensors(layout, inside, false);
        let is_part = !stored.tensors.is_empty() && stored.are_named_as(layout);
        if !is_part {
            return false;
        }
        let mut found = Mismatches::default();
        self.compare(layout, &stored, headers, &mut found);
        let wrong = found.count(MismatchKind::ShapeMismatch);
        let short = found.count(MismatchKind::MissingLayers);
        self.known += stored.tensors.len().saturating_sub(wrong);
        self.found.append(found);
        // Modules with other names on the outermost level are of another model.
        let mut below = all_tensors(headers).filter_map(|(name, _)| name.strip_prefix(prefix));
        self.is_other |= wrong.max(short) > MAX_WRONG
            || below
                .any(|name| name.split_once('.').is_some_and(|(root, _)| !layout.has_root(root)));
        true
    }

    fn compare(
        &self,
        layout: &Blueprint<'_>,
        stored: &StoredModules<'_>,
        headers: &Headers,
        found: &mut Mismatches,
    ) {
        let class = ModelClass::of_file(self.kind);
        let config = ModelConfig::new(JsonObject::default());
        let _ = ModelCheck::new(layout, stored, &class, headers, found).check_all(&config);
    }
}

fn blueprint(layout: &str) -> Option<Blueprint<'static>> {
    Blueprint::new(layout, JsonObject::default())
}

/// Returns whether a file may have tensors of a part, from the first words of its names. Most files are of no kind.
fn may_have(prefix: &str, layout: &str, roots: &BTreeSet<&str>) -> bool {
    let words = text_of("layout", layout).into_iter();
    let mut words = words.flat_map(|text| text.split([' ', '.', '=', '{']));
    match prefix.split('.').next() {
        None | Some("") => words.any(|word| roots.contains(word)),
        Some(root) => roots.contains(root),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::architectures::blueprint::{BlueprintEntry, GroupName};
    use crate::results::{Finding, Severity};
    use hf_meta_format::formats::{
        Dtype, FileHeader, RepoPath, TensorInfo, TensorTableBuilder, product,
    };

    type Tensors = BTreeMap<String, Vec<u64>>;

    fn number_in(layout: &Blueprint<'_>, formula: &'static str, layer: u64) -> Option<u64> {
        let names = &layout.scopes[0].names;
        names.layer.set(layer);
        names.trace(formula).ok().map(|(value, _)| value)
    }

    /// Adds the tensors of a module at all its places.
    fn add(layout: &Blueprint<'_>, entry: &BlueprintEntry, prefix: &str, tensors: &mut Tensors) {
        let list = entry.parent.map(|list| layout.entries[list].formulas);
        let length = list.map_or(1, |length| number_in(layout, length, 0).unwrap_or(24));
        for layer in 0..length {
            if let Some((.., GroupName::Condition(condition))) = entry.group
                && number_in(layout, condition, layer) == Some(0)
            {
                continue;
            }
            let path = entry.path.replace('#', &layer.to_string());
            let sides = entry.formulas.split(',');
            let shape: Vec<_> =
                sides.map(|side| number_in(layout, side, layer).unwrap_or(16)).collect();
            if entry.has_bias {
                tensors.insert(format!("{prefix}{path}.bias"), vec![shape[0]]);
            }
            // The parameters of attention have no separate module.
            let is_parameter = ["_weight", "_bias", "embedding", "scale", "projection", "latents"];
            let is_parameter = is_parameter.iter().any(|end| path.ends_with(end));
            let end = if is_parameter || path == "pos_embed" { "" } else { ".weight" };
            tensors.insert(format!("{prefix}{path}{end}"), shape);
        }
    }

    /// Returns the tensors of a file with all parts of a kind.
    fn whole(kind: &str) -> Tensors {
        let mut tensors = Tensors::new();
        for part in text_of("single-file", kind).unwrap().split(' ') {
            let (prefix, layout) = part.split_once('=').unwrap();
            let prefix = prefix.trim_start_matches('?').split('|').next().unwrap();
            let layout = Blueprint::new(layout, JsonObject::default()).unwrap();
            for entry in layout.entries.iter().filter(|entry| !entry.is_list) {
                add(&layout, entry, prefix, &mut tensors);
            }
        }
        tensors
    }

    fn headers(tensors: &Tensors) -> Vec<(RepoPath, FileHeader)> {
        let (mut table, mut end) = (TensorTableBuilder::new(), 0);
        for (name, shape) in tensors {
            let start = end;
            end += 2 * product(shape).unwrap();
            table.push(name, &TensorInfo::new(Dtype::F16, shape.clone(), (start, end)));
        }
        let header = FileHeader::new(table.finish().unwrap(), 0..0);
        vec![("model.safetensors".parse().unwrap(), header)]
    }

    /// Returns the errors and warnings; `None` if the file is of no kind.
    fn check(tensors: &Tensors) -> Option<Result<Vec<Finding>, String>> {
        let mut found = Mismatches::default();
        let result = check_single_file(&headers(tensors), &mut found)?;
        let serious = |finding: &Finding| finding.severity() > Severity::Note;
        Some(result.map(|()| found.into_findings().into_iter().filter(serious).collect()))
    }

    fn kinds() -> Vec<&'static str> {
        let mut kinds: Vec<_> = names_of("single-file").collect();
        kinds.sort_unstable();
        kinds
    }

    #[test]
    fn whole_files_are_sound_and_a_missing_module_is_an_error() {
        assert!(kinds().len() >= 14);
        for kind in kinds() {
            let tensors = whole(kind);
            assert_eq!(check(&tensors), Some(Ok(Vec::new())), "{kind}");
            let names: Vec<_> = tensors.keys().filter(|name| !is_optional(name)).collect();
            // Another tensor of each kind.
            for name in names.iter().skip(names.len() / 3).step_by(names.len()) {
                let mut broken = tensors.clone();
                broken.remove(*name);
                let found = check(&broken).unwrap().unwrap();
                assert!(found.len() == 1, "{kind} without {name}: {found:?}");
                let mut broken = tensors.clone();
                let shape = broken.get_mut(*name).unwrap();
                shape[0] += 8;
                let found = check(&broken).unwrap().unwrap();
                assert!(found.len() == 1 || shape_is_open(name), "{kind} {name}: {found:?}");
            }
        }
    }

    /// Some files lack these, or their last layers.
    fn is_optional(name: &str) -> bool {
        name.contains("guidance_in") || name.contains("text_projection") || name.contains(".23.")
    }

    fn shape_is_open(name: &str) -> bool {
        [".attn_1.", "to_q", "to_kv", "latents"].iter().any(|part| name.contains(part))
    }

    #[test]
    fn a_part_alone_is_sound_and_two_of_three_are_not() {
        let tensors = whole("stable-diffusion-v1");
        let only = |prefixes: &[&str]| {
            let mut tensors = tensors.clone();
            tensors.retain(|name, _| prefixes.iter().any(|prefix| name.starts_with(prefix)));
            check(&tensors).unwrap().unwrap()
        };
        assert_eq!(only(&["model.diffusion_model."]), []);
        assert_eq!(only(&["first_stage_model."]), []);
        let found = only(&["model.diffusion_model.", "cond_stage_model."]);
        let [found] = &found[..] else { panic!("{found:?}") };
        assert!(found.to_string().starts_with("`first_stage_model` is missing"), "{found}");
    }

    #[test]
    fn other_models_with_similar_names_are_not_compared() {
        let flux = whole("flux");
        // Chroma has the blocks of FLUX.1 without their modulation.
        let mut chroma = flux.clone();
        chroma.retain(|name, _| name.starts_with("model.") && !name.contains("_mod."));
        let name = "model.diffusion_model.distilled_guidance_layer.in_proj.weight";
        chroma.insert(name.to_owned(), vec![16, 16]);
        assert!(check(&chroma).unwrap().is_err());
        let mut vae = whole("autoencoder-kl-4");
        for shape in vae.values_mut().filter(|shape| shape.len() == 4) {
            shape.push(3);
        }
        assert!(check(&vae).unwrap().is_err(), "an autoencoder for videos");
        let llama =
            (0..8).map(|layer| (format!("model.layers.{layer}.mlp.up_proj.weight"), vec![4, 4]));
        assert!(check(&llama.collect()).is_none());
    }

    #[test]
    fn a_missing_layer_is_named() {
        let mut tensors = whole("flux");
        tensors.retain(|name, _| !name.contains("double_blocks.18."));
        let found = check(&tensors).unwrap().unwrap();
        let messages: Vec<_> = found.iter().map(ToString::to_string).collect();
        let expected =
            "layer 18 of `model.diffusion_model.double_blocks` is missing: `flux` has 19";
        assert_eq!(messages, [expected]);
    }
}
