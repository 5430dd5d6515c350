//! The modules that a model lacks: those that the layout requires and that are not stored.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::MismatchKind;
use super::config::{ModelCheck, wrong_side};
use super::exceptions::lacks;
use super::stages::is_in_spare_stage;
use super::stored_modules::{is_expert, is_feed_forward, parent};
use crate::architectures::architecture::text_of;
use crate::architectures::blueprint::{BlueprintEntry, Group, GroupRule, Place};
use crate::base::model_config::ModelConfig;
use crate::count::names::pattern::NamePattern;
use crate::count::{Embedding, NamePatterns};
use crate::results::text::counted;
use hf_meta_format::base::sort::Ordered;

impl ModelCheck<'_, '_, '_> {
    /// Returns the modules that the configuration or their group implies, and that are not stored, with their places.
    pub(super) fn missing_modules(&mut self) -> Vec<(usize, Place)> {
        let (mut missing, mut siblings) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
        for (at, entry) in self.layout.entries.iter().enumerate() {
            siblings.entry(entry.parent).or_default().push(at);
        }
        for (parent, children) in siblings {
            let outermost = [Place::default()];
            let domain = parent.map_or(&outermost[..], |list| &self.stored.places[list]);
            let mut needed = children.clone();
            needed.retain(|entry| !self.is_replaced(*entry));
            for &place in domain {
                if parent.is_some_and(|list| self.is_beyond(list, place)) {
                    continue;
                }
                let wanted = self.wanted_groups(&children, parent, place);
                missing.extend(needed.iter().map(|entry| (*entry, place)).filter(|&(entry, _)| {
                    let BlueprintEntry { is_required, group, .. } = self.layout.entries[entry];
                    (is_required || group.is_some_and(|group| wanted.contains(&group)))
                        && !self.is_stored(entry, place)
                        && !self.is_elsewhere(entry, place)
                        && !self.is_empty(entry, place)
                        && !self.is_spare(entry, place)
                        && !self.is_tied_bias(&self.name(&self.layout.entries[entry], place))
                }));
            }
        }
        missing
    }

    /// Returns the groups of which something is stored at a place, or which a rule implies.
    fn wanted_groups(
        &mut self,
        children: &[usize],
        parent: Option<usize>,
        place: Place,
    ) -> BTreeSet<Group> {
        let stored = children.iter().filter(|entry| self.is_stored(**entry, place));
        let mut wanted: BTreeSet<_> =
            stored.filter_map(|entry| self.layout.entries[*entry].group).ordered();
        for rule in &self.layout.rules {
            match rule {
                GroupRule::One(choices)
                    if choices[0].1 == parent
                        && choices.iter().all(|group| !wanted.contains(group)) =>
                {
                    wanted.insert(choices[0]);
                }
                &GroupRule::If(group, formula, scope) if group.1 == parent => {
                    let is_wanted = self.evaluate(scope, formula, place[0]);
                    wanted.extend(is_wanted.filter(|(value, _)| *value > 0).map(|_| group));
                }
                _ => {}
            }
        }
        wanted
    }

    /// Returns whether an entry has a tensor at a place.
    fn is_stored(&self, entry: usize, place: Place) -> bool {
        has_place(&self.stored.places[entry], &place[..self.layout.entries[entry].depth])
    }

    /// Returns whether a model does without a module, wherever it is: its class has no head, pooler, encoder, decoder or text
    /// tower, or an embedding is tied.
    pub(super) fn is_replaced(&self, entry: usize) -> bool {
        let entry = &self.layout.entries[entry];
        let is_left_out =
            self.is_left_out(&entry.path) || lacks(&self.class.names, self.layout, entry);
        let is_tied = is_shared(&entry.path) && self.has_shared();
        let is_spare = is_tied || is_in_spare_stage(self.layout, entry);
        if entry.is_head && !self.has_head || is_left_out || is_spare {
            return true;
        }
        let name = self.name(entry, Place::default());
        let mut names = NamePatterns::default();
        let mut embedding = |name: &str| names.read(name).embedding();
        match embedding(&format!("{name}.weight")).or_else(|| embedding(&name)) {
            // The heads of BERT and its relatives are tied by default.
            Some(Embedding::Output) => {
                self.is_tied.unwrap_or(name.ends_with(".decoder")) || self.stored.has_output
            }
            // Not the positions, the patches and the types. An encoder and a decoder may share `model.shared`.
            Some(Embedding::Input)
                if entry.formulas.contains("vocab_size")
                    && !entry.formulas.contains("type_vocab_size") =>
            {
                let is_shared = |name| ["shared.weight", "model.shared.weight"].contains(&name);
                self.is_tied != Some(false) && self.stored.has_output
                    || self.stored.unknown.iter().any(|(name, _)| is_shared(*name))
            }
            _ => false,
        }
    }

    /// Returns whether the model has the embedding that its encoder and its decoder share, under one of three names. The loader
    /// ties all of them, whatever `tie_word_embeddings` is (`_tied_weights_keys` in `modeling_t5.py`, 5.24).
    fn has_shared(&self) -> bool {
        let known = self.layout.entries.iter().zip(&self.stored.places);
        let known: Vec<_> = known.filter(|(entry, _)| is_shared(&entry.path)).collect();
        let mut unknown = self.stored.unknown.iter().map(|(name, _)| name.strip_suffix(".weight"));
        // Two embeddings without a third one may have different vocabularies.
        let are_tied =
            known.len() == 1 || known.iter().any(|(entry, _)| is_named(&entry.path, "shared"));
        are_tied
            && (known.iter().any(|(_, places)| !places.is_empty())
                || unknown.any(|name| name.is_some_and(is_shared)))
    }

    /// Returns whether the model class has no module with a path, although the layout, which is that of another class, has.
    fn is_left_out(&self, path: &str) -> bool {
        let is_in = |part: &str| {
            path.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let mut parts = self.class.names.iter().filter_map(|name| text_of("lacks", name));
        parts.any(|parts| parts.split('|').any(is_in))
    }

    /// Returns whether another tensor replaces a module at a place: experts under other names, or a packed module.
    fn is_elsewhere(&self, entry: usize, place: Place) -> bool {
        let entry = &self.layout.entries[entry];
        if is_feed_forward(&entry.path) && self.has_other_experts(place[0]) {
            return true;
        }
        let name = self.name(entry, place);
        // MLX splits and joins modules of some architectures (`sanitize` of the models of `mlx_lm` and `mlx_vlm`).
        if self.is_mlx && self.stored.around_unknown.contains(parent(&name)) {
            return true;
        }
        // It stores the stacks of experts of Granite under the names of another module.
        let is_other_expert = || self.stored.other_experts.contains(&place[0]);
        if self.is_mlx && is_feed_forward(&entry.path) && is_other_expert() {
            return true;
        }
        let mut outer = name.match_indices('.').map(|(dot, _)| &name[..dot]);
        outer.any(|outer| self.stored.packed.contains(outer))
    }

    /// Returns whether all experts of a layer have names that the layout does not have.
    fn has_other_experts(&self, layer: u32) -> bool {
        let experts = self.layout.entries.iter().zip(&self.stored.places);
        let mut experts = experts
            .filter(|(entry, _)| is_expert(&entry.path))
            .filter(|(entry, _)| !entry.path.contains("shared") && !entry.path.ends_with("bias"))
            .peekable();
        self.stored.other_experts.contains(&layer)
            && experts.peek().is_some()
            && !experts.any(|(_, places)| has_place(places, &[layer]))
    }

    /// Returns whether the configuration implies a module without elements, which is not stored.
    fn is_empty(&mut self, entry: usize, place: Place) -> bool {
        self.layout.entries[entry].formulas != "~"
            && self.expected_shape(entry, place).iter().flatten().any(|(value, _)| *value == 0)
    }

    /// Returns whether the class of the model does not miss a module.
    fn is_spare(&self, entry: usize, place: Place) -> bool {
        let renames = &self.layout.renames;
        let name = self.name(&self.layout.entries[entry], place);
        renames.has_spare()
            && [format!("{name}.weight"), name]
                .iter()
                .any(|name| renames.is_spare(&renames.apply(name)))
    }

    /// Returns whether a bias of a head is tied to a stored one. Heads of BERT and its relatives have both under two names
    /// (`_tied_weights_keys` in their classes).
    fn is_tied_bias(&self, name: &str) -> bool {
        const TIED: &str = ".decoder.bias";

        let other = match name.strip_suffix(TIED) {
            Some(head) => Some(format!("{head}.bias")),
            None => name.strip_suffix(".bias").map(|head| format!("{head}{TIED}")),
        };
        self.is_tied != Some(false) && other.is_some_and(|other| self.stored.has_bias(&other))
    }

    /// Adds the mismatches of missing modules. If all modules below a path are missing, the path is named.
    pub(super) fn add_missing(&mut self, missing: &[(usize, Place)]) {
        let mut paths = BTreeMap::<_, BTreeSet<usize>>::new();
        // A file may lack a module in a million layers, and have thousands of unknown ones.
        let entries: BTreeSet<_> = missing.iter().map(|(entry, _)| *entry).ordered();
        let missing_paths = entries.into_iter().map(|entry| (entry, self.missing_path(entry)));
        let missing_paths: HashMap<_, _> = missing_paths.collect();
        let mut unknown = HashMap::<_, Vec<_>>::new();
        for (name, tensor) in &self.stored.unknown {
            let siblings = unknown.entry(parent(name.trim_end_matches(".weight"))).or_default();
            siblings.push((*name, tensor.shape.clone()));
        }
        for &(entry, place) in missing {
            let found = &self.layout.entries[entry];
            let name = self.name(found, place);
            if let Some(path) = missing_paths[&entry] {
                let length = name.match_indices('.').nth(path).map_or(name.len(), |(dot, _)| dot);
                paths.entry(name[..length].to_owned()).or_default().insert(entry);
                continue;
            }
            let siblings = unknown.get(parent(&name)).map_or(&[][..], Vec::as_slice);
            let (kind, other) = match self.renamed(entry, place, siblings) {
                Some(other) => (MismatchKind::RenamedModule, other),
                None => (MismatchKind::MissingModule, ""),
            };
            // The names in a list are folded, and differ in their numbers.
            let other = NamePattern::new(other).text;
            self.mismatches.add(kind, &name, "model_type", "", other);
        }
        for (path, entries) in paths {
            let inside = counted(entries.len() as u64, "module");
            self.mismatches.add(MismatchKind::MissingModules, &path, "model_type", "", inside);
        }
    }

    /// Returns the number of dots in the shortest path below which nothing is stored; `None` for the path of the entry
    /// itself.
    fn missing_path(&self, entry: usize) -> Option<usize> {
        let found = &self.layout.entries[entry];
        let inside = |path: &str| {
            let prefix = format!("{path}.");
            let below = self.layout.entries.iter().zip(&self.stored.places);
            let mut below = below.filter(move |(other, _)| {
                other.is_head == found.is_head && other.path.starts_with(&prefix)
            });
            below.all(|(_, places)| places.is_empty())
        };
        let mut dots = found.path.match_indices('.');
        let path = dots.position(|(dot, _)| inside(&found.path[..dot]))?;
        let prefix = if found.is_head { &self.stored.head_prefix } else { &self.stored.prefix };
        Some(path + prefix.matches('.').count())
    }

    /// Returns the first of the unknown tensors next to a missing module that has its shape.
    fn renamed<'n>(
        &mut self,
        entry: usize,
        place: Place,
        siblings: &[(&'n str, Vec<u64>)],
    ) -> Option<&'n str> {
        let BlueprintEntry { formulas, is_list, .. } = self.layout.entries[entry];
        if is_list || formulas == "_" || siblings.is_empty() {
            return None;
        }
        let expected = self.expected_shape(entry, place);
        let found = siblings.iter().find(|(_, shape)| wrong_side(&expected, shape).is_none());
        found.map(|(name, _)| *name)
    }

    /// Adds the missing biases of modules that always have one.
    pub(super) fn check_biases(&mut self, config: &ModelConfig<'_>) {
        let entries = self.layout.entries.iter().enumerate();
        let is_sinq = is_by_sinq(config);
        let mut unpacked = BTreeSet::new();
        if is_sinq {
            let tensors = self.stored.tensors.iter();
            unpacked = tensors.map(|(.., found)| (found.entry, found.place)).ordered();
        }
        for (at, entry) in entries.filter(|(_, entry)| entry.has_bias) {
            let (places, biases) = (&self.stored.places[at], &self.stored.biases[at]);
            for place in places.iter().filter(|place| biases.binary_search(place).is_err()) {
                let name = format!("{}.bias", self.name(entry, *place));
                let is_dropped = is_sinq && !unpacked.contains(&(at, *place));
                if is_dropped || self.is_tied_bias(&name) {
                    continue;
                }
                self.mismatches.add(MismatchKind::MissingModule, &name, "model_type", "", "");
            }
        }
    }
}

/// Returns whether transformers builds packed modules without biases, which it then does not miss: `replace_with_sinq_linear` in
/// `integrations/sinq.py` (5.24). While it quantizes, it reports the biases of the plain weights as unexpected, and saves
/// none.
fn is_by_sinq(config: &ModelConfig<'_>) -> bool {
    let methods = config.quantization_sections();
    methods
        .filter_map(|section| section.get::<String>("quant_method"))
        .any(|method| method == "sinq")
}

/// Returns whether a path is a name, or ends with it.
fn is_named(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|outer| outer.is_empty() || outer.ends_with('.'))
}

/// Returns whether a path is one of the names of the embedding that an encoder and a decoder share.
fn is_shared(path: &str) -> bool {
    const NAMES: [&str; 3] = ["shared", "encoder.embed_tokens", "decoder.embed_tokens"];

    NAMES.iter().any(|name| is_named(path, name))
}

/// Returns whether one of the sorted places begins with these numbers.
fn has_place(places: &[Place], numbers: &[u32]) -> bool {
    let at = places.partition_point(|place| place[..numbers.len()] < *numbers);
    places.get(at).is_some_and(|place| place.starts_with(numbers))
}
