//! The values in a pickle, and the limits of what is read from it.

use crate::formats::{HeaderError, HeaderErrorKind};

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

    /// The value of the first node. Smaller ones are the offsets of literals.
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
    const ALL: [Self; 6] =
        [Self::Tuple, Self::Global, Self::Storage, Self::List, Self::Dict, Self::Call];
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

/// Returns the error for a checkpoint that may be valid, but takes more memory or steps than the reader has.
pub(super) fn too_large() -> HeaderError {
    let limits =
        "the checkpoint is larger than this reader's limits, which are enough for 100,000 tensors";
    HeaderError::new(HeaderErrorKind::TooLarge, limits)
}

/// Takes an amount of bytes or steps from the rest of a limit.
pub(super) fn spend(rest: &mut usize, amount: usize) -> Result<(), HeaderError> {
    *rest = rest.checked_sub(amount).ok_or_else(too_large)?;
    Ok(())
}

/// The accepted names of each module, without element types. Source: `_get_allowed_globals` in
/// `torch/_weights_only_unpickler.py` of torch 2.15.
const ALLOWED: [(&str, &str); 9] = [
    ("collections", "Counter OrderedDict"),
    ("_codecs", "encode"),
    ("builtins", "bytearray complex set"),
    // The name of `builtins` in Python 2, which torch maps to it.
    ("__builtin__", "bytearray complex set"),
    ("torch.nn.parameter", "Parameter"),
    ("torch.serialization", "_get_layout"),
    ("torch.storage", "TypedStorage UntypedStorage"),
    ("torch._tensor", "_rebuild_from_type_v2"),
    (
        "torch._utils",
        "_rebuild_device_tensor_from_cpu_tensor _rebuild_device_tensor_from_numpy \
         _rebuild_meta_tensor_no_storage _rebuild_parameter _rebuild_parameter_with_state _rebuild_qtensor \
         _rebuild_sparse_tensor _rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3 _rebuild_wrapper_subclass",
    ),
];

/// The accepted names of the module `torch`, without the element types that have a size here.
const ALLOWED_OF_TORCH: &str = "Size Tensor device per_channel_affine per_channel_affine_float_qparams \
    per_channel_symmetric per_tensor_affine per_tensor_symmetric bcomplex32 bits16 bits1x8 bits2x4 bits4x2 bits8 int1 \
    int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7 quint2x4 quint4x2 QUInt2x4Storage \
    QUInt4x2Storage float4_e2m1fn_x2";

/// Returns whether `torch.load(weights_only=True)` accepts an import, written as `module.name`. It rejects a file
/// with any other import, because an import can execute any code.
///
/// ```
/// use hf_meta_format::formats::pytorch::is_allowed_import;
///
/// assert!(is_allowed_import("torch._utils._rebuild_tensor_v2"));
/// assert!(!is_allowed_import("posix.system"));
/// ```
pub fn is_allowed_import(import: &str) -> bool {
    let Some((module, name)) = import.rsplit_once('.') else { return false };
    let has = |names: &str| names.split_whitespace().any(|allowed| allowed == name);
    let is_listed = ALLOWED.iter().any(|(allowed, names)| *allowed == module && has(names));
    let is_of_torch = module == "torch" && has(ALLOWED_OF_TORCH);
    is_listed || is_of_torch || is_element_type(module, name)
}

/// The functions and classes outside of torch that only hold data, by their modules: arrays, numbers, settings, paths and
/// dates. Each of them can be read in the source of `CPython` 3.14 and `NumPy` 2.4.
const DATA: [(&str, &str); 11] = [
    ("numpy", "dtype ndarray"),
    ("numpy.core.multiarray", "_reconstruct scalar"),
    ("numpy._core.multiarray", "_reconstruct scalar"),
    ("argparse", "Namespace"),
    ("types", "SimpleNamespace"),
    ("collections", "defaultdict deque"),
    ("pathlib", "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath"),
    ("pathlib._local", "Path PosixPath PurePath PurePosixPath PureWindowsPath WindowsPath"),
    ("datetime", "date datetime time timedelta timezone"),
    ("builtins", "bool bytes dict float frozenset int list object range slice str tuple"),
    ("__builtin__", "bool dict float frozenset int list long object slice str tuple unicode"),
];

/// Returns whether an import that `torch.load(weights_only=True)` rejects only holds data.
///
/// ```
/// use hf_meta_format::formats::pytorch::is_data_import;
///
/// assert!(is_data_import("numpy.dtype") && is_data_import("argparse.Namespace"));
/// assert!(!is_data_import("posix.system") && !is_data_import("numpy.load"));
/// ```
pub fn is_data_import(import: &str) -> bool {
    let Some((module, name)) = import.rsplit_once('.') else { return false };
    let is_listed = |(known, names): &(&str, &str)| {
        *known == module && names.split_whitespace().any(|known| known == name)
    };
    // The classes of NumPy's dtypes, such as `numpy.dtypes.Float64DType`.
    let is_dtype = module == "numpy.dtypes" && name.ends_with("DType");
    is_dtype || DATA.iter().any(is_listed)
}

/// Returns whether a name is a dtype, or the class of the storages or tensors of one.
fn is_element_type(module: &str, name: &str) -> bool {
    let class = ["Storage", "Tensor"].iter().find_map(|end| name.strip_suffix(end));
    match (module, class) {
        ("torch", None) => ELEMENT_TYPES.iter().any(|(_, known, ..)| *known == name),
        ("torch" | "torch.cuda" | "torch.sparse" | "torch.cuda.sparse", Some(class)) => {
            ELEMENT_TYPES.iter().any(|(known, ..)| *known == class && !class.is_empty())
        }
        _ => false,
    }
}
