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
    marks: Vec<Mark>,
    /// The adapters that the class loads.
    pub(super) adapters: Adapters,
    /// `plugin`, or the last version that registered the name, as in `until-1.2.0`.
    pub(super) former: Option<&'static str>,
}

/// A mark that an entry has or lacks. The first lines of `engines.txt` explain them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Rocm,
    Deprecated,
    Backend,
    SomeModels,
    NoStages,
}

impl Mark {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "rocm" => Some(Self::Rocm),
            "deprecated" => Some(Self::Deprecated),
            "backend" => Some(Self::Backend),
            "some" => Some(Self::SomeModels),
            "no-pp" => Some(Self::NoStages),
            _ => None,
        }
    }
}

impl Entry {
    pub(super) fn has(&self, mark: Mark) -> bool {
        self.marks.contains(&mark)
    }

    /// Adds the text after a colon. Returns `None` if it is unknown.
    fn add(&mut self, text: &'static str) -> Option<()> {
        match text {
            "lora" => self.adapters = Adapters::All,
            "lora-linear" => self.adapters = Adapters::Linear,
            "plugin" => self.former = Some(text),
            _ if text.starts_with("until-") => self.former = Some(text),
            _ => match text.parse() {
                Ok(capability) => self.capability = Some(capability),
                Err(_) => self.marks.push(Mark::parse(text)?),
            },
        }
        Some(())
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
    for text in word.split(':').skip(1) {
        let known = entry.add(text);
        debug_assert!(known.is_some(), "{word}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_marks_are_known() {
        let mut read = 0;
        for kind in ["architecture", "model_type", "gguf", "method"] {
            for word in names_of(kind).flat_map(|name| words(kind, name)) {
                for text in word.split(':').skip(1) {
                    assert!(Entry::default().add(text).is_some(), "{kind}: {word}");
                    read += 1;
                }
            }
        }
        assert!(read > 900, "{read}");
    }
}
