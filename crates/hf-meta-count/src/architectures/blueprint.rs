//! The modules of an architecture, from the tables whose names end with `layouts.txt`.
//!
//! The header of `layouts.txt` explains the text that people read. `build.rs` packs it, so that a program contains fewer
//! bytes and parses the line of one architecture only:
//!
//! | packed word | in the table |
//! |---|---|
//! | `path=value` | a module with its sides, or a list with its length, whose path ends with `#` |
//! | `path.{words}` | the lines inside of a path |
//! | `path.key\|{words}` | `from key`: formulas over the keys of the nested model `key` |
//! | `path.<3`, `<llama` | `as`: the words of block 3; `like`: the words of another blueprint |
//! | `path.*=key` | `model key`: the blueprint of the architecture that the nested model states, without its head |
//! | `path.?=a\|b,c\|d` | `one group of`: of the groups `a` and `b`, and of `c` and `d`, one is stored |
//! | `path.?a=formula` | `group a if`: the group is stored if the formula is not 0 |
//! | `@=suffix`, `~=prefix` | `class`, `prefix` |
//!
//! A value has `-` for `optional`, `+` for `with bias`, the letter of its group with a colon, the formulas of its sides,
//! and its condition after a semicolon. `!5` is the value in line 5. Of several values of a path the first one holds. An
//! empty one removes the module.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use super::architecture::{Definitions, ModelNames, nested_text, text_of};
use super::renames::Renames;
use hf_meta_format::base::json_object::JsonObject;

/// The numbers of the lists around a module, from the outermost one. Further ones are 0.
pub(crate) type Place = [u32; MAX_LISTS];

/// The maximum number of lists inside each other.
const MAX_LISTS: usize = 3;

/// A module, or a list of modules.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent marks of the table")]
pub(crate) struct BlueprintEntry {
    /// The path inside the language model, with `#` for numbers.
    pub(crate) path: String,
    /// True for a module that only the model class with the head has.
    pub(crate) is_head: bool,
    pub(crate) is_list: bool,
    pub(crate) is_required: bool,
    pub(crate) has_bias: bool,
    /// The group, if only some models have the module.
    pub(crate) group: Option<Group>,
    /// The formulas of the shape, or of the length.
    pub(crate) formulas: &'static str,
    /// The index of the model whose keys the formulas use.
    pub(crate) scope: usize,
    /// The list around the entry; `None` outside of lists.
    pub(crate) parent: Option<usize>,
    /// The number of lists around the entry.
    pub(crate) depth: usize,
}

/// The modules that are stored together: the number of the blueprint, the list around them, and the name.
pub(crate) type Group = (usize, Option<usize>, GroupName);

/// The letter of a group, or the condition that its modules state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupName {
    Letter(char),
    Condition(&'static str),
}

/// A rule about the groups of a model.
#[derive(Debug, PartialEq)]
pub(crate) enum GroupRule {
    /// One of the groups is stored.
    One(Vec<Group>),
    /// The group is stored if a formula over the keys of a scope is not 0.
    If(Group, &'static str, usize),
}

/// A nested model.
pub(crate) struct Scope<'a> {
    /// The path of the keys, with a dot at its end.
    pub(crate) path: String,
    pub(crate) names: ModelNames<'a>,
    pub(crate) object: Rc<JsonObject<'a>>,
}

/// A node of the tree of paths.
#[derive(Debug, Default)]
struct Node {
    children: HashMap<String, usize>,
    entry: Option<usize>,
}

/// The blueprint of a model.
pub(crate) struct Blueprint<'a> {
    pub(crate) entries: Vec<BlueprintEntry>,
    pub(crate) rules: Vec<GroupRule>,
    pub(crate) scopes: Vec<Scope<'a>>,
    /// The end of the name of the model class with the head.
    pub(crate) head_class: &'static str,
    /// The prefix of the names in files of this class, except for the head.
    pub(crate) prefix: &'static str,
    /// The base model in the names of a layout without prefix, with a dot. Its class stores the names inside of it.
    pub(crate) base: String,
    /// The paths of nested models of unknown architectures.
    pub(crate) unknown: Vec<String>,
    /// The renaming of names by the loader.
    pub(crate) renames: Renames,
    /// The nodes of paths. The first three are the roots: of the model, of its head, and of the names that the loader makes
    /// of both.
    nodes: Vec<Node>,
}

/// The start of the condition of modules that are stored only by models with separate embeddings. The default of the class
/// follows.
const TIED: &str = "tie_word_embeddings==0|";

/// The root of the names of the blueprint after the loader has changed them.
const RENAMED: usize = 2;

impl<'a> Blueprint<'a> {
    /// Returns the blueprint of a model; `None` if its architecture is unknown.
    pub(crate) fn new(architecture: &str, object: JsonObject<'a>) -> Option<Self> {
        let mut layout = Words::new(architecture, object)?.finish();
        layout.add_base(architecture);
        Some(layout)
    }

    /// Returns the blueprint of a module of a model, with the names inside of its path; `None` if the tables do not have it.
    pub(crate) fn of_part(architecture: &str, object: JsonObject<'a>, path: &str) -> Option<Self> {
        let mut words = Words::new(architecture, object)?;
        words.narrow(path);
        Some(words.finish()).filter(|layout| !layout.entries.is_empty())
    }

    /// Finds the base model, whose path is the name of the architecture (`base_model_prefix` in the classes of transformers).
    fn add_base(&mut self, architecture: &str) {
        let child = self.nodes[0].children.get(architecture);
        let is_base = child.is_some_and(|child| !self.nodes[*child].children.is_empty());
        if is_base && self.prefix.is_empty() {
            self.base = format!("{architecture}.");
        }
    }

    fn insert(&mut self, entry: BlueprintEntry) {
        self.insert_path(usize::from(entry.is_head), &entry.path, self.entries.len());
        self.entries.push(entry);
    }

    /// Adds the path of an entry below a root. The first entry of a path holds.
    fn insert_path(&mut self, root: usize, path: &str, entry: usize) {
        let mut node = root;
        for part in path.split('.') {
            let new = self.nodes.len();
            let child = *self.nodes[node].children.entry(part.to_owned()).or_insert(new);
            if child == new {
                self.nodes.push(Node::default());
            }
            node = child;
        }
        self.nodes[node].entry.get_or_insert(entry);
    }

    /// Adds the rules of the loader for a class, and the names of the blueprint after these rules.
    pub(crate) fn add_renames(&mut self, renames: Renames) {
        /// The numbers in place of `#`, which no name contains, in the order of the lists.
        const NUMBERS: [&str; MAX_LISTS] = ["990001", "990002", "990003"];

        for at in 0..self.entries.len() {
            let entry = &self.entries[at];
            if entry.is_list {
                continue;
            }
            let depth = entry.depth;
            let mut name = if entry.is_head { String::new() } else { self.prefix.to_owned() };
            name += &entry.path;
            for number in NUMBERS {
                name = name.replacen('#', number, 1);
            }
            // A rule may be about the parameter of a module.
            let weight = format!("{name}.weight");
            let of_weight = renames.apply(&weight);
            let of_weight = of_weight.strip_suffix(".weight").unwrap_or(&of_weight);
            for found in [Cow::Borrowed(of_weight), renames.apply(&name)] {
                if found != name {
                    let path = NUMBERS
                        .iter()
                        .fold(found.into_owned(), |path, number| path.replace(number, "#"));
                    // A loader stacks the modules of a list, such as experts. A tensor with that name is the stack.
                    if path.split('.').filter(|part| *part == "#").count() == depth {
                        self.insert_path(RENAMED, &path, at);
                    }
                }
            }
        }
        self.renames = renames;
    }

    /// Finds the entry of a module whose name the loader has changed.
    pub(crate) fn find_renamed(&self, path: &str) -> Option<(usize, Place)> {
        self.walk(RENAMED, path, [0; MAX_LISTS], 0)
    }

    /// Finds the entry of a module, and the numbers in its path.
    pub(crate) fn find(&self, path: &str, is_head: bool) -> Option<(usize, Place)> {
        self.walk(usize::from(is_head), path, [0; MAX_LISTS], 0)
    }

    /// Follows a path from a node. A number that a path has is preferred to `#`.
    fn walk(&self, node: usize, path: &str, place: Place, depth: usize) -> Option<(usize, Place)> {
        let (part, rest) =
            path.split_once('.').map_or((path, None), |(part, rest)| (part, Some(rest)));
        let next = |name: &str, place, depth| {
            let child = *self.nodes[node].children.get(name)?;
            match rest {
                Some(rest) => self.walk(child, rest, place, depth),
                None => Some((self.nodes[child].entry?, place)),
            }
        };
        next(part, place, depth).or_else(|| {
            if depth >= MAX_LISTS {
                return None;
            }
            let number = part.parse().ok()?;
            let mut place = place;
            place[depth] = number;
            next("#", place, depth + 1)
        })
    }

    /// Returns the outermost list in a path that need not be known, and the number of the element.
    pub(crate) fn element(&self, path: &str) -> Option<(usize, u32)> {
        let mut node = 0;
        for part in path.split('.') {
            let children = &self.nodes[node].children;
            let Some(child) = children.get(part) else {
                let list = self.nodes[*children.get("#")?].entry?;
                return Some((list, part.parse().ok()?));
            };
            node = *child;
        }
        None
    }

    /// Returns whether the class ties its embeddings if the configuration does not say so; `None` if it is not known.
    pub(crate) fn is_tied(&self) -> Option<bool> {
        let is_untied = self.rules.iter().find_map(|rule| match rule {
            GroupRule::If(_, formula, 0) => formula.strip_prefix(TIED)?.parse::<u8>().ok(),
            _ => None,
        });
        is_untied.map(|value| value == 0)
    }

    /// Returns whether any path begins with a segment.
    pub(crate) fn has_root(&self, segment: &str) -> bool {
        let children = &self.nodes[0].children;
        children.contains_key(segment)
            || children.contains_key("#") && segment.parse::<u32>().is_ok()
    }
}

/// The value of a path, the scope of its formulas, and the number of the blueprint that it is from.
struct Word {
    value: &'static str,
    scope: usize,
    blueprint: usize,
}

/// The words of a blueprint while they are read, and those of nested blueprints.
#[derive(Default)]
struct Words<'a> {
    /// The definitions of names in formulas.
    names: Definitions,
    found: BTreeMap<String, Word>,
    scopes: Vec<Scope<'a>>,
    /// The number of the blueprint that is read.
    blueprint: usize,
    /// The nested blueprints: the prefix, the key and the scope around it. Without a key there is none.
    nested: Vec<(String, &'static str, usize)>,
    unknown: Vec<String>,
}

impl<'a> Words<'a> {
    /// Reads the words of an architecture; `None` if it is unknown.
    fn new(architecture: &str, object: JsonObject<'a>) -> Option<Self> {
        let text = text_of("layout", architecture)?;
        let kind = architecture.split_once(':').map_or("", |(kind, _)| kind);
        let names = Definitions::find("names", kind).or_else(|| Definitions::find("cache", "root"));
        let mut words = Self { names: names.unwrap_or_default(), ..Self::default() };
        words.add_scope(String::new(), object);
        words.read(text, "", 0);
        words.read_nested();
        Some(words)
    }

    /// Removes all words outside of a path, and the path from the others.
    fn narrow(&mut self, path: &str) {
        let outer = format!("{path}.");
        let inside = |name: &str| Some(name.strip_prefix(&outer)?.to_owned());
        let found = std::mem::take(&mut self.found).into_iter();
        self.found = found.filter_map(|(name, word)| Some((inside(&name)?, word))).collect();
        self.unknown = self.unknown.iter().filter_map(|name| inside(name)).collect();
    }

    fn add_scope(&mut self, path: String, object: JsonObject<'a>) -> usize {
        let object = Rc::new(object);
        let architecture = object.get::<String>("model_type").unwrap_or_default();
        let definitions = Definitions::defaults(&architecture).or(self.names.clone());
        let shared = Rc::clone(&object);
        let mut names = ModelNames::new(definitions, move |key| nested_text(&shared, key));
        names.of_class = Definitions::of_class(&architecture);
        self.scopes.push(Scope { path, names, object });
        self.scopes.len() - 1
    }

    /// Adds the scope of a nested model. A missing one has no keys.
    fn nested_scope(&mut self, key: &str, outer: usize) -> usize {
        let Scope { path, object, .. } = &self.scopes[outer];
        let path = format!("{path}{key}.");
        if let Some(known) = self.scopes.iter().position(|scope| scope.path == path) {
            return known;
        }
        let nested = object.get::<JsonObject<'a>>(key).unwrap_or_default();
        self.add_scope(path, nested)
    }

    /// Reads words up to the end of their block, and returns the rest of the text. A path that is known keeps its value.
    fn read(&mut self, text: &'static str, path: &str, scope: usize) -> &'static str {
        let mut rest = text;
        loop {
            rest = rest.trim_start_matches(' ');
            if rest.is_empty() || rest.starts_with('}') {
                return rest.get(1..).unwrap_or_default();
            }
            let end = rest.find(['=', '{', '<']).unwrap_or(rest.len());
            let (key, after) = rest.split_at(end);
            let Some(value) = after.get(1..) else { return "" };
            if after.starts_with('{') {
                let (path, scope) = self.block(path, key, scope);
                rest = self.read(value, &path, scope);
                continue;
            }
            let (value, others) = value.split_at(value.find([' ', '}']).unwrap_or(value.len()));
            rest = others;
            let shared = value.strip_prefix('!').and_then(|number| text_of("value", number));
            let value = shared.unwrap_or(value);
            if after.starts_with('<') {
                let (path, scope) = self.block(path, key, scope);
                let text = text_of("part", value).or_else(|| text_of("layout", value));
                self.read(text.unwrap_or_default(), &path, scope);
            } else if key == "*" || key.ends_with(".*") {
                let prefix = format!("{path}{}", &key[..key.len() - 1]);
                if self.nested.iter().all(|(other, ..)| *other != prefix) {
                    self.nested.push((prefix, value, scope));
                }
            } else if self.blueprint == 0
                || !path.contains('^') && !key.starts_with(['^', '@', '~'])
            {
                let word = Word { value, scope, blueprint: self.blueprint };
                self.found.entry(format!("{path}{key}")).or_insert(word);
            }
        }
    }

    /// Returns the path and the scope of a block.
    fn block(&mut self, path: &str, key: &str, scope: usize) -> (String, usize) {
        let Some(key) = key.strip_suffix('|') else { return (format!("{path}{key}"), scope) };
        let (inner, nested) = key.split_at(key.rfind('.').map_or(0, |dot| dot + 1));
        (format!("{path}{inner}"), self.nested_scope(nested, scope))
    }

    /// Adds the blueprints of nested models.
    fn read_nested(&mut self) {
        /// The maximum number of nested models, because a configuration could nest any number.
        const MAX_SCOPES: usize = 32;

        let mut at = 0;
        while let Some((prefix, key, outer)) = self.nested.get(at).cloned() {
            at += 1;
            if key.is_empty() {
                continue;
            }
            let scope = self.nested_scope(key, outer);
            let of = |at: usize| self.scopes[at].object.get::<String>("model_type");
            // The tower of `glm4v_moe` states the type of the whole model in transformers 4.
            let tower = |name: String| {
                if of(outer) == Some(name.clone()) { name + "_vision" } else { name }
            };
            let text = of(scope).map(tower).and_then(|name| text_of("layout", &name));
            let text = match text {
                Some(text) if self.scopes.len() < MAX_SCOPES => text,
                _ => {
                    self.unknown.push(prefix);
                    continue;
                }
            };
            self.blueprint += 1;
            self.read(text, &prefix, scope);
        }
    }

    fn finish(self) -> Blueprint<'a> {
        let Self { mut found, scopes, unknown, .. } = self;
        let mut take = |key: &str| found.remove(key).map_or("", |word| word.value);
        let (head_class, prefix) = (take("@"), take("~"));
        let mut blueprint = Blueprint {
            entries: Vec::new(),
            rules: Vec::new(),
            scopes,
            head_class,
            prefix,
            base: String::new(),
            unknown,
            renames: Renames::default(),
            nodes: vec![Node::default(), Node::default(), Node::default()],
        };
        // A list precedes what is in it.
        let mut lists = HashMap::new();
        for (path, word) in found.into_iter().filter(|(_, word)| !word.value.is_empty()) {
            let parent_end = path.trim_end_matches('#').rfind('#').map_or(0, |end| end + 1);
            let parent = lists.get(&path[..parent_end]).copied();
            let end = path.rsplit(['.', '^']).next();
            if let Some(letter) = end.and_then(|end| end.strip_prefix('?')) {
                blueprint.rules.extend(word.rules(letter, parent));
                continue;
            }
            if path.ends_with('#') {
                lists.insert(path.clone(), blueprint.entries.len());
            }
            let (entry, condition) = BlueprintEntry::new(&path, &word, parent);
            // The modules of a group state the same condition.
            blueprint.rules.extend(condition.filter(|rule| !blueprint.rules.contains(rule)));
            blueprint.insert(entry);
        }
        blueprint
    }
}

impl Word {
    /// Returns the rules about one group, or about groups of which one is stored.
    fn rules(&self, letter: &str, parent: Option<usize>) -> Vec<GroupRule> {
        let group = |letter| (self.blueprint, parent, GroupName::Letter(letter));
        if let Some(letter) = letter.chars().next() {
            return vec![GroupRule::If(group(letter), self.value, self.scope)];
        }
        let groups = |text: &str| {
            text.split('|').filter_map(|text| text.chars().next()).map(group).collect()
        };
        self.value.split(',').map(|choice| GroupRule::One(groups(choice))).collect()
    }
}

impl BlueprintEntry {
    /// Returns whether the module is not stored if it is tied to another one.
    pub(crate) fn may_be_tied(&self) -> bool {
        matches!(self.group, Some((.., GroupName::Condition(formula))) if formula.starts_with(TIED))
    }

    /// Creates an entry, and the rule of its condition.
    fn new(path: &str, word: &Word, parent: Option<usize>) -> (Self, Option<GroupRule>) {
        let (value, condition) = match word.value.split_once(';') {
            Some((value, condition)) => (value, Some(condition)),
            None => (word.value, None),
        };
        let formulas = value.trim_start_matches(['+', '-']);
        let flags = &value[..value.len() - formulas.len()];
        let (letter, formulas) = match formulas.split_at_checked(2) {
            Some((letter, formulas)) if letter.ends_with(':') => (letter.chars().next(), formulas),
            _ => (None, formulas),
        };
        let name = condition.map(GroupName::Condition).or(letter.map(GroupName::Letter));
        let group = name.map(|name| (word.blueprint, parent, name));
        let rule = group.zip(condition);
        let rule = rule.map(|(group, formula)| GroupRule::If(group, formula, word.scope));
        let entry = Self {
            is_head: path.starts_with('^'),
            is_list: path.ends_with('#'),
            is_required: group.is_none() && !flags.contains('-'),
            has_bias: flags.contains('+'),
            group,
            formulas,
            scope: word.scope,
            parent,
            depth: path.trim_end_matches('#').matches('#').count(),
            path: path.trim_start_matches('^').to_owned(),
        };
        (entry, rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architectures::architecture::PACKED;

    fn blueprint(config: &str) -> Blueprint<'_> {
        let object: JsonObject<'_> = serde_json::from_str(config).unwrap();
        let architecture: String = object.get("model_type").unwrap();
        Blueprint::new(&architecture, object).unwrap()
    }

    /// A part that does not exist, or a word that is not understood, would be ignored.
    #[test]
    fn every_line_is_understood() {
        let is_layout = |line: &&str| line.starts_with("layout ") || line.starts_with("part ");
        let mut blueprints = 0;
        for line in PACKED.lines().filter(is_layout) {
            let [kind, names, words] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            assert_eq!(words.matches('{').count(), words.matches('}').count(), "{names}");
            for reference in
                words.split([' ', '{', '}', '|', '.']).filter_map(|word| word.strip_prefix('<'))
            {
                let found = text_of("part", reference).or_else(|| text_of("layout", reference));
                assert!(found.is_some(), "{names}: {reference}");
            }
            if kind != "layout" {
                continue;
            }
            for name in names.split(',') {
                blueprints += 1;
                let config = format!(r#"{{"model_type":"{name}"}}"#);
                let blueprint = blueprint(&config);
                assert!(!blueprint.entries.is_empty() || !blueprint.unknown.is_empty(), "{name}");
                for entry in &blueprint.entries {
                    assert!(
                        entry.depth + usize::from(entry.is_list) <= MAX_LISTS,
                        "{name} {}",
                        entry.path
                    );
                    let is_symbol = |char: char| "_.$,+-*/%()=<>|~?:@".contains(char);
                    assert!(
                        entry
                            .formulas
                            .chars()
                            .all(|char| is_symbol(char) || char.is_ascii_alphanumeric()),
                        "{name} {}",
                        entry.path
                    );
                }
            }
        }
        assert!(blueprints > 500, "{blueprints}");
    }

    #[test]
    fn a_nested_model_has_the_layout_of_its_own_architecture() {
        let found = |text: &str| {
            let config = format!(
                r#"{{"model_type":"llava","text_config":{{"model_type":"{text}"}},"vision_config":{{"model_type":"clip_vision_model"}}}}"#
            );
            let blueprint = blueprint(&config);
            let find = |path: &str| blueprint.find(path, false).map(|(_, place)| place);
            ["self_attn.q_norm", "self_attn.q_proj"]
                .map(|module| find(&format!("language_model.model.layers.7.{module}")))
        };
        assert_eq!(found("llama"), [None, Some([7, 0, 0])]);
        assert_eq!(found("qwen3"), [Some([7, 0, 0]), Some([7, 0, 0])]);
        assert_eq!(found("new"), [None, None]);
    }

    /// A configuration may nest any number of models.
    #[test]
    fn nested_models_are_limited() {
        let part = r#"{"model_type":"vision-encoder-decoder","encoder":"#;
        let config = part.repeat(100) + "{}" + &"}".repeat(100);
        let object = serde_json::from_str(&config).unwrap();
        let blueprint = Blueprint::new("vision-encoder-decoder", object).unwrap();
        // The last blueprint may add more.
        assert!(blueprint.scopes.len() < 48, "{}", blueprint.scopes.len());
    }
}
