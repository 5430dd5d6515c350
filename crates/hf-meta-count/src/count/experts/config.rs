//! Numbers of experts in model configurations.

use serde_json::value::RawValue;

use crate::architectures::architecture::{Value, keys_of, positive, text_of};
use crate::base::model_config::{ModelConfig, NestedModel};
use crate::count::UnknownActive;
use hf_meta_format::base::json_object::JsonObject;

/// The numbers of experts of a model and its nested models.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpertConfigs {
    models: Vec<ExpertConfig>,
    /// True if a model has more than one expert per layer.
    pub(crate) has_experts: bool,
}

/// The numbers of experts of one model.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpertConfig {
    /// Prefixes of the name segments of this model, such as `vision` or `talker`. A tensor name must match all of
    /// them.
    prefixes: Vec<String>,
    /// The distinct values of top-k, the number of experts per token. Several values are a contradiction.
    top_k: Vec<PerLayer>,
    /// The distinct numbers of routed experts. Several keys may give them, with different meanings.
    experts: Vec<PerLayer>,
    /// The index of the first draft layer; `None` if no numbered layer is one.
    first_draft: Option<u64>,
    /// True if the router can choose an expert without parameters, as `zero_expert_num` of `LongCat` states
    /// (`modeling_longcat_flash.py` of transformers 5.24).
    pub(crate) has_zero_experts: bool,
}

/// One value for all layers, or one per layer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PerLayer(Vec<u64>);

impl ExpertConfigs {
    /// The maximum number of objects with experts to use.
    const MAX_WITH_EXPERTS: usize = 16;

    /// Reads the numbers of experts of all models. Nested models inherit values that they do not set themselves.
    pub(crate) fn from_config(config: &ModelConfig<'_>) -> Self {
        let mut configs = Self::default();
        for model in &config.models {
            let outer = model.outer.and_then(|outer| configs.models.get(outer));
            let found = ExpertConfig::new(model, outer.unwrap_or(&ExpertConfig::default()));
            configs.models.push(found);
        }
        let mut counts = configs.models.iter().flat_map(|model| &model.experts);
        configs.has_experts = counts.any(|PerLayer(counts)| counts.iter().any(|&count| count > 1));
        configs.models.retain(|model| !model.top_k.is_empty());
        configs.models.truncate(Self::MAX_WITH_EXPERTS);
        configs
    }

    /// Returns whether no configuration gives a top-k.
    pub(crate) fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Returns the configuration of the experts with a name.
    pub(crate) fn find(&self, name: &str) -> Result<&ExpertConfig, UnknownActive> {
        let matching = || self.models.iter().filter(|model| model.matches(name));
        let specific = matching().map(|model| model.prefixes.len()).max();
        let mut models = matching().filter(|model| Some(model.prefixes.len()) == specific);
        let first = models.next().ok_or(UnknownActive::MissingTopK)?;
        let is_unanimous = first.top_k.len() == 1 && models.all(|other| other.top_k == first.top_k);
        if is_unanimous { Ok(first) } else { Err(UnknownActive::AmbiguousTopK) }
    }
}

impl ExpertConfig {
    fn new(nested: &NestedModel<'_>, outer: &Self) -> Self {
        let model = &nested.object;
        let generic = nested.is_expert_section().then_some("top_k");
        let mut top_k = PerLayer::all(model, keys_of("top_k").chain(generic));
        let model_type = model.get::<String>("model_type");
        if top_k.is_empty() {
            // The routers of these architectures choose a fixed number of experts.
            let fixed = model_type.and_then(|name| text_of("top_k", &name)?.parse().ok());
            top_k.extend(fixed.map(|fixed| PerLayer(vec![fixed])));
        }
        let experts = PerLayer::all(model, keys_of("experts"));
        let experts = if experts.is_empty() { outer.experts.clone() } else { experts };
        let drafts = positive(model, "draft_layers");
        let first_draft = drafts.and_then(|_| Some(positive(model, "layers")?.1));
        let mut prefixes = outer.prefixes.clone();
        prefixes.extend(nested.name_prefix().map(str::to_owned));
        Self {
            prefixes,
            top_k,
            experts,
            first_draft: first_draft.or(outer.first_draft),
            has_zero_experts: outer.has_zero_experts || positive(model, "zero_experts").is_some(),
        }
    }

    /// Returns whether a name has a matching segment for every prefix.
    fn matches(&self, name: &str) -> bool {
        let has = |prefix: &String| name.split('.').any(|segment| segment.starts_with(&**prefix));
        self.prefixes.iter().all(has)
    }

    /// Returns whether a layer is a draft layer.
    pub(crate) fn is_draft(&self, layer: u64) -> bool {
        self.first_draft.is_some_and(|first| layer >= first)
    }

    /// Returns the number of experts in a layer; `None` unless the configuration gives exactly one.
    pub(crate) fn experts(&self, layer: Option<u64>) -> Option<u64> {
        let mut found = self.experts.iter().filter_map(|experts| experts.at(layer));
        let first = found.next()?;
        found.all(|other| other == first).then_some(first)
    }

    /// Returns the sizes of the expert sets that are routed separately in a layer with `experts` experts. ERNIE has
    /// one set for text and one for images. Returns `None` if the configuration contradicts `experts`.
    pub(crate) fn set_sizes(&self, experts: u64, layer: Option<u64>) -> Option<Vec<u64>> {
        const MAX_SETS: u64 = 8;

        let is_given = self.experts.iter().any(|given| given.at(layer) == Some(experts));
        if self.experts.is_empty() || is_given {
            return Some(vec![experts]);
        }
        let sum = |list: &PerLayer| list.0.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
        let mut lists = self.experts.iter().filter(|list| list.0.len() as u64 <= MAX_SETS);
        if let Some(PerLayer(list)) = lists.find(|list| sum(list) == experts) {
            return Some(list.clone());
        }
        let size = self.experts(layer)?;
        let sets = experts / size;
        (experts.is_multiple_of(size) && sets <= MAX_SETS)
            .then(|| (0..sets).map(|_| size).collect())
    }

    /// Returns the top-k of a layer.
    pub(crate) fn top_k(&self, layer: Option<u64>) -> Option<u64> {
        self.top_k.first()?.at(layer)
    }
}

impl PerLayer {
    /// Reads the distinct values of several keys.
    fn all(model: &JsonObject<'_>, keys: impl Iterator<Item = &'static str>) -> Vec<Self> {
        let mut lists = Vec::new();
        for list in keys.filter_map(|key| model.raw(key)).filter_map(Self::new) {
            if !lists.contains(&list) {
                lists.push(list);
            }
        }
        lists
    }

    /// Reads a number or a list of numbers. A list of equal numbers is read as one number.
    fn new(value: &RawValue) -> Option<Self> {
        let mut list = match Value::from_json(value.get()) {
            Value::Number(number) => vec![number],
            Value::Numbers(list) => list,
            _ => return None,
        };
        if list.iter().all(|number| Some(number) == list.first()) {
            list.truncate(1);
        }
        list.iter().any(|&number| number > 0).then_some(Self(list))
    }

    /// Returns the value for a layer.
    fn at(&self, layer: Option<u64>) -> Option<u64> {
        if let [number] = self.0[..] {
            return Some(number);
        }
        let layer = usize::try_from(layer?).ok()?;
        self.0.get(layer).copied().filter(|&number| number > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configs(json: &str) -> ExpertConfigs {
        ExpertConfigs::from_config(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn the_configuration_gives_the_number_of_experts_per_token() {
        let cases = [
            (r#"{"num_local_experts":8,"num_experts_per_tok":2}"#, Ok(Some(2))),
            (r#"{"num_experts_per_tok":2.0}"#, Ok(Some(2))),
            (r#"{"num_experts_per_tok":"2"}"#, Ok(Some(2))),
            (r#"{"experts_per_token":4,"num_experts_per_tok":4}"#, Ok(Some(4))),
            (r#"{"text_config":{"top_k_experts":8}}"#, Ok(Some(8))),
            (r#"{"ffn_config":{"moe_top_k":4}}"#, Ok(Some(4))),
            (r#"{"moe":{"num_experts_per_tok":4}}"#, Ok(Some(4))),
            (r#"{"moe_config":{"top_k":4},"top_k":50}"#, Ok(Some(4))),
            (r#"{"moe_topk":[3,3]}"#, Ok(Some(3))),
            (r#"{"moe_topk":[1,3]}"#, Ok(Some(3))),
            (r#"{"moe_topk":[3]}"#, Ok(Some(3))),
            (r#"{"model_type":"switch_transformers"}"#, Ok(Some(1))),
            (r#"{"moe_topk":[1,0]}"#, Ok(None)),
            (
                r#"{"experts_per_token":4,"num_experts_per_tok":2}"#,
                Err(UnknownActive::AmbiguousTopK),
            ),
            (r#"{"moe_k":4,"text_config":{"moe_k":2}}"#, Err(UnknownActive::AmbiguousTopK)),
            (r#"{"num_experts":8,"top_k":50}"#, Err(UnknownActive::MissingTopK)),
            (r#"{"num_experts_per_tok":0}"#, Err(UnknownActive::MissingTopK)),
            (r#"{"num_experts_per_tok":[]}"#, Err(UnknownActive::MissingTopK)),
            (r#"{"num_experts_per_tok":-1}"#, Err(UnknownActive::MissingTopK)),
            (r#"{"vision_config":{"moe_k":2}}"#, Err(UnknownActive::MissingTopK)),
        ];
        for (json, expected) in cases {
            let configs = configs(json);
            let found = configs.find("model.layers.1.mlp").map(|config| config.top_k(Some(1)));
            assert_eq!(found, expected, "{json}");
        }
    }

    #[test]
    fn nested_models_are_found_by_name() {
        let configs = configs(
            r#"{"thinker_config":{"text_config":{"moe_k":8},"vision_config":{"moe_k":2}},
                "talker_config":{"text_config":{"moe_k":6}}}"#,
        );
        let cases = [
            ("thinker.model.layers.0.mlp.experts", Some(8)),
            ("thinker.vision_tower.layers.0.mlp.experts", Some(2)),
            ("talker.model.layers.0.mlp.experts", Some(6)),
            ("model.layers.0.mlp.experts", None),
        ];
        for (name, expected) in cases {
            let found = configs.find(name).ok().and_then(|config| config.top_k(None));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn draft_layers_and_numbers_of_experts_are_inherited() {
        let configs = configs(
            r#"{"num_nextn_predict_layers":1,"num_hidden_layers":3,"num_experts":[4,8],
                "zero_expert_num":2,"ffn_config":{"moe_k":2}}"#,
        );
        let config = configs.find("layers.1").unwrap();
        assert_eq!([2, 3].map(|layer| config.is_draft(layer)), [false, true]);
        assert_eq!([0, 1].map(|layer| config.experts(Some(layer))), [Some(4), Some(8)]);
        let sets = [(8, Some(1)), (4, Some(1)), (12, None)];
        let sets = sets.map(|(experts, layer)| config.set_sizes(experts, layer));
        assert_eq!(sets, [Some(vec![8]), None, Some(vec![4, 8])]);
        assert!(config.has_zero_experts);
    }

    /// The model that states the top-k is the eighth, and then the ninth.
    #[test]
    fn eight_models_inside_each_other_are_read() {
        let nested = |depth: usize| {
            let json = r#"{"a_config":"#.repeat(depth) + r#"{"moe_k":2}"# + &"}".repeat(depth);
            configs(&json).find("a.layers.0").ok().and_then(|config| config.top_k(None))
        };
        assert_eq!([1, 7, 8].map(nested), [Some(2), Some(2), None]);
    }

    #[test]
    fn experts_of_several_sets_are_routed_separately() {
        let ernie = configs(r#"{"moe_k":2,"moe_num_experts":[64,32]}"#);
        let one = configs(r#"{"moe_k":2,"num_experts":16}"#);
        let none = configs(r#"{"moe_k":2}"#);
        let cases = [
            (&ernie, 96, Some(vec![64, 32])),
            (&ernie, 64, Some(vec![64])),
            (&ernie, 95, None),
            (&one, 16, Some(vec![16])),
            (&one, 48, Some(vec![16; 3])),
            (&one, 8 * 16, Some(vec![16; 8])),
            (&one, 9 * 16, None),
            (&one, 24, None),
            (&none, 24, Some(vec![24])),
        ];
        for (configs, experts, sets) in cases {
            assert_eq!(configs.find("").unwrap().set_sizes(experts, Some(0)), sets, "{experts}");
        }
    }

    #[test]
    fn a_hostile_config_uses_bounded_memory() {
        let list = format!("[{}1]", "2,".repeat(4_000));
        let inner = (0..100).map(|n| format!(r#""m{n}_config":{{"moe_k":{list}}}"#));
        let json = format!("{{{}}}", inner.collect::<Vec<_>>().join(","));
        let configs = configs(&json);
        assert_eq!(configs.models.len(), ExpertConfigs::MAX_WITH_EXPERTS);
        let lengths = configs.models.iter().map(|model| model.top_k[0].0.len());
        assert_eq!(lengths.max(), Some(4_001));
        for layers in [5_000, 50_000] {
            let long = format!(r#"{{"moe_k":[{}1]}}"#, "2,".repeat(layers));
            assert!(super::tests::configs(&long).is_empty());
        }
        let nested = r#"{"a_config":"#.repeat(100) + "1" + &"}".repeat(100);
        assert!(super::tests::configs(&nested).is_empty());
    }
}
