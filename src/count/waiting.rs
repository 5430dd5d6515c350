//! Tensors that are stored until the configuration is known.

use std::ops::Range;

use super::module_part::ModulePart;
use super::suffix;
use crate::formats::{PackedReader, PackedTensors, TensorInfo};

/// A list of tensors, packed into two buffers.
///
/// The 208,550 tensors of Kimi-K2.5 take about 10 MB, because the name of a module is stored once for all
/// of its parts that follow each other.
///
/// An entry is one more than the length of its module, or 0 for the module of the previous entry; the length of the
/// rest of the name; and the tensor.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingTensors {
    /// The modules and the rests of the names, one after the other.
    names: String,
    entries: PackedTensors,
    /// The range of the last module in `names`.
    last_module: Option<Range<usize>>,
}

impl WaitingTensors {
    /// Stores a tensor.
    pub(super) fn push(&mut self, part: &ModulePart<'_>) {
        let (module, rest) = part.tensor_name.split_at(part.module().len());
        let start = self.names.len();
        if self.last_module.clone().is_some_and(|last| &self.names[last] == module) {
            self.entries.push_number(0);
        } else {
            self.entries.push_number(module.len() as u64 + 1);
            self.names.push_str(module);
            self.last_module = Some(start..self.names.len());
        }
        self.entries.push_number(rest.len() as u64);
        self.names.push_str(rest);
        self.entries.push(part.tensor);
    }

    /// Returns the memory that the list takes, in bytes.
    #[cfg(test)]
    pub(super) fn byte_length(&self) -> usize {
        self.names.len() + self.entries.byte_length()
    }

    /// Calls a function with the name and the tensor of each entry, in the order of `push`.
    pub(super) fn for_each<E>(
        &self,
        mut visit: impl FnMut(&str, &TensorInfo) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut entries = self.entries_at(&Run::default());
        while entries.read_next() {
            visit(&entries.name, &entries.tensor)?;
        }
        Ok(())
    }

    /// Calls a function with each module. Its parts may lie anywhere in the list; they are ordered by the last
    /// component of their names.
    pub(super) fn for_each_module<E>(
        &self,
        mut visit: impl FnMut(&[(String, TensorInfo)]) -> Result<(), E>,
    ) -> Result<(), E> {
        // Sorted positions take 32 bytes per run, where a map of modules would take hundreds.
        let mut runs = self.runs();
        runs.sort_by_key(|run| &self.names[run.module.clone()]);
        let module = |run: &Run| &self.names[run.module.clone()];
        for runs in runs.chunk_by(|a, b| module(a) == module(b)) {
            let mut parts: Vec<_> = runs.iter().flat_map(|run| self.parts_at(run)).collect();
            // Of two tensors with the same name, the first one must not depend on the order of files.
            parts.sort_by(|(a, tensor_a), (b, tensor_b)| {
                let keys = |tensor: &TensorInfo| (tensor.dtype.clone(), tensor.shape.clone());
                suffix(a).cmp(suffix(b)).then_with(|| keys(tensor_a).cmp(&keys(tensor_b)))
            });
            visit(&parts)?;
        }
        Ok(())
    }

    /// Returns the position of each entry that names its module.
    fn runs(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut entries = self.entries_at(&Run::default());
        loop {
            let start = self.entries.byte_length() - entries.reader.byte_length();
            if !entries.read_next() {
                return runs;
            }
            if entries.names_module {
                let at = entries.names_at - entries.name.len();
                runs.push(Run { start, module: at..at + entries.module });
            }
        }
    }

    /// Returns the entries from one that names its module to the next one that does.
    fn parts_at(&self, run: &Run) -> Vec<(String, TensorInfo)> {
        let mut entries = self.entries_at(run);
        let mut parts = Vec::new();
        while entries.read_next() && (parts.is_empty() || !entries.names_module) {
            parts.push((entries.name.clone(), entries.tensor.clone()));
        }
        parts
    }

    fn entries_at(&self, run: &Run) -> Entries<'_> {
        Entries {
            names: &self.names,
            names_at: run.module.start,
            reader: self.entries.reader(run.start),
            name: String::new(),
            module: 0,
            names_module: false,
            tensor: TensorInfo::EMPTY,
        }
    }
}

/// Entries of one module that follow each other.
#[derive(Clone, Debug, Default)]
struct Run {
    /// The position of the first entry.
    start: usize,
    /// The range of the module in the names.
    module: Range<usize>,
}

/// A reader of entries, which reuses the memory of the last one.
struct Entries<'a> {
    names: &'a str,
    /// The number of bytes of `names` that have been read.
    names_at: usize,
    reader: PackedReader<'a>,
    /// The name of the last tensor.
    name: String,
    /// The length of the module in `name`.
    module: usize,
    /// True if the last entry names its module.
    names_module: bool,
    tensor: TensorInfo,
}

impl Entries<'_> {
    /// Reads the next entry, and returns whether there is one.
    fn read_next(&mut self) -> bool {
        if self.reader.byte_length() == 0 {
            return false;
        }
        let module = self.reader.number();
        self.names_module = module > 0;
        if self.names_module {
            self.name.clear();
            self.read_name(module - 1);
            self.module = self.name.len();
        }
        self.name.truncate(self.module);
        let rest = self.reader.number();
        self.read_name(rest);
        self.reader.read_into(&mut self.tensor);
        true
    }

    /// Adds the next bytes of `names` to the name.
    fn read_name(&mut self, length: u64) {
        let end = usize::try_from(length).map_or(self.names.len(), |length| self.names_at + length);
        self.name.push_str(self.names.get(self.names_at..end).unwrap_or_default());
        self.names_at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: &str, shape: &[u64], length: u64) -> TensorInfo {
        TensorInfo { dtype: dtype.into(), shape: shape.to_vec(), data_offsets: (0, length) }
    }

    fn tensors() -> Vec<(&'static str, TensorInfo)> {
        vec![
            ("", tensor("U8", &[], 1)),
            (".weight", tensor("NEW3", &[0, 1 << 40], 0)),
            ("m.a.qweight", tensor("I32", &[127, 128], 65_024)),
            ("m.a.scales", tensor("F16", &[1], 2)),
            ("m.b.qweight", tensor("I32", &[2], u64::MAX)),
            ("m.a.qzeros", tensor("I32", &[2], 8)),
            ("m.a", tensor("I32", &[2], 8)),
            ("weight", tensor("U32", &[2], 8)),
        ]
    }

    fn stored() -> WaitingTensors {
        let mut waiting = WaitingTensors::default();
        for (name, tensor) in tensors() {
            waiting.push(&ModulePart::new(name, &tensor));
        }
        waiting
    }

    #[test]
    fn tensors_are_read_as_they_were_written() {
        let mut read = Vec::new();
        let visit = |name: &str, tensor: &TensorInfo| {
            read.push((name.to_owned(), tensor.clone()));
            Ok::<_, ()>(())
        };
        stored().for_each(visit).unwrap();
        let read: Vec<_> = read.iter().map(|(name, tensor)| (&**name, tensor.clone())).collect();
        assert_eq!(read, tensors());
    }

    #[test]
    fn parts_of_a_module_are_found_wherever_they_are() {
        let mut modules = Vec::new();
        let visit = |parts: &[(String, TensorInfo)]| {
            modules.push(parts.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
            Ok::<_, ()>(())
        };
        stored().for_each_module(visit).unwrap();
        assert_eq!(
            modules,
            [
                vec!["", ".weight"],
                vec!["m.a"],
                vec!["m.a.qweight", "m.a.qzeros", "m.a.scales"],
                vec!["m.b.qweight"],
                vec!["weight"],
            ]
        );
    }
}
