//! The place of a tensor in the model, as its name shows it.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// The place of a tensor in the model.
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

const LAYERS: &[u8; 7] = b"layers.";
static EXPERTS: LazyLock<Finder> = LazyLock::new(|| Finder::new(".experts."));

impl<'a> TensorPosition<'a> {
    pub(super) fn new(name: &'a str) -> Self {
        let bytes = name.as_bytes();
        // Layers are named near the start, where a loop finds them faster than a prepared search does.
        let layers = bytes.windows(LAYERS.len()).position(|window| window == LAYERS);
        Self {
            is_mtp: name == "mtp" || name.starts_with("mtp."),
            layer: layers.and_then(|at| name.get(at + LAYERS.len()..)).and_then(leading_number),
            expert: EXPERTS
                .find(bytes)
                .and_then(|at| name.get(at + EXPERTS.needle().len()..))
                .filter(|_| !name.contains("shared_experts")),
        }
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
        for (name, is_mtp, layer, expert) in cases {
            let position = TensorPosition::new(name);
            assert_eq!(position, TensorPosition { is_mtp, layer, expert }, "{name}");
        }
    }
}
