//! Compares the tensors of a model of timm with the sizes that timm builds for its architecture.
//!
//! timm builds a model from its name (`create_model` in `timm/models/_factory.py`, 1.0.31), and loads no file that lacks a
//! tensor of it (`load_state_dict` with `strict`). The table has the number of tensors, elements and rows of each outermost
//! module. For `resnet18`, the line `layer1/2 20 147968 256` requires two blocks with 20 tensors in all.

use std::collections::{BTreeMap, BTreeSet};

use super::{MismatchKind, Mismatches, sides_text};
use crate::architectures::architecture::{names_of, text_of};
use crate::results::text::{counted, thousands};
use hf_meta_format::base::json_object::{JsonObject, number, read};
use hf_meta_format::base::sort::Ordered;
use hf_meta_format::formats::{Headers, TensorInfo, clip, loaded_tensors};

/// The key of the name.
const KEY: &str = "architecture";

/// The keys of the configurations of other libraries.
const OTHER_KEYS: [&str; 2] = ["model_type", "_class_name"];

/// Parts of the names of tensors that depend on the size of images, or that some versions of timm do not store.
const NOT_COUNTED: [&str; 8] = [
    "pos_embed",
    "relative_position",
    "rel_pos",
    "rope",
    "attn_mask",
    "freqs",
    "attention_bias",
    "num_batches_tracked",
];

/// The numbers of tensors, elements and rows of a module.
type Size = [u64; 3];

/// The sizes that timm builds.
#[derive(Default)]
struct ModelSizes {
    /// True if timm does not convert the names of other programs.
    is_exact: bool,
    pool: Option<&'static str>,
    classifiers: Vec<&'static str>,
    /// The modules whose inputs are the channels of images.
    first: Vec<&'static str>,
    /// The outermost modules, with the length of lists.
    parts: BTreeMap<&'static str, (Option<u64>, Size)>,
}

impl ModelSizes {
    /// Returns the sizes of an architecture.
    fn find(name: &str) -> Option<Self> {
        let mut sizes = Self::default();
        for line in text_of("timm", name)?.split('\t') {
            let mut words = line.split(' ');
            match words.next().unwrap_or_default() {
                "exact" => sizes.is_exact = true,
                "pool" => sizes.pool = words.next(),
                "classifier" => sizes.classifiers = words.collect(),
                "first" => sizes.first = words.collect(),
                path => {
                    let mut number = || words.next()?.parse().ok();
                    let size = [number()?, number()?, number()?];
                    let (path, length) = path.split_once('/').unwrap_or((path, ""));
                    sizes.parts.insert(path, (length.parse().ok(), size));
                }
            }
        }
        Some(sizes)
    }
}

/// The tensors of an outermost module.
#[derive(Default)]
struct StoredPart {
    numbers: BTreeSet<u64>,
    size: Size,
}

/// A model of timm.
struct TimmModel<'a> {
    name: String,
    config: &'a JsonObject<'a>,
    arguments: JsonObject<'a>,
}

/// Compares the tensors with the sizes in the table. Returns `None` if the configuration is not one of timm, and the reason if
/// nothing can be compared.
pub(super) fn check_timm(
    config: &JsonObject<'_>,
    headers: &Headers,
    found: &mut Mismatches,
) -> Option<Result<(), String>> {
    let Some(model) = TimmModel::new(config) else {
        // timm looks the name up first (`load_model_config_from_hf` in `timm/models/_hub.py`).
        let has = |key: &&str| config.raw(key).is_some();
        if has(&"pretrained_cfg")
            && !OTHER_KEYS.iter().any(has)
            && config.get::<String>(KEY).is_none()
        {
            found.add(MismatchKind::InvalidConfigValue, KEY, KEY, "a name", "it is missing");
        }
        return None;
    };
    Some(model.check(headers, found))
}

impl<'a> TimmModel<'a> {
    /// Returns the model that a configuration states as timm writes it (`save_config_for_hf` in `timm/models/_hub.py`).
    fn new(config: &'a JsonObject<'a>) -> Option<Self> {
        let is_other = OTHER_KEYS.iter().any(|key| config.raw(key).is_some());
        let is_timm =
            ["pretrained_cfg", "num_features"].iter().any(|key| config.raw(key).is_some());
        if is_other || !is_timm {
            return None;
        }
        let name = config.get::<String>(KEY)?;
        // The part after the dot names the weights.
        let name = name.split('.').next().unwrap_or_default().to_owned();
        Some(Self { name, config, arguments: config.get("model_args").unwrap_or_default() })
    }

    fn check(&self, headers: &Headers, found: &mut Mismatches) -> Result<(), String> {
        let shown = clip(&self.name);
        let Some(sizes) = ModelSizes::find(&self.name) else {
            found.add(MismatchKind::UnknownArchitecture, &shown, KEY, "1.0.31", "");
            return Err(format!("timm has no architecture `{shown}`"));
        };
        self.check_arguments()?;
        let stored = stored_parts(&sizes, headers);
        let first = stored.keys().find(|path| !sizes.parts.contains_key(*path));
        if let Some(first) = first {
            let is_known = sizes.parts.keys().any(|path| stored.contains_key(path));
            if sizes.is_exact && !is_known || is_wrapped(&sizes, headers) {
                found.add(MismatchKind::ForeignNames, first, KEY, &shown, "");
                return Ok(());
            }
            if let Some(other) = model_of(headers) {
                found.add(MismatchKind::OtherArchitecture, other, KEY, &shown, "");
                return Ok(());
            }
            if !sizes.is_exact {
                return Err(format!("`{shown}` has no module `{}`", clip(first)));
            }
        }
        self.check_pool(&sizes)?;
        self.check_classes(&sizes, headers, found);
        for (path, (length, expected)) in &sizes.parts {
            let is_head = |module: &&str| module.split('.').next() == Some(*path);
            if self.classes() == Some(0) && sizes.classifiers.iter().any(is_head) {
                continue;
            }
            let none = StoredPart::default();
            let part = stored.get(path).unwrap_or(&none);
            self.check_part(path, *length, *expected, part, found);
        }
        Ok(())
    }

    /// Checks that no argument changes the sizes.
    fn check_arguments(&self) -> Result<(), String> {
        const KNOWN: [&str; 4] = ["global_pool", "img_size", "in_chans", "num_classes"];

        let mut arguments = self.arguments.entries().map(|(key, _)| key);
        let other = arguments.find(|key| !KNOWN.contains(key));
        other.map_or(Ok(()), |key| Err(format!("`model_args` states `{}`", clip(key))))
    }

    /// Checks that the model pools as the one in the table. Other ways need other modules.
    fn check_pool(&self, sizes: &ModelSizes) -> Result<(), String> {
        let pool = |object: &JsonObject<'_>| object.get::<String>("global_pool");
        match (pool(&self.arguments).or_else(|| pool(self.config)), sizes.pool) {
            (Some(stated), Some(pool)) if stated != pool => {
                Err(format!("`global_pool` is `{}`, and not `{pool}`", clip(&stated)))
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of classes; `None` if it is not stated, or in two ways.
    fn classes(&self) -> Option<u64> {
        const CLASSES: &str = "num_classes";

        let stated = self.config.number(CLASSES)?;
        let argument = self.arguments.raw(CLASSES).map(number);
        argument.is_none_or(|argument| argument == Some(stated)).then_some(stated)
    }

    /// Returns whether the model is built for images of the standard size.
    fn has_standard_size(&self) -> bool {
        let Some(size) = self.arguments.raw("img_size") else { return true };
        let pretrained = self.config.get::<JsonObject<'_>>("pretrained_cfg").unwrap_or_default();
        let standard = pretrained.get::<Vec<u64>>("input_size").unwrap_or_default();
        let sides = read::<Vec<u64>>(size).or_else(|| number(size).map(|side| vec![side; 2]));
        sides.is_some_and(|sides| standard.get(1..) == Some(&sides[..]))
    }

    /// Compares the rows of the classifiers with the number of classes.
    fn check_classes(&self, sizes: &ModelSizes, headers: &Headers, found: &mut Mismatches) {
        let Some(classes) = self.classes().filter(|classes| *classes > 0) else { return };
        let stored: BTreeSet<_> =
            loaded_tensors(headers).map(|(name, _)| module_of(name)).ordered();
        for module in sizes.classifiers.iter().filter(|module| !stored.contains(*module)) {
            found.add(MismatchKind::MissingModule, module, "num_classes", "", "");
        }
        for (name, TensorInfo { shape, .. }) in loaded_tensors(headers) {
            let module = name.strip_suffix(".weight").unwrap_or_default();
            if sizes.classifiers.contains(&module) && shape.first() != Some(&classes) {
                let rows = (0..shape.len()).map(|at| (at == 0).then_some(classes));
                let (expected, shape) = (sides_text(rows), format!("{shape:?}"));
                found.add(MismatchKind::ShapeMismatch, name, "num_classes", expected, shape);
            }
        }
    }

    fn check_part(
        &self,
        path: &str,
        length: Option<u64>,
        expected: Size,
        part: &StoredPart,
        found: &mut Mismatches,
    ) {
        const UNITS: [&str; 2] = ["tensor", "parameter"];

        let name = clip(&self.name);
        if part.size[0] == 0 {
            let inside = counted(expected[0], UNITS[0]);
            return found.add(MismatchKind::MissingModules, path, KEY, "", inside);
        }
        let lacking = (0..length.unwrap_or_default()).find(|at| !part.numbers.contains(at));
        if let Some(at) = lacking {
            let missing = format!("block {at}");
            return found.add(MismatchKind::MissingBlocks, path, KEY, &name, missing);
        }
        // With more tensors, there are some that timm does not need.
        if part.size[0] > expected[0] {
            return;
        }
        let is_sized = self.has_standard_size();
        for (at, unit) in UNITS.iter().enumerate().filter(|(at, _)| *at == 0 || is_sized) {
            if part.size[at] != expected[at] {
                let has = counted(part.size[at], unit);
                let kind = MismatchKind::OtherSize;
                return found.add(kind, path, &name, thousands(expected[at]), has);
            }
        }
        if is_sized && part.size[2] != expected[2] {
            let has = format!("matrices with {} rows in all", thousands(part.size[2]));
            found.add(MismatchKind::OtherSize, path, &name, thousands(expected[2]), has);
        }
    }
}

/// Returns the name of the module of a tensor.
fn module_of(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(module, _)| module)
}

/// Returns the outermost modules of the files, without the classifiers.
fn stored_parts<'h>(sizes: &ModelSizes, headers: &'h Headers) -> BTreeMap<&'h str, StoredPart> {
    parts_below("", sizes, headers)
}

/// Returns whether the names of a model follow a prefix that timm does not remove.
fn is_wrapped(sizes: &ModelSizes, headers: &Headers) -> bool {
    /// The prefixes that timm removes (`clean_state_dict`, and `checkpoint_filter_fn` of its models), by their first segments.
    const REMOVED: [&str; 10] = [
        "aligner",
        "encoder",
        "image_encoder",
        "model",
        "module",
        "network",
        "trunk",
        "vision",
        "vision_tower",
        "visual",
    ];

    let mut names = loaded_tensors(headers).map(|(name, _)| name);
    let Some(first) = names.next() else { return false };
    let length = names.fold(first.len(), |length, name| {
        let mut pairs = name.bytes().zip(first[..length].bytes());
        pairs.position(|(one, other)| one != other).unwrap_or(length.min(name.len()))
    });
    // The first names of a model may have more in common than its prefix.
    let ends = first.match_indices('.').map(|(dot, _)| dot + 1);
    let segment = first.split('.').next().unwrap_or_default();
    !REMOVED.contains(&segment)
        && ends.take_while(|end| *end <= length).any(|end| {
            let parts = parts_below(&first[..end], sizes, headers);
            let has_size = |(path, (_, size)): (&&str, &(Option<u64>, Size))| {
                parts.get(path).is_some_and(|part| part.size == *size)
            };
            parts.len() == sizes.parts.len() && sizes.parts.iter().all(has_size)
        })
}

/// Returns the architecture with the sizes of all modules of the files, and of several the one with the shortest name.
fn model_of(headers: &Headers) -> Option<&'static str> {
    /// The maximum number of tensors. Comparing more with all architectures takes long.
    const MAX_TENSORS: usize = 10_000;

    if loaded_tensors(headers).nth(MAX_TENSORS).is_some() {
        return None;
    }
    let tops = loaded_tensors(headers).map(|(name, _)| name.split('.').next().unwrap_or(name));
    let tops: BTreeSet<_> = tops.ordered();
    let is_same = |name: &&str| {
        let Some(sizes) = ModelSizes::find(name) else { return false };
        sizes.parts.keys().all(|path| tops.contains(path)) && {
            let parts = stored_parts(&sizes, headers);
            let has_size = |(path, part): (&&str, &StoredPart)| {
                sizes.parts.get(path).is_some_and(|(_, size)| part.size == *size)
            };
            parts.len() == sizes.parts.len() && parts.iter().all(has_size)
        }
    };
    names_of("timm").filter(is_same).min_by_key(|name| (name.len(), *name))
}

/// Returns the outermost modules behind a prefix, without the classifiers.
fn parts_below<'h>(
    prefix: &str,
    sizes: &ModelSizes,
    headers: &'h Headers,
) -> BTreeMap<&'h str, StoredPart> {
    let mut parts = BTreeMap::<_, StoredPart>::new();
    let tensors = loaded_tensors(headers)
        .filter_map(|(name, tensor)| Some((name.strip_prefix(prefix)?, tensor)));
    for (name, tensor) in tensors {
        let module = module_of(name);
        if sizes.classifiers.contains(&module) || NOT_COUNTED.iter().any(|part| name.contains(part))
        {
            continue;
        }
        let (top, rest) = name.split_once('.').unwrap_or((name, ""));
        let part = parts.entry(top).or_default();
        part.numbers.extend(rest.split('.').next().and_then(|number| number.parse::<u64>().ok()));
        let [tensors, elements, rows] = &mut part.size;
        *tensors += 1;
        if !sizes.first.contains(&module) {
            *elements = elements.saturating_add(tensor.elements().unwrap_or(u64::MAX));
            let is_matrix = tensor.shape.len() > 1 && tensor.shape[0] > 1;
            *rows = rows.saturating_add(if is_matrix { tensor.shape[0] } else { 0 });
        }
    }
    parts
}
