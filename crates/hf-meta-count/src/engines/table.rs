//! The table of engines.

use crate::architectures::architecture::{names_of, text_of};
use crate::memory::Engine;

/// The entry of an engine for a name. See the first lines of `engines.txt`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// The name of the method under which its entry is found.
    pub(super) alias: Option<&'static str>,
    /// The minimum compute capability.
    pub(super) capability: Option<u64>,
    /// The other marks, such as `rocm`.
    marks: Vec<&'static str>,
    /// The adapters that the class loads.
    pub(super) adapters: Adapters,
    /// `plugin`, or the last version that registered the name, as in `until-1.2.0`.
    pub(super) former: Option<&'static str>,
}

impl Entry {
    /// Returns whether the entry has a mark, such as `rocm`.
    pub(super) fn has(&self, mark: &str) -> bool {
        self.marks.contains(&mark)
    }
}

/// The adapters that a class of vLLM loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Adapters {
    #[default]
    None,
    /// Not those of embeddings and of the output layer.
    Linear,
    All,
}

/// An engine of the table: its version, date and formats.
#[derive(Clone, Copy, Debug)]
pub(super) struct EngineLine {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) date: &'static str,
    formats: &'static str,
}

impl EngineLine {
    pub(super) fn of(engine: Engine) -> Self {
        let name = engine.loader();
        let mut words = text_of("engine", name).unwrap_or_default().split(' ');
        let [version, date, formats] = [(); 3].map(|()| words.next().unwrap_or_default());
        Self { name, version, date, formats }
    }

    pub(super) fn reads(&self, format: &str) -> bool {
        self.formats.split(',').any(|known| known == format)
    }

    /// Returns the formats in a sentence.
    pub(super) fn formats(&self) -> String {
        self.formats.replace(',', ", ")
    }
}

/// Returns the words of a line, each an engine and its marks.
fn words(kind: &str, name: &str) -> impl Iterator<Item = &'static str> {
    text_of(kind, name).unwrap_or_default().split(' ').filter(|word| !word.is_empty())
}

fn engine_of(word: &'static str) -> &'static str {
    word.split([':', '=']).next().unwrap_or_default()
}

/// Returns the entry of an engine.
pub(super) fn entry(kind: &str, name: &str, engine: &str) -> Option<Entry> {
    let word = words(kind, name).find(|word| engine_of(word) == engine)?;
    let mut entry = Entry::default();
    for mark in word.split(':').skip(1) {
        match mark {
            "lora" => entry.adapters = Adapters::All,
            "lora-linear" => entry.adapters = Adapters::Linear,
            former if former == "plugin" || former.starts_with("until-") => {
                entry.former = Some(former);
            }
            mark => match mark.parse() {
                Ok(capability) => entry.capability = Some(capability),
                Err(_) => entry.marks.push(mark),
            },
        }
    }
    entry.alias = word.split_once('=').map(|(_, alias)| alias);
    Some(entry)
}

/// Returns whether an engine has a name.
pub(super) fn is_listed(kind: &str, name: &str) -> bool {
    text_of(kind, name).is_some()
}

/// Returns the engines that a line lists, other than `engine`. A class that an engine no longer has counts.
pub(super) fn others(kind: &str, name: &str, engine: &str) -> Vec<&'static str> {
    words(kind, name).map(engine_of).filter(|found| *found != engine).collect()
}

/// Returns the suffixes of the names of classes that vLLM replaces.
pub(super) fn suffixes() -> impl Iterator<Item = &'static str> {
    names_of("suffix")
}
