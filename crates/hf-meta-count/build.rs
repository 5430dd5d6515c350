//! Packs the tables that people read into the text that `architectures/blueprint.rs` parses.
//!
//! The packed text has one line per layout, so that only the line of one architecture is parsed. Paths are joined in
//! braces, blocks have numbers, and values that are frequent are written once.

#![allow(clippy::expect_used, reason = "a build script has no other way to report an error")]

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// The tables of lines, which are copied without their comments.
const LINES: [&str; 5] = ["architectures", "classes", "left_out", "vllm", "../memory/gpus"];
/// The table of lines of which many are equal but for the name, so that they become one line with all names.
const NAMES: [&str; 1] = ["../engines/engines"];
/// The tables of blocks with a name and lines, of which each becomes a line with tabs.
const RULES: [&str; 3] = ["renames", "defaults", "timm"];
/// The tables of modules. Their header explains the words.
const MODULES: [&str; 7] = [
    "layouts",
    "gguf_layouts",
    "diffusers_layouts",
    "diffusers_classes",
    "mistral_layouts",
    "sentence_transformers_layouts",
    "single_file_layouts",
];

fn main() {
    let mut packed = Packed::default();
    for names in [&LINES[..], &NAMES, &RULES, &MODULES] {
        for name in names {
            let path = format!("src/architectures/{name}.txt");
            println!("cargo::rerun-if-changed={path}");
            let text = fs::read_to_string(&path).expect("a table can be read");
            let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
            if MODULES.contains(name) {
                packed.add_blocks(&lines.map(Line::new).collect::<Vec<_>>());
            } else if RULES.contains(name) {
                packed.add_rules(&lines.map(Line::new).collect::<Vec<_>>());
            } else if NAMES.contains(name) {
                packed.add_names(lines);
            } else {
                packed.lines.extend(lines.map(|line| vec![Piece::Text(line.to_owned())]));
            }
        }
    }
    let folder = env::var_os("OUT_DIR").expect("cargo sets `OUT_DIR`");
    fs::write(Path::new(&folder).join("tables.txt"), packed.text()).expect("a file is written");
}

/// A line of a table, without the spaces before it.
struct Line<'t> {
    depth: usize,
    text: &'t str,
}

impl<'t> Line<'t> {
    fn new(line: &'t str) -> Self {
        let text = line.trim_start();
        Self { depth: (line.len() - text.len()) / 2, text }
    }
}

/// A part of a packed line: a text, or a value that other lines may have, too.
enum Piece {
    Text(String),
    Value(String),
}

/// The packed lines, and the numbers of the blocks.
#[derive(Default)]
struct Packed {
    lines: Vec<Vec<Piece>>,
    numbers: HashMap<String, usize>,
}

impl Packed {
    fn add_names<'t>(&mut self, lines: impl Iterator<Item = &'t str>) {
        let mut names = BTreeMap::<_, Vec<_>>::new();
        for line in lines {
            let (kind, rest) = line.split_once(' ').expect(line);
            let (name, rest) = rest.split_once(' ').expect(line);
            names.entry((kind, rest)).or_default().push(name);
        }
        for ((kind, rest), names) in names {
            self.lines.push(vec![Piece::Text(format!("{kind} {} {rest}", names.join(",")))]);
        }
    }

    fn add_rules(&mut self, lines: &[Line<'_>]) {
        for block in lines.chunk_by(|_, next| next.depth > 0) {
            let rules: Vec<_> = block[1..].iter().map(|line| line.text).collect();
            let text = format!("{} {}", block[0].text.replace(", ", ","), rules.join("\t"));
            self.lines.push(vec![Piece::Text(text)]);
        }
    }

    fn add_blocks(&mut self, lines: &[Line<'_>]) {
        for line in lines.iter().filter(|line| line.depth == 0) {
            if let Some(name) = line.text.strip_prefix("block ") {
                let number = self.numbers.len();
                assert!(self.numbers.insert(name.to_owned(), number).is_none(), "{name} exists");
            }
        }
        for block in lines.chunk_by(|_, next| next.depth > 0) {
            let (first, inner) = (block[0].text, &block[1..]);
            if first.starts_with("exceptions ") {
                self.add_rules(block);
                continue;
            }
            let start = if let Some(names) = first.strip_prefix("architecture ") {
                format!("layout {}", names.replace(", ", ","))
            } else if let Some(name) = first.strip_prefix("block ") {
                format!("part {}", self.numbers[name])
            } else {
                assert!(inner.is_empty(), "{first}: neither a block nor an architecture");
                first.to_owned()
            };
            let mut words = vec![Piece::Text(start)];
            self.add_inner(inner, 1, &mut words);
            self.lines.push(words);
        }
    }

    /// Adds the words of lines of one depth, with the lines inside of each. The layout after `like` comes last, because
    /// the first value of a path holds.
    fn add_inner(&self, lines: &[Line<'_>], depth: usize, words: &mut Vec<Piece>) {
        let mut original = None;
        for block in lines.chunk_by(|_, next| next.depth > depth) {
            let text = block[0].text;
            assert_eq!(block[0].depth, depth, "{text}: an unexpected depth");
            match text.split_once(' ').unwrap_or((text, "")) {
                ("like", name) => original = Some(name),
                ("class", rest) => add_value(words, "@", value_or_none(rest)),
                ("prefix", rest) => add_value(words, "~", value_or_none(rest)),
                ("one", rest) => {
                    let groups = rest.strip_prefix("group of ").expect(text);
                    add_value(words, "?", value_or_none(groups));
                }
                ("group", rest) => {
                    let (name, condition) = rest.split_once(' ').expect(text);
                    let condition = condition.strip_prefix("if ").unwrap_or(condition);
                    add_value(words, &format!("?{name}"), value_or_none(condition));
                }
                (path, rest) => self.add_module(path, rest, &block[1..], depth, words),
            }
        }
        if let Some(name) = original {
            words.push(Piece::Text(format!(" <{name}")));
        }
    }

    fn add_module(
        &self,
        path: &str,
        rest: &str,
        inner: &[Line<'_>],
        depth: usize,
        words: &mut Vec<Piece>,
    ) {
        let (value, scope, block) = module(path, rest);
        if let Some(value) = value {
            add_value(words, path, &value);
        }
        let scope = scope.map_or_else(String::new, |scope| format!("{scope}|"));
        if let Some(block) = block {
            let number = self.numbers.get(block).unwrap_or_else(|| panic!("there is no {block}"));
            words.push(Piece::Text(format!(" {path}.{scope}<{number}")));
        } else if !inner.is_empty() {
            words.push(Piece::Text(format!(" {path}.{scope}{{")));
            self.add_inner(inner, depth + 1, words);
            words.push(Piece::Text("}".to_owned()));
        }
    }

    /// Returns all lines. A frequent value has a line.
    fn text(&self) -> String {
        let mut uses = BTreeMap::<&str, usize>::new();
        for piece in self.lines.iter().flatten() {
            if let Piece::Value(value) = piece {
                *uses.entry(value).or_default() += 1;
            }
        }
        // A reference has some 3 bytes, and the line of a value has 11 more than the value.
        uses.retain(|value, uses| *uses * value.len() > *uses * 3 + value.len() + 11);
        let mut values: Vec<_> = uses.into_iter().collect();
        values.sort_by(|left, right| right.1.cmp(&left.1).then(left.0.cmp(right.0)));
        let numbers = values.iter().enumerate().map(|(number, (value, _))| (*value, number));
        let numbers: HashMap<_, _> = numbers.collect();
        let mut text = String::new();
        for (number, (value, _)) in values.iter().enumerate() {
            let _ = writeln!(text, "value {number} {value}");
        }
        for line in &self.lines {
            for piece in line {
                match piece {
                    Piece::Text(piece) => text += piece,
                    Piece::Value(value) => match numbers.get(value.as_str()) {
                        Some(number) => _ = write!(text, "!{number}"),
                        None => text += value,
                    },
                }
            }
            text.push('\n');
        }
        text.replace("{ ", "{")
    }
}

fn value_or_none(text: &str) -> &str {
    if text == "none" { "" } else { text }
}

fn add_value(words: &mut Vec<Piece>, path: &str, value: &str) {
    words.push(Piece::Text(format!(" {path}=")));
    words.push(Piece::Value(value.to_owned()));
}

/// Returns the value of a module, the nested model whose keys its inner modules use, and their block.
fn module<'t>(path: &str, text: &'t str) -> (Option<String>, Option<&'t str>, Option<&'t str>) {
    let (mut is_given, mut bias, mut optional) = (false, "", "");
    let (mut sides, mut group, mut condition) = (String::new(), String::new(), String::new());
    let (mut scope, mut block) = (None, None);
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        let (next, others) = after.split_once(' ').unwrap_or((after, ""));
        rest = others;
        match word {
            "none" | "optional" => {
                (is_given, rest) = (true, after);
                optional = if word == "optional" { "-" } else { optional };
            }
            "count" | "model" => (is_given, sides) = (true, next.to_owned()),
            "with" if next == "bias" => bias = "+",
            "in" if next == "group" => {
                let (letter, others) = others.split_once(' ').unwrap_or((others, ""));
                (group, rest) = (format!("{letter}:"), others);
            }
            "if" => condition = format!(";{next}"),
            "from" => scope = Some(next),
            "as" => block = Some(next),
            _ => {
                let list = if word.starts_with('[') { text.split_once('[') } else { None };
                let (list, others) = list.and_then(|(_, list)| list.split_once(']')).expect(text);
                (is_given, sides) = (true, list.replace(", ", ","));
                rest = others.trim_start();
            }
        }
    }
    assert!(is_given || condition.is_empty() && group.is_empty(), "{path} {text}: no sides");
    (is_given.then(|| format!("{optional}{bias}{group}{sides}{condition}")), scope, block)
}
