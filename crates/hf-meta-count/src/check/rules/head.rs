//! The output head of a model class, which the layout of another class may not have.

use super::MismatchKind;
use super::config::ModelCheck;
use super::exceptions::stores_head;
use crate::architectures::blueprint::BlueprintEntry;
use crate::base::model_config::ModelConfig;
use hf_meta_format::base::json_object::JsonObject;
use hf_meta_format::formats::TensorInfo;

impl ModelCheck<'_, '_, '_> {
    /// Finds a model without a head that its class has, or without one row of it per label.
    pub(super) fn check_head(&mut self, config: &ModelConfig<'_>) {
        const LABELS: &str = "Classification";
        /// The key of classes whose head may have no tensors (`XLMSequenceSummary` in transformers).
        const PROJECTION: &str = "summary_use_proj";

        let [class] = &self.class.names[..] else { return };
        let is_plain = self.class.object.get(PROJECTION) == Some(false);
        if is_plain || !stores_head(class) {
            return;
        }
        let mut known = self.layout.entries.iter().zip(&self.stored.places);
        let is_stored = known.any(|(entry, places)| entry.is_head && !places.is_empty());
        // The layout of BERT is that of a class without a pooler.
        let is_base = |(name, _): &(&str, TensorInfo)| name.contains("pooler.");
        // The layout has the head of its class, which may be tied.
        let is_own = self.has_head && !self.layout.head_class.is_empty();
        if !is_own && !is_stored && self.stored.unknown.iter().all(is_base) {
            self.mismatches.add(MismatchKind::NoHead, class, "architectures", "", "");
        } else if class.ends_with(LABELS) {
            self.check_labels(class, config);
        }
    }

    /// Finds a class that assigns labels, and of which no tensor has a row per label.
    fn check_labels(&mut self, class: &str, config: &ModelConfig<'_>) {
        let object = config.outermost();
        let names = object.get::<JsonObject<'_>>("id2label").map(|names| names.len() as u64);
        let names = names.map(|labels| (labels, "id2label"));
        let stated = names.or_else(|| Some((object.number("num_labels")?, "num_labels")));
        // A class that states no number has a default.
        let Some((labels, key)) = stated else { return };
        // A packed head has other rows.
        if self.stored.has_packed {
            return;
        }
        let has_rows = |tensor: &TensorInfo| tensor.shape.len() > 1 && tensor.shape[0] == labels;
        let is_outside = |entry: &BlueprintEntry| entry.depth == 0 && !entry.path.contains("embed");
        let mut known = self.stored.tensors.iter().filter(|(_, tensor, _)| has_rows(tensor));
        let has_head = known.any(|(.., found)| is_outside(&self.layout.entries[found.entry]))
            || self.stored.unknown.iter().any(|(_, tensor)| has_rows(tensor));
        if labels > 0 && !has_head {
            self.mismatches.add(MismatchKind::MissingHead, class, key, labels, "");
        }
    }
}
