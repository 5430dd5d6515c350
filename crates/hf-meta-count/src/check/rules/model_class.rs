//! The model class that a loader builds from a configuration.

use super::stored_modules::StoredModules;
use super::{MismatchKind, Mismatches};
use crate::architectures::architecture::text_of;
use crate::architectures::blueprint::Blueprint;
use crate::architectures::renames::Renames;
use crate::base::model_config::{ModelConfig, NestedModel};
use hf_meta_format::base::json_object::JsonObject;
use hf_meta_format::formats::{FileHeader, Headers, clip};

/// The way in which a loader reads a weight set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoadedAs {
    /// True if the loader builds the base model, whatever class the configuration states, as sentence-transformers does.
    pub(crate) is_base: bool,
    /// True if transformers finds the files by their names.
    pub(crate) is_found: bool,
}

/// The keys of configurations whose models have their own code. QuIP# joins modules (`model/llama.py` in quip-sharp).
const CUSTOM: [&str; 2] = ["auto_map", "quip_params"];

/// The path of a class that has other names than the layout (`left_out.txt`).
const OTHER_NAMES: &str = "*";

/// The model class that a loader builds.
pub(super) struct ModelClass<'a> {
    /// The architecture whose layout the class has.
    pub(super) architecture: String,
    /// The key that states it.
    pub(super) key: &'static str,
    /// The configuration of the class, which may be nested in the one of a larger model.
    pub(super) object: JsonObject<'a>,
    /// The names that the configuration states; none for a base model.
    pub(super) names: Vec<String>,
    /// The class that is not one of transformers, or the key that states custom code.
    pub(super) custom: Option<String>,
    /// True if the configuration states a class.
    pub(super) is_stated: bool,
    /// The path of the module that the stated class is, in the names of the architecture; [`OTHER_NAMES`] for others.
    pub(super) part: Option<&'static str>,
}

/// The models of which sentence-transformers loads the encoder alone (`_ENCODER_ONLY_MODELS` in
/// `sentence_transformers/base/modules/transformer.py`, 6.2).
const ENCODERS: [&str; 15] = [
    "t5",
    "mt5",
    "umt5",
    "udop",
    "longt5",
    "prophetnet",
    "switch_transformers",
    "blenderbot",
    "blenderbot-small",
    "m2m_100",
    "pegasus",
    "pegasus_x",
    "moonshine",
    "whisper",
    "marian",
];

/// Returns the architecture in the tables that a configuration states, and the key that states it.
fn stated_architecture(object: &JsonObject<'_>) -> Option<(String, &'static str)> {
    const CLASS: &str = "_class_name";

    if let Some(name) = object.get("model_type") {
        return Some((name, "model_type"));
    }
    if let Some(class) = object.get::<String>(CLASS) {
        return Some((format!("diffusers:{class}"), CLASS));
    }
    let has = |key: &str| object.number(key).is_some();
    // Neither does `params.json` of Mistral (`TransformerArgs` in `mistral_inference/args.py`).
    if ["dim", "n_layers", "n_heads", "head_dim"].into_iter().all(has) {
        return Some(("mistral-inference:Transformer".to_owned(), "n_layers"));
    }
    // The modules of sentence-transformers do not state their class.
    let (class, key) = match object.len() {
        1 if has("dimension") => ("LayerNorm", "dimension"),
        _ if has("in_features") && has("out_features") => ("Dense", "in_features"),
        _ => return None,
    };
    Some((format!("sentence-transformers:{class}"), key))
}

impl<'a> ModelClass<'a> {
    /// Returns the class of a configuration; `None` if it does not state an architecture.
    ///
    /// Source: `AutoModel.from_config` of transformers chooses by `model_type`, and pipelines build the class in
    /// `architectures`, which may implement another architecture.
    pub(super) fn new(config: &ModelConfig<'a>, loaded: LoadedAs) -> Option<Self> {
        let mut object = config.outermost().clone();
        let (mut architecture, key) = stated_architecture(&object)?;
        let mut names = object.get::<Vec<String>>("architectures").unwrap_or_default();
        let mut has_unknown_class = false;
        let mut custom =
            CUSTOM.iter().find(|key| object.raw(key).is_some()).map(|key| format!("`{key}`"));
        if let Some(name) = names.first() {
            match text_of("class", name) {
                // Files of the other class have other modules, although the configuration is that of this one.
                Some(other) if other != architecture && are_known(other, &architecture) => {
                    other.clone_into(&mut architecture);
                    let is_own = |model: &&NestedModel<'_>| {
                        model.object.get::<String>("model_type").as_ref() == Some(&architecture)
                    };
                    let own = config.models.iter().find(is_own);
                    object = own.map_or(object, |model| model.object.clone());
                }
                Some(_) => {}
                None => {
                    has_unknown_class = true;
                    custom = custom.or_else(|| Some(format!("`{}`", clip(name))));
                }
            }
        }
        let is_stated = !names.is_empty();
        let part = names.first().and_then(|name| text_of("inside", name));
        // Nothing is known about the head of another class.
        if loaded.is_base || has_unknown_class {
            names.clear();
        }
        if loaded.is_base && ENCODERS.contains(&&*architecture) {
            names.push("EncoderModel".to_owned());
        }
        Some(Self { architecture, key, object, names, custom, is_stated, part })
    }

    /// Returns the class with the modules of the stated architecture, if it has those of another one.
    pub(super) fn of_model_type(&self, config: &ModelConfig<'a>) -> Option<Self> {
        let object = config.outermost().clone();
        let (architecture, key) = stated_architecture(&object)?;
        let (names, custom) = (self.names.clone(), self.custom.clone());
        let (is_stated, part) = (self.is_stated, self.part);
        let other = Self { architecture, key, object, names, custom, is_stated, part };
        Some(other).filter(|other| other.architecture != self.architecture)
    }

    /// Returns the modules of the class, with the names that its loader renames; `None` if the class is not known.
    pub(super) fn layout(&self) -> Option<Blueprint<'a>> {
        Some(self.renamed(Blueprint::new(&self.architecture, self.object.clone())?))
    }

    /// Returns the modules of a class that is a module of its architecture, with the names that its loader renames.
    pub(super) fn part_layout(&self) -> Option<Blueprint<'a>> {
        let layout = Blueprint::of_part(&self.architecture, self.object.clone(), self.part?)?;
        Some(self.renamed(layout))
    }

    fn renamed(&self, mut layout: Blueprint<'a>) -> Blueprint<'a> {
        let name = self.names.first().map(String::as_str);
        layout.add_renames(Renames::new(name, &self.architecture, &self.object));
        layout
    }

    /// Returns the class of a part of a file without configuration. Messages name the kind of the file.
    pub(super) fn of_file(kind: &'static str) -> Self {
        Self {
            architecture: format!("single-file:{kind}"),
            key: kind,
            object: JsonObject::default(),
            names: Vec::new(),
            custom: None,
            is_stated: false,
            part: None,
        }
    }

    /// Returns the name of the architecture without that of its library.
    pub(super) fn shown(&self) -> &str {
        self.architecture.split_once(':').map_or(&*self.architecture, |(_, name)| name)
    }

    /// Compares the names of the stored tensors with those of the layout as a whole.
    ///
    /// # Errors
    ///
    /// Returns the reason if modules cannot be compared. It is a mismatch only if transformers loads the files, because other
    /// loaders have other names.
    pub(super) fn check_names(
        &self,
        layout: &Blueprint<'_>,
        stored: &StoredModules<'_>,
        loaded: LoadedAs,
        is_mlx: bool,
        found: &mut Mismatches,
    ) -> Result<(), String> {
        const KEY: &str = "model_type";

        let shown = clip(self.shown());
        let others = || Err(format!("the names are not those of `{shown}`"));
        let (is_named, first) = (stored.are_named_as(layout), stored.unknown.first());
        if let Some(custom) = &self.custom
            && (!is_named || first.is_some())
        {
            return Err(format!("the model has its own code ({custom})"));
        }
        let has_prefix = ![layout.prefix, ""].contains(&&*stored.prefix);
        if self.part == Some(OTHER_NAMES) && (!is_named || first.is_some() || has_prefix) {
            return others();
        }
        let is_by_transformers =
            loaded.is_found && self.is_stated && self.custom.is_none() && !is_mlx;
        let is_certain = is_by_transformers && layout.unknown.is_empty();
        if !is_named && (!is_certain || first.is_none()) {
            return others();
        }
        if let (true, Some((first, _))) = (stored.is_other(layout), first) {
            if is_certain {
                found.add(MismatchKind::OtherNames, first, KEY, &shown, "");
            }
            return others();
        }
        let wrong_prefix = stored.wrong_prefix(layout, is_by_transformers, is_mlx);
        if let Some(kind) = wrong_prefix {
            found.add_prefix(kind, &stored.prefix, KEY, layout.prefix);
        }
        if wrong_prefix == Some(MismatchKind::OtherPrefix) { others() } else { Ok(()) }
    }

    /// Returns whether the class has the head of a layout. Only models of transformers have several classes.
    pub(super) fn has_head(&self, layout: &Blueprint<'_>) -> bool {
        self.ends_with(layout.head_class) || self.architecture.contains(':')
    }

    /// Returns whether any name of a class has an end.
    pub(super) fn ends_with(&self, end: &str) -> bool {
        self.names.iter().any(|name| name.ends_with(end))
    }
}

/// Returns whether the table has the layouts of two architectures.
fn are_known(one: &str, other: &str) -> bool {
    [one, other].iter().all(|name| text_of("layout", name).is_some())
}

/// Returns whether the files were written by MLX, whose loaders have other names and shapes.
pub(super) fn is_by_mlx(headers: &Headers) -> bool {
    let format = |header: &FileHeader| header.metadata().and_then(|all| all.get("format").cloned());
    headers.iter().any(|(_, header)| format(header).as_deref() == Some("mlx"))
}
