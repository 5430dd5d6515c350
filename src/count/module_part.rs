//! A tensor as counting looks at it.

use super::Buffer;
use crate::formats::TensorInfo;

/// A tensor as a part of a module, with all that its name shows.
///
/// Every tensor of every model is looked at, so the name is read in one pass.
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
        let mut position = TensorPosition::default();
        let (mut start, mut parent, mut has_layers) = (0, 0..0, false);
        // A loop over bytes takes a fifth of the instructions of `str::split`.
        for (at, _) in tensor_name.bytes().enumerate().filter(|&(_, byte)| byte == b'.') {
            let component = &tensor_name.as_bytes()[start..at];
            if start == 0 {
                position.is_mtp = component == b"mtp";
            } else if position.expert.is_none() && component == b"experts" {
                position.expert = tensor_name.get(at + 1..);
            }
            if !has_layers && component.ends_with(b"layers") {
                has_layers = true;
                position.layer = tensor_name.get(at + 1..).and_then(leading_number);
            }
            (start, parent) = (at + 1, start..at);
        }
        let name = tensor_name.get(start..).unwrap_or_default();
        let parent = tensor_name.get(parent).unwrap_or_default();
        position.is_mtp |= tensor_name == "mtp";
        position.expert = position.expert.filter(|_| !tensor_name.contains("shared_experts"));
        let buffer = Buffer::from_components(parent, name, &tensor.shape);
        Self { tensor_name, name, tensor, buffer, position }
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
