//! A tensor as counting looks at it.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use memchr::memrchr;

use super::Buffer;
use crate::formats::TensorInfo;

/// A tensor as a part of a module, with all that its name shows.
#[derive(Clone, Copy)]
pub(super) struct ModulePart<'a> {
    /// The name of the tensor.
    pub(super) tensor_name: &'a str,
    /// The last component of the name.
    pub(super) name: &'a str,
    /// The tensor.
    pub(super) tensor: &'a TensorInfo,
    /// The kind of buffer; `None` for weights.
    pub(super) buffer: Option<Buffer>,
    /// The place of the tensor in the model.
    pub(super) position: TensorPosition<'a>,
}

/// The place of a tensor in the model, as its name shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TensorPosition<'a> {
    /// True if the first component is `mtp`: some models store the layers that draft tokens under it.
    pub(super) is_mtp: bool,
    /// The number of the layer.
    pub(super) layer: Option<u64>,
    /// The name after `experts`: the number of a routed expert, or a tensor that holds all of them. `None` for a
    /// shared expert, which is active for every token.
    pub(super) expert: Option<&'a str>,
}

impl<'a> ModulePart<'a> {
    pub(super) fn new(tensor_name: &'a str, tensor: &'a TensorInfo) -> Self {
        let (module, name) = split(tensor_name);
        let bytes = tensor_name.as_bytes();
        // Layers are named near the start, where a loop finds them faster than a prepared search does.
        let layers = bytes.windows(LAYERS.len()).position(|window| window == LAYERS);
        let position = TensorPosition {
            is_mtp: tensor_name == "mtp" || tensor_name.starts_with("mtp."),
            layer: layers
                .and_then(|at| tensor_name.get(at + LAYERS.len()..))
                .and_then(leading_number),
            expert: EXPERTS
                .find(bytes)
                .and_then(|at| tensor_name.get(at + EXPERTS.needle().len()..))
                .filter(|_| !tensor_name.contains("shared_experts")),
        };
        let buffer = Buffer::from_components(module, name, &tensor.shape);
        Self { tensor_name, name, tensor, buffer, position }
    }

    /// Returns the name without its last component; a name of one component is returned whole.
    pub(super) fn module(&self) -> &'a str {
        let before = self.tensor_name.len() - self.name.len();
        &self.tensor_name[..before.checked_sub(1).unwrap_or(self.name.len())]
    }
}

const LAYERS: &[u8; 7] = b"layers.";
static EXPERTS: LazyLock<Finder> = LazyLock::new(|| Finder::new(".experts."));

/// Splits a name before its last component. A name of one component has an empty module.
fn split(name: &str) -> (&str, &str) {
    match memrchr(b'.', name.as_bytes()) {
        Some(at) => (&name[..at], &name[at + 1..]),
        None => ("", name),
    }
}

/// Parses the first component of a name as a number.
pub(super) fn leading_number(name: &str) -> Option<u64> {
    let end = name.bytes().position(|byte| byte == b'.').unwrap_or(name.len());
    name.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Dtype;

    #[test]
    fn names_show_the_position() {
        let cases = [
            ("mtp", true, None, None),
            ("mtp.layers.0.experts.1.w", true, Some(0), Some("1.w")),
            ("model.mtp.w", false, None, None),
            ("model.layers.7.mlp.w", false, Some(7), None),
            ("encoder_layers.x.layers.7.w", false, None, None),
            ("h.0.mlp.experts.gate_up_proj", false, None, Some("gate_up_proj")),
            ("experts.0.w", false, None, None),
            ("h.experts", false, None, None),
            ("h.experts.shared_experts.w", false, None, None),
            ("", false, None, None),
        ];
        let tensor = TensorInfo { dtype: Dtype::F32, shape: vec![1], data_offsets: (0, 4) };
        for (name, is_mtp, layer, expert) in cases {
            let position = ModulePart::new(name, &tensor).position;
            assert_eq!(position, TensorPosition { is_mtp, layer, expert }, "{name}");
        }
    }
}
