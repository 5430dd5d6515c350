//! Tensors that are stored until the configuration is known.

use super::{module, suffix};
use crate::formats::{PackedReader, PackedTensors, TensorInfo};

/// A list of tensors, packed into one buffer.
///
/// The 208,550 tensors of Kimi-K2.5 take about 10 MB, because the name of a module is stored once for all
/// of its parts that follow each other.
///
/// An entry is 1 and the module, or 0 for the module of the previous entry; the rest of the name; and the tensor.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingTensors {
    packed: PackedTensors,
    last_module: Option<String>,
}

impl WaitingTensors {
    /// Stores a tensor.
    pub(super) fn push(&mut self, name: &str, tensor: &TensorInfo) {
        let module = module(name);
        let is_new = self.last_module.as_deref() != Some(module);
        self.packed.push_number(u64::from(is_new));
        if is_new {
            self.packed.push_text(module);
            let last = self.last_module.get_or_insert_default();
            last.clear();
            last.push_str(module);
        }
        self.packed.push_text(&name[module.len()..]);
        self.packed.push(tensor);
    }

    /// Returns the memory that the list takes, in bytes.
    #[cfg(test)]
    pub(super) fn byte_length(&self) -> usize {
        self.packed.byte_length()
    }

    /// Calls a function with the name and the tensor of each entry, in the order of `push`.
    pub(super) fn for_each<E>(
        &self,
        mut visit: impl FnMut(&str, &TensorInfo) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut entry = Entry::default();
        let mut reader = self.packed.reader(0);
        while reader.byte_length() > 0 {
            entry.read(&mut reader);
            visit(&entry.name, &entry.tensor)?;
        }
        Ok(())
    }

    /// Calls a function with each module. Its parts may lie anywhere in the list; they are ordered by the last
    /// component of their names.
    pub(super) fn for_each_module<E>(
        &self,
        mut visit: impl FnMut(&[(String, TensorInfo)]) -> Result<(), E>,
    ) -> Result<(), E> {
        // Sorted positions take 8 bytes per run, where a map of modules would take hundreds.
        let mut runs = self.runs();
        runs.sort_by_key(|&run| self.module_at(run));
        for runs in runs.chunk_by(|&a, &b| self.module_at(a) == self.module_at(b)) {
            let mut parts: Vec<_> = runs.iter().flat_map(|&run| self.parts_at(run)).collect();
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
    fn runs(&self) -> Vec<usize> {
        let (mut reader, mut entry) = (self.packed.reader(0), Entry::default());
        let mut runs = Vec::new();
        while reader.byte_length() > 0 {
            let position = self.packed.byte_length() - reader.byte_length();
            if entry.read(&mut reader) {
                runs.push(position);
            }
        }
        runs
    }

    fn module_at(&self, run: usize) -> &str {
        let mut reader = self.packed.reader(run);
        reader.number();
        reader.text()
    }

    /// Returns the entries from one that names its module to the next one that does.
    fn parts_at(&self, run: usize) -> Vec<(String, TensorInfo)> {
        let (mut reader, mut entry) = (self.packed.reader(run), Entry::default());
        let mut parts = Vec::new();
        while reader.byte_length() > 0 && !(entry.read(&mut reader) && !parts.is_empty()) {
            parts.push((entry.name.clone(), entry.tensor.clone()));
        }
        parts
    }
}

/// An entry that was read. Its memory is reused for the next one.
struct Entry {
    name: String,
    /// The length of the module in `name`.
    module: usize,
    tensor: TensorInfo,
}

impl Default for Entry {
    fn default() -> Self {
        Self { name: String::new(), module: 0, tensor: TensorInfo::EMPTY }
    }
}

impl Entry {
    /// Reads the next entry, and returns whether it names its module.
    fn read(&mut self, reader: &mut PackedReader<'_>) -> bool {
        let names_module = reader.number() == 1;
        if names_module {
            self.name.clear();
            self.name.push_str(reader.text());
            self.module = self.name.len();
        }
        self.name.truncate(self.module);
        self.name.push_str(reader.text());
        reader.read_into(&mut self.tensor);
        names_module
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
            waiting.push(name, &tensor);
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
