//! The names of the parts of quantized modules.

use std::sync::LazyLock;

use super::METHODS;
use crate::count::AuxiliaryTensor;

/// The name that a method gives to a part of its modules: the last component of the tensor's name.
#[derive(Clone, Copy, Debug)]
pub(in crate::count) struct PartName {
    /// The name, or a prefix of it before a final `*`, or a suffix after an initial `*`.
    pattern: &'static str,
    role: PartRole,
    evidence: PartEvidence,
}

/// The role of a part in its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::count) enum PartRole {
    /// The weights, several of them in one element.
    Packed,
    /// A tensor that is needed to unpack the weights.
    Auxiliary(AuxiliaryTensor),
}

/// The conclusion that the name of a part allows before the method is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::count) enum PartEvidence {
    /// The tensor is auxiliary in every quantized model, so only the configuration is needed, not the method.
    AnyMethod,
    /// Some method counts a tensor of this name differently, so the configuration is needed.
    Name,
    /// As `Name`, but only next to other parts, and those ask for the configuration.
    OtherParts,
    /// None: only integers are parts, and they ask for the configuration under any name.
    Integers,
}

impl PartName {
    /// Creates the name of packed weights.
    pub(super) const fn packed(pattern: &'static str, evidence: PartEvidence) -> Self {
        Self { pattern, role: PartRole::Packed, evidence }
    }

    /// Creates the name of an auxiliary tensor.
    pub(super) const fn auxiliary(
        pattern: &'static str,
        tensor: AuxiliaryTensor,
        evidence: PartEvidence,
    ) -> Self {
        Self { pattern, role: PartRole::Auxiliary(tensor), evidence }
    }

    fn matches(&self, name: &str) -> bool {
        if let Some(prefix) = self.pattern.strip_suffix('*') {
            return name.starts_with(prefix);
        }
        match self.pattern.strip_prefix('*') {
            Some(suffix) => name.ends_with(suffix),
            None => name == self.pattern,
        }
    }
}

/// Returns the role that a method gives to a part.
pub(super) fn role(parts: &[PartName], name: &str) -> Option<PartRole> {
    parts.iter().find(|part| part.matches(name)).map(|part| part.role)
}

/// Returns the conclusion that the name of a part allows; `None` if no method knows the name.
pub(in crate::count) fn evidence(name: &str) -> Option<PartEvidence> {
    PART_INDEX.find(name).map(|part| part.evidence)
}

/// Returns the kind of a tensor that is auxiliary in every quantized model.
pub(in crate::count) fn auxiliary_in_any_method(name: &str) -> Option<AuxiliaryTensor> {
    let part = PART_INDEX.find(name)?;
    match part.role {
        PartRole::Auxiliary(tensor) if part.evidence == PartEvidence::AnyMethod => Some(tensor),
        _ => None,
    }
}

static PART_INDEX: LazyLock<PartIndex> = LazyLock::new(PartIndex::from_methods);

/// The part names of all methods, less those that allow no conclusion.
struct PartIndex {
    /// Plain names by their length. Few names share a length, so a look-up compares one or two of them: every tensor of
    /// every model is looked up.
    by_length: Vec<Vec<&'static PartName>>,
    patterns: Vec<&'static PartName>,
}

impl PartIndex {
    fn from_methods() -> Self {
        let parts = METHODS.iter().flat_map(|method| method.parts);
        let parts = parts.filter(|part| part.evidence != PartEvidence::Integers);
        let (patterns, plain): (Vec<_>, Vec<&PartName>) =
            parts.partition(|part| part.pattern.contains('*'));
        let mut by_length = Vec::new();
        for part in plain {
            let length = part.pattern.len();
            by_length.resize_with(by_length.len().max(length + 1), Vec::new);
            by_length[length].push(part);
        }
        Self { by_length, patterns }
    }

    fn find(&self, name: &str) -> Option<&'static PartName> {
        let same_length = self.by_length.get(name.len()).into_iter().flatten();
        // Most names fail the comparison of one byte, which is cheaper than that of two texts.
        let last = name.bytes().last();
        let is_part =
            |part: &&PartName| part.pattern.bytes().last() == last && part.pattern == name;
        let plain = same_length.copied().find(is_part);
        plain.or_else(|| self.patterns.iter().copied().find(|part| part.matches(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_by_name() {
        let cases = [
            ("weight", None),
            ("weight_scale", Some(PartEvidence::AnyMethod)),
            ("qweight", Some(PartEvidence::Name)),
            ("scales", Some(PartEvidence::Name)),
            ("biases", Some(PartEvidence::OtherParts)),
            ("bitsandbytes__nf4", Some(PartEvidence::Name)),
            ("w_scales", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(evidence(name), expected, "{name}");
        }
        assert_eq!(auxiliary_in_any_method("weight_g_idx"), Some(AuxiliaryTensor::ColumnOrder));
        assert_eq!(auxiliary_in_any_method("g_idx"), None);
    }

    /// The index returns only one of two parts with the same name.
    #[test]
    fn methods_agree_on_the_evidence_of_shared_names() {
        for part in METHODS.iter().flat_map(|method| method.parts) {
            if let Some(found) = PART_INDEX.find(part.pattern) {
                assert_eq!(found.evidence, part.evidence, "{}", part.pattern);
            }
        }
    }
}
