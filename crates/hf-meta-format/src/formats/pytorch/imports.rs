//! The functions and classes that `torch.load(weights_only=True)` accepts.

use super::values::ELEMENT_TYPES;

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
#[must_use]
pub fn is_allowed_import(import: &str) -> bool {
    let Some((module, name)) = import.rsplit_once('.') else { return false };
    let has = |names: &str| names.split_whitespace().any(|allowed| allowed == name);
    let is_listed = ALLOWED.iter().any(|(allowed, names)| *allowed == module && has(names));
    let is_of_torch = module == "torch" && has(ALLOWED_OF_TORCH);
    is_listed || is_of_torch || is_element_type(module, name)
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
