//! The values in a pickle.

use super::pickle::Pickle;

/// A type of tensor elements: the prefix of its storage class, which may be empty, its names in torch and in
/// safetensors, and the size of an element in bytes.
pub(super) type ElementType = (&'static str, &'static str, &'static str, u64);

/// The element types of torch that occupy whole bytes.
pub(super) const ELEMENT_TYPES: [ElementType; 24] = [
    ("Float", "float32", "F32", 4),
    ("Half", "float16", "F16", 2),
    ("BFloat16", "bfloat16", "BF16", 2),
    ("Double", "float64", "F64", 8),
    ("Byte", "uint8", "U8", 1),
    ("Char", "int8", "I8", 1),
    ("Short", "int16", "I16", 2),
    ("Int", "int32", "I32", 4),
    ("Long", "int64", "I64", 8),
    ("Bool", "bool", "BOOL", 1),
    ("ComplexFloat", "complex64", "C64", 8),
    ("ComplexDouble", "complex128", "C128", 16),
    ("QInt8", "qint8", "I8", 1),
    ("QUInt8", "quint8", "U8", 1),
    ("QInt32", "qint32", "I32", 4),
    ("", "uint16", "U16", 2),
    ("", "uint32", "U32", 4),
    ("", "uint64", "U64", 8),
    ("", "complex32", "C32", 4),
    ("", "float8_e4m3fn", "F8_E4M3", 1),
    ("", "float8_e5m2", "F8_E5M2", 1),
    ("", "float8_e4m3fnuz", "F8_E4M3FNUZ", 1),
    ("", "float8_e5m2fnuz", "F8_E5M2FNUZ", 1),
    ("", "float8_e8m0fnu", "F8_E8M0", 1),
];

/// A value in four bytes: the offset of the opcode of a literal, which is decoded when it is needed, or the position
/// of a node. A value that contains others is a node, so that a value can contain itself and is dropped without
/// recursion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PickleValue(u32);

impl PickleValue {
    /// The start of a collection on the stack.
    pub(super) const MARK: Self = Self(u32::MAX);
    /// Any other value, such as `None`, a bool or a float.
    pub(super) const OTHER: Self = Self(u32::MAX - 1);

    const FIRST_NODE: u32 = 1 << 31;

    /// Returns the literal at an offset; `None` if the offset is too large.
    pub(super) fn literal(at: usize) -> Option<Self> {
        u32::try_from(at).ok().filter(|at| *at < Self::FIRST_NODE).map(Self)
    }

    /// Returns the node at a position, which is less than the maximum number of values.
    #[expect(clippy::cast_possible_truncation, reason = "the number of values is limited")]
    pub(super) fn node(at: usize) -> Self {
        Self(Self::FIRST_NODE | at as u32)
    }

    pub(super) fn as_literal(self) -> Option<usize> {
        (self.0 < Self::FIRST_NODE).then_some(self.0 as usize)
    }

    pub(super) fn as_node(self) -> Option<usize> {
        (Self::FIRST_NODE..Self::OTHER.0)
            .contains(&self.0)
            .then_some((self.0 & !Self::FIRST_NODE) as usize)
    }

    /// Returns the header of a node with a number of values, which is less than the maximum.
    #[expect(clippy::cast_possible_truncation, reason = "the number of values is limited")]
    pub(super) fn header(kind: NodeKind, length: usize) -> Self {
        Self((length as u32) << 3 | kind as u32)
    }

    pub(super) fn as_header(self) -> (NodeKind, usize) {
        (NodeKind::ALL[(self.0 & 7) as usize], (self.0 >> 3) as usize)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    Tuple,
    /// The module and the name of a function or class.
    Global,
    /// The persistent ID of a storage.
    Storage,
    /// A list or set.
    List,
    /// A dictionary, as alternating keys and values.
    Dict,
    /// A call that is not made: the function, a tuple of arguments, and what is added to the result later: states,
    /// lists and dictionaries.
    Call,
}

impl NodeKind {
    /// All kinds, by their number in a header of three bits.
    const ALL: [Self; 8] = {
        use NodeKind::{Call, Dict, Global, List, Storage, Tuple};
        [Tuple, Global, Storage, List, Dict, Call, Call, Call]
    };
}

/// The form of the argument after an opcode that pushes a value without others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    /// A number of bytes.
    Bytes(usize),
    /// The text up to the end of the line.
    Line,
    /// A text after its length, which takes a number of bytes.
    Sized(usize),
}

impl Argument {
    /// Returns the form of the argument of an opcode; `None` if it pushes no value, or one with others.
    pub(super) fn of(opcode: u8) -> Option<Self> {
        Some(match opcode {
            b'N' | 0x88 | 0x89 | 0x98 => Self::Bytes(0),
            b'K' => Self::Bytes(1),
            b'M' => Self::Bytes(2),
            b'J' => Self::Bytes(4),
            b'G' => Self::Bytes(8),
            b'F' | b'I' | b'L' | b'P' | b'S' | b'V' => Self::Line,
            b'U' | b'C' | 0x8a | 0x8c => Self::Sized(1),
            b'T' | b'X' | b'B' | 0x8b => Self::Sized(4),
            0x8d | 0x8e | 0x96 => Self::Sized(8),
            _ => return None,
        })
    }
}

/// A storage that a pickle refers to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage<'a> {
    pub(super) key: &'a [u8],
    /// `None` if the bytes have no type.
    pub(super) element: Option<&'static ElementType>,
    /// The size in bytes; `None` if it overflows.
    pub(super) bytes: Option<u64>,
}

impl<'a> Storage<'a> {
    /// Returns the storage with a persistent ID; `None` if it is malformed.
    pub(super) fn new(pickle: &Pickle<'a>, id: PickleValue) -> Option<Self> {
        // A part of a storage (torch < 0.4) has one more item.
        let (&[_, class, key, _, length] | &[_, class, key, _, length, PickleValue::OTHER]) =
            Some(pickle.items(id)).filter(|_| pickle.kind(id) == Some(NodeKind::Storage))?
        else {
            return None;
        };
        let class = pickle.function(class).1.strip_suffix(b"Storage")?;
        let element = ELEMENT_TYPES.iter().find(|(name, ..)| name.as_bytes() == class);
        let element = element.filter(|_| !class.is_empty());
        let size = element.map(|(.., size)| *size).or((class == b"Untyped").then_some(1))?;
        let bytes = u64::try_from(pickle.integer(length)?).ok()?.checked_mul(size);
        Some(Self { key: pickle.text(key), element, bytes })
    }
}
