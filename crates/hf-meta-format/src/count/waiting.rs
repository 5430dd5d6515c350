//! Stores tensors until all parts of their modules have arrived.

use std::ops::Range;

use super::part::PartId;
use crate::formats::{PackedTensors, TensorInfo};

/// A compact list of tensors. The 208,550 tensors of Kimi-K2.5 take about 7 MB.
///
/// An entry consists of the part number, the dtype, the shape and the data length.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingTensors {
    /// The concatenated module names.
    modules: String,
    entries: PackedTensors,
    runs: Vec<Run>,
}

/// Consecutive entries of one module, up to the start of the next run. Positions have 32 bits, because a hostile file
/// can create millions of runs.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The start of the module name.
    module: u32,
    /// The start of the first entry.
    entry: u32,
}

/// The parts of a module, in memory that is reused for the next module.
#[derive(Default)]
struct Parts {
    parts: Vec<(PartId, TensorInfo)>,
    /// The number of parts that belong to this module.
    length: usize,
}

impl Parts {
    /// Adds a part and returns its tensor, to be overwritten.
    fn push(&mut self, part: PartId) -> &mut TensorInfo {
        if self.length == self.parts.len() {
            self.parts.push((part, TensorInfo::EMPTY));
        }
        let (place, tensor) = &mut self.parts[self.length];
        *place = part;
        self.length += 1;
        tensor
    }

    /// Returns the parts, sorted by name. The order of duplicates does not depend on the order of files.
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
        let is_other = |last: &Run| &self.modules[last.module as usize..] != module;
        if self.runs.last().is_none_or(is_other) {
            let run = Run {
                module: u32::try_from(self.modules.len()).ok()?,
                entry: u32::try_from(self.entries.byte_length()).ok()?,
            };
            self.runs.push(run);
            self.modules.push_str(module);
        }
        self.entries.push_number(part.number());
        self.entries.push_layout(tensor);
        self.entries.push_number(tensor.byte_length());
        Some(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the memory use of the list in bytes.
    #[cfg(test)]
    pub(super) fn byte_length(&self) -> usize {
        self.modules.len() + self.entries.byte_length() + self.runs.len() * size_of::<Run>()
    }

    /// Visits each module with its parts, which may be anywhere in the list. Modules are sorted by name.
    pub(super) fn for_each_module<E>(
        &self,
        mut visit: impl FnMut(&str, &[(PartId, TensorInfo)]) -> Result<(), E>,
    ) -> Result<(), E> {
        // Sorted indices take 4 bytes per run, where a map of modules would take hundreds.
        let mut runs: Vec<_> = (0_u32..).take(self.runs.len()).collect();
        // Most files are sorted by dtype and name, and a stable sort exploits existing runs.
        runs.sort_by_key(|run| self.module(*run));
        let mut parts = Parts::default();
        for runs in runs.chunk_by(|a, b| self.module(*a) == self.module(*b)) {
            parts.length = 0;
            for run in runs {
                self.read_parts(*run, &mut parts);
            }
            visit(self.module(runs[0]), parts.sorted())?;
        }
        Ok(())
    }

    /// Returns the module of a run.
    fn module(&self, run: u32) -> &str {
        &self.modules[self.range(run, |run| run.module, self.modules.len())]
    }

    /// Reads the entries of a run.
    fn read_parts(&self, run: u32, parts: &mut Parts) {
        let entries = self.range(run, |run| run.entry, self.entries.byte_length());
        let mut reader = self.entries.reader(entries);
        while reader.byte_length() > 0 {
            let tensor = parts.push(PartId::from_number(reader.number()));
            reader.read_layout(tensor);
            tensor.data_offsets = (0, reader.number());
        }
    }

    /// Returns the range from a run's position to the next run's, or to the end.
    fn range(&self, run: u32, position: fn(&Run) -> u32, end: usize) -> Range<usize> {
        let run = run as usize;
        let next = self.runs.get(run + 1).map_or(end, |next| position(next) as usize);
        position(&self.runs[run]) as usize..next
    }
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
