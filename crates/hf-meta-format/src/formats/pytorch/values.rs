//! The values in a pickle.

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

/// A value. Values that contain others are numbered nodes, so that a value can contain itself and is dropped without
/// recursion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PickleValue {
    Int(i64),
    /// The offset and the length of text, bytes, or an integer of more than 64 bits.
    Text(usize, u32),
    Node(usize),
    /// The start of a collection on the stack.
    Mark,
    /// Any other value, such as `None`, a bool or a float.
    Other,
}

/// A value that contains others.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) items: Vec<PickleValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    Tuple,
    /// A list or set.
    List,
    /// A dictionary, as alternating keys and values.
    Dict,
    /// The module and the name of a function or class.
    Global,
    /// The persistent ID of a storage.
    Storage,
    /// A call that is not made: the function, a tuple of arguments, and what is added to the result later: states,
    /// lists and dictionaries.
    Call,
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
