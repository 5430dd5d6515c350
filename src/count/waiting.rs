//! Tensors that are stored until the configuration is known.

use std::ops::Range;

use super::{module, suffix};
use crate::formats::{Dtype, TensorInfo};

/// A list of tensors, packed into one buffer.
///
/// The 208,550 tensors of Kimi-K2.5 take about 10 MB, because the name of a module is stored once for all
/// of its parts that follow each other.
///
/// An entry is the module, the rest of the name, the dtype, the number of dimensions, the dimensions, and
/// the length of the data in bytes. Numbers are in LEB128. The length of each text precedes it; for the
/// module it is one more, and 0 means the module of the previous entry.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitingTensors {
    bytes: Vec<u8>,
    /// The range of the last module in `bytes`.
    last_module: Option<Range<usize>>,
}

impl WaitingTensors {
    /// Stores a tensor. Of the data offsets, only the length of the data is stored.
    pub(super) fn push(&mut self, name: &str, tensor: &TensorInfo) {
        let module = module(name);
        let last = self.last_module.clone().map(|range| &self.bytes[range]);
        if last == Some(module.as_bytes()) {
            self.push_number(0);
        } else {
            self.push_number(module.len() as u64 + 1);
            self.bytes.extend_from_slice(module.as_bytes());
            self.last_module = Some(self.bytes.len() - module.len()..self.bytes.len());
        }
        self.push_text(&name[module.len()..]);
        self.push_text(tensor.dtype.as_str());
        self.push_number(tensor.shape.len() as u64);
        for &length in &tensor.shape {
            self.push_number(length);
        }
        self.push_number(tensor.byte_length());
    }

    /// Returns the memory that the list takes, in bytes.
    #[cfg(test)]
    pub(super) fn byte_length(&self) -> usize {
        self.bytes.len()
    }

    fn push_text(&mut self, text: &str) {
        self.push_number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn push_number(&mut self, mut number: u64) {
        while number > 0x7f {
            self.bytes.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.bytes.push(number.to_le_bytes()[0]);
    }

    /// Calls a function with the name and the tensor of each entry, in the order of `push`.
    pub(super) fn for_each<E>(
        &self,
        mut visit: impl FnMut(&str, &TensorInfo) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut rest, mut module) = (Unread(&self.bytes), "");
        let mut name = String::new();
        while !rest.0.is_empty() {
            module = rest.module().unwrap_or(module);
            let tensor = rest.tensor(module, &mut name);
            visit(&name, &tensor)?;
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
        let (mut rest, mut runs, mut name) = (Unread(&self.bytes), Vec::new(), String::new());
        while !rest.0.is_empty() {
            let position = self.bytes.len() - rest.0.len();
            if rest.module().is_some() {
                runs.push(position);
            }
            rest.tensor("", &mut name);
        }
        runs
    }

    fn module_at(&self, run: usize) -> &str {
        Unread(&self.bytes[run..]).module().unwrap_or_default()
    }

    /// Returns the entries from one that names its module to the next one that does.
    fn parts_at(&self, run: usize) -> Vec<(String, TensorInfo)> {
        let mut rest = Unread(&self.bytes[run..]);
        let module = rest.module().unwrap_or_default();
        let mut parts = Vec::new();
        loop {
            let mut name = String::new();
            let tensor = rest.tensor(module, &mut name);
            parts.push((name, tensor));
            if rest.0.first() != Some(&0) {
                return parts;
            }
            rest.number();
        }
    }
}

/// The entries that have not been read yet. They were written by `WaitingTensors`, so they are valid.
struct Unread<'a>(&'a [u8]);

impl<'a> Unread<'a> {
    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        while let Some(byte) = self.0.split_off_first() {
            number |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                break;
            }
            shift += 7;
        }
        number
    }

    fn text(&mut self, length: u64) -> &'a str {
        let bytes = usize::try_from(length).ok().and_then(|length| self.0.split_off(..length));
        std::str::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
    }

    /// Reads the module of an entry; `None` if it is the module of the previous entry.
    fn module(&mut self) -> Option<&'a str> {
        let length = self.number().checked_sub(1)?;
        Some(self.text(length))
    }

    /// Reads the rest of an entry, and replaces `name` by the name of the tensor.
    fn tensor(&mut self, module: &str, name: &mut String) -> TensorInfo {
        name.clear();
        name.push_str(module);
        let length = self.number();
        name.push_str(self.text(length));
        let length = self.number();
        let dtype = Dtype::from(self.text(length));
        let shape = (0..self.number()).map(|_| self.number()).collect();
        TensorInfo { dtype, shape, data_offsets: (0, self.number()) }
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
