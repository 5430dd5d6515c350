//! Tensors that are stored until all parts of their modules are there.

use std::ops::Range;

use super::part::PartId;
use crate::formats::{PackedReader, PackedTensors, TensorInfo};

/// A list of tensors, packed into two buffers.
///
/// The 208,550 tensors of Kimi-K2.5 take about 10 MB. An entry is one more than the length of its module, or 0 for
/// the module of the previous entry; the number of its part; and the tensor.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingTensors {
    /// The names of modules, one after the other.
    modules: String,
    entries: PackedTensors,
    /// The range of the last module in `modules`.
    last_module: Option<Range<usize>>,
}

/// The parts of a module. Reuses the memory of the parts of the last one.
#[derive(Default)]
struct Parts {
    parts: Vec<(PartId, TensorInfo)>,
    /// The number of parts that belong to this module.
    length: usize,
}

impl Parts {
    /// Adds a part, and returns the tensor to write.
    fn push(&mut self, part: PartId) -> &mut TensorInfo {
        if self.length == self.parts.len() {
            self.parts.push((part, TensorInfo::EMPTY));
        }
        let (place, tensor) = &mut self.parts[self.length];
        *place = part;
        self.length += 1;
        tensor
    }

    /// Returns the parts, ordered by name. The order of two with the same name must not depend on the order of files.
    fn sorted(&mut self) -> &[(PartId, TensorInfo)] {
        let parts = &mut self.parts[..self.length];
        parts.sort_unstable_by(|(part, one), (other_part, other)| {
            part.cmp(other_part)
                .then_with(|| (&one.dtype, &one.shape).cmp(&(&other.dtype, &other.shape)))
        });
        parts
    }
}

impl WaitingTensors {
    /// Stores a tensor; `None` if the list is too long.
    pub(super) fn push(&mut self, module: &str, part: PartId, tensor: &TensorInfo) -> Option<()> {
        let start = self.modules.len();
        if self.last_module.clone().is_some_and(|last| &self.modules[last] == module) {
            self.entries.push_number(0);
        } else {
            self.entries.push_number(module.len() as u64 + 1);
            self.modules.push_str(module);
            self.last_module = Some(start..self.modules.len());
        }
        self.entries.push_number(part.number());
        self.entries.push(tensor);
        let length = self.modules.len().max(self.entries.byte_length());
        u32::try_from(length).is_ok().then_some(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.byte_length() == 0
    }

    /// Returns the memory that the list takes, in bytes.
    #[cfg(test)]
    pub(super) fn byte_length(&self) -> usize {
        self.modules.len() + self.entries.byte_length()
    }

    /// Calls a function with each module and its parts, which may lie anywhere in the list. Modules are ordered by
    /// name.
    pub(super) fn for_each_module<E>(
        &self,
        mut visit: impl FnMut(&str, &[(PartId, TensorInfo)]) -> Result<(), E>,
    ) -> Result<(), E> {
        // Sorted positions take 12 bytes per run, where a map of modules would take hundreds.
        let mut runs = self.runs();
        // Most files are sorted by dtype and name. A stable sort merges such runs instead of starting anew.
        runs.sort_by_key(|run| self.module(run));
        let mut parts = Parts::default();
        for runs in runs.chunk_by(|a, b| self.module(a) == self.module(b)) {
            parts.length = 0;
            for run in runs {
                self.read_parts(run, &mut parts);
            }
            visit(self.module(&runs[0]), parts.sorted())?;
        }
        Ok(())
    }

    fn module(&self, run: &Run) -> &str {
        let start = run.module as usize;
        &self.modules[start..start + run.module_length as usize]
    }

    /// Returns the position of each entry that names its module.
    fn runs(&self) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut reader = self.entries.reader(0);
        let mut module = 0_u32;
        while reader.byte_length() > 0 {
            let entry = self.entries.byte_length() - reader.byte_length();
            if let Some(length) = reader.number().checked_sub(1) {
                #[expect(clippy::cast_possible_truncation, reason = "`push` checks the lengths")]
                let run = Run { entry: entry as u32, module, module_length: length as u32 };
                module += run.module_length;
                runs.push(run);
            }
            reader.number();
            reader.skip();
        }
        runs
    }

    /// Reads the entries from one that names its module to the next one that does.
    fn read_parts(&self, run: &Run, parts: &mut Parts) {
        let mut reader: PackedReader<'_> = self.entries.reader(run.entry as usize);
        let mut is_first = true;
        while reader.byte_length() > 0 && (reader.number() == 0 || is_first) {
            is_first = false;
            let part = PartId::from_number(reader.number());
            reader.read_into(parts.push(part));
        }
    }
}

/// Entries of one module that follow each other. The numbers have 32 bits, because a hostile file can cause
/// millions of runs.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The position of the first entry.
    entry: u32,
    /// The position of the module in the names, and its length.
    module: u32,
    module_length: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::part::split;

    fn tensor(dtype: &str, shape: &[u64], length: u64) -> TensorInfo {
        TensorInfo { dtype: dtype.into(), shape: shape.to_vec(), data_offsets: (0, length) }
    }

    fn tensors() -> Vec<(&'static str, TensorInfo)> {
        vec![
            ("", tensor("U8", &[], 1)),
            ("weight", tensor("NEW3", &[0, 1 << 40], 0)),
            ("m.a.qweight", tensor("I32", &[127, 128], 65_024)),
            ("m.a.scales", tensor("F16", &[1], 2)),
            ("m.b.qweight", tensor("I32", &[2], u64::MAX)),
            ("m.a.qzeros", tensor("I32", &[2], 8)),
            ("m.a", tensor("I32", &[2], 8)),
        ]
    }

    fn modules(tensors: &[(&str, TensorInfo)]) -> Vec<(String, Vec<(&'static str, TensorInfo)>)> {
        let mut waiting = WaitingTensors::default();
        for (name, tensor) in tensors {
            let (module, part) = split(name);
            waiting.push(module, part, tensor).unwrap();
        }
        let mut found = Vec::new();
        let visit = |module: &str, parts: &[(PartId, TensorInfo)]| {
            let parts = parts.iter().map(|(part, tensor)| (part.name(), tensor.clone()));
            found.push((module.to_owned(), parts.collect()));
            Ok::<_, ()>(())
        };
        waiting.for_each_module(visit).unwrap();
        found
    }

    #[test]
    fn parts_of_a_module_are_found_wherever_they_lie() {
        let found = modules(&tensors());
        let names = found.iter().map(|(module, parts)| {
            (module.as_str(), parts.iter().map(|(part, _)| *part).collect::<Vec<_>>())
        });
        let expected = [
            ("", vec!["", "weight"]),
            ("m.a", vec!["", "qweight", "scales", "qzeros"]),
            ("m.b", vec!["qweight"]),
        ];
        let sorted = |(module, mut parts): (_, Vec<_>)| {
            parts.sort_unstable();
            (module, parts)
        };
        assert_eq!(names.map(sorted).collect::<Vec<_>>(), expected.map(sorted));
    }

    #[test]
    fn the_order_of_tensors_does_not_matter() {
        let mut tensors = tensors();
        tensors.push(("m.a.qweight", tensor("F16", &[3], 6)));
        let expected = modules(&tensors);
        for shift in 1..tensors.len() {
            tensors.rotate_left(1);
            assert_eq!(modules(&tensors), expected, "{shift}");
        }
    }
}
