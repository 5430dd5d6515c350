//! Stores tensors until all components of their modules have arrived.

use super::module::{Component, ComponentTensor, Module};
use super::names::COMPONENTS;
use hf_meta_format::formats::{
    NameList, TensorInfo, push_layout, push_number, read_layout, read_number,
};

/// A compact list of tensors. The 208,550 tensors of Kimi-K2.5 take about 7 MB.
///
/// An entry consists of the component's index, the dtype, the shape and the data length.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingTensors {
    entries: Vec<u8>,
    /// The modules of consecutive entries. The entries of a module may be in several runs.
    runs: NameList,
    /// The start of the first entry of each run. Offsets have 32 bits, because a hostile file can create millions of
    /// runs.
    starts: Vec<u32>,
}

/// The tensors of a module, in memory that is reused for the next module.
#[derive(Default)]
struct ModuleTensors {
    tensors: Vec<ComponentTensor>,
    /// The number of tensors that belong to this module.
    length: usize,
}

impl ModuleTensors {
    /// Adds a component and returns its tensor, to be overwritten.
    fn push(&mut self, component: &'static Component) -> &mut TensorInfo {
        if self.length == self.tensors.len() {
            self.tensors.push((component, TensorInfo::EMPTY));
        }
        let (place, tensor) = &mut self.tensors[self.length];
        *place = component;
        self.length += 1;
        tensor
    }

    /// Returns the tensors, sorted by component. The order of duplicates does not depend on the order of files.
    fn sorted(&mut self) -> &[ComponentTensor] {
        let tensors = &mut self.tensors[..self.length];
        tensors.sort_unstable_by(|(component, one), (other_component, other)| {
            let by_layout = || (&one.dtype, &one.shape).cmp(&(&other.dtype, &other.shape));
            component.cmp(other_component).then_with(by_layout)
        });
        tensors
    }
}

impl PendingTensors {
    /// Stores a tensor; `None` if the list is too long.
    pub(super) fn push(
        &mut self,
        module: &str,
        component: &Component,
        tensor: &TensorInfo,
    ) -> Option<()> {
        let last = self.runs.indices().next_back();
        if last.is_none_or(|last| self.runs.bytes(last) != module.as_bytes()) {
            self.runs.has_room_for(module.len()).then_some(())?;
            self.starts.push(u32::try_from(self.entries.len()).ok()?);
            self.runs.push(module);
        }
        push_number(&mut self.entries, component.index.into());
        push_layout(&mut self.entries, tensor);
        push_number(&mut self.entries, tensor.byte_length());
        Some(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Visits each module with its tensors, which may be anywhere in the list. Modules are sorted by name.
    pub(super) fn for_each_module<E>(
        &self,
        mut visit: impl FnMut(&Module<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        // Sorted indices take 4 bytes per run, where a map of modules would take hundreds.
        let mut runs: Vec<_> = self.runs.indices().collect();
        // Most files are sorted by dtype and name, and a stable sort exploits existing runs.
        runs.sort_by_key(|run| self.runs.bytes(*run));
        let mut found = ModuleTensors::default();
        for runs in runs.chunk_by(|a, b| self.runs.bytes(*a) == self.runs.bytes(*b)) {
            found.length = 0;
            for run in runs {
                self.read_tensors(*run as usize, &mut found);
            }
            let name = self.runs.get(runs[0] as usize);
            visit(&Module { name, tensors: found.sorted() })?;
        }
        Ok(())
    }

    /// Reads the entries of a run.
    fn read_tensors(&self, run: usize, found: &mut ModuleTensors) {
        let next = self.starts.get(run + 1).map(|next| *next as usize);
        let end = next.unwrap_or(self.entries.len());
        let mut rest = &self.entries[self.starts[run] as usize..end];
        while !rest.is_empty() {
            let index = usize::try_from(read_number(&mut rest)).unwrap_or_default();
            let tensor = found.push(&COMPONENTS[index]);
            read_layout(&mut rest, tensor);
            tensor.data_offsets = (0, read_number(&mut rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::names::split;

    fn tensor(dtype: &str, shape: &[u64], length: u64) -> TensorInfo {
        TensorInfo::new(dtype.into(), shape.to_vec(), (0, length))
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
        let mut pending = PendingTensors::default();
        for (name, tensor) in tensors {
            let (module, component) = split(name);
            pending.push(module, component, tensor).unwrap();
        }
        let mut found = Vec::new();
        let visit = |module: &Module<'_>| {
            let tensors = module.tensors.iter();
            let tensors = tensors.map(|(component, tensor)| (component.name, tensor.clone()));
            found.push((module.name.to_owned(), tensors.collect()));
            Ok::<_, ()>(())
        };
        pending.for_each_module(visit).unwrap();
        found
    }

    #[test]
    fn components_of_a_module_are_found_in_any_order() {
        let found = modules(&tensors());
        let names = found.iter().map(|(module, tensors)| {
            (module.as_str(), tensors.iter().map(|(component, _)| *component).collect::<Vec<_>>())
        });
        let expected = [
            ("", vec!["", "weight"]),
            ("m.a", vec!["", "qweight", "scales", "qzeros"]),
            ("m.b", vec!["qweight"]),
        ];
        let sorted = |(module, mut names): (_, Vec<_>)| {
            names.sort_unstable();
            (module, names)
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

    /// A tenth of the experts of Kimi-K2.5, in which nearly all of the 208,550 tensors are pending.
    #[test]
    fn twenty_thousand_pending_tensors_take_less_than_a_megabyte() {
        let mut pending = PendingTensors::default();
        for expert in 0..2_304 {
            let module = format!("language_model.model.layers.{}.mlp.experts", 1 + expert / 384);
            for projection in ["down_proj", "gate_proj", "up_proj"] {
                for (component, dtype) in [("packed", "I32"), ("scale", "BF16"), ("shape", "I64")] {
                    let name = format!("{module}.{}.{projection}.weight_{component}", expert % 384);
                    let (module, component) = split(&name);
                    assert!(!component.is_bare());
                    let tensor = tensor(dtype, &[2_048, 896], 7_340_032);
                    pending.push(module, component, &tensor).unwrap();
                }
            }
        }
        let names = pending.runs.indices().map(|run| pending.runs.get(run as usize).len());
        let length = names.sum::<usize>() + pending.entries.len() + pending.starts.len() * 8;
        assert!(length < 1_000_000, "{length} bytes");
    }
}
