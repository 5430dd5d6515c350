//! Type numbers in GGUF files.

use crate::formats::Dtype;

/// Tensor types by GGML number. Missing numbers are removed types.
const TENSOR_TYPES: [(u32, Dtype); 34] = [
    (0, Dtype::F32),
    (1, Dtype::F16),
    (2, Dtype::Q4_0),
    (3, Dtype::Q4_1),
    (6, Dtype::Q5_0),
    (7, Dtype::Q5_1),
    (8, Dtype::Q8_0),
    (9, Dtype::Q8_1),
    (10, Dtype::Q2_K),
    (11, Dtype::Q3_K),
    (12, Dtype::Q4_K),
    (13, Dtype::Q5_K),
    (14, Dtype::Q6_K),
    (15, Dtype::Q8_K),
    (16, Dtype::IQ2_XXS),
    (17, Dtype::IQ2_XS),
    (18, Dtype::IQ3_XXS),
    (19, Dtype::IQ1_S),
    (20, Dtype::IQ4_NL),
    (21, Dtype::IQ3_S),
    (22, Dtype::IQ2_S),
    (23, Dtype::IQ4_XS),
    (24, Dtype::I8),
    (25, Dtype::I16),
    (26, Dtype::I32),
    (27, Dtype::I64),
    (28, Dtype::F64),
    (29, Dtype::IQ1_M),
    (30, Dtype::BF16),
    (34, Dtype::TQ1_0),
    (35, Dtype::TQ2_0),
    (39, Dtype::MXFP4),
    (40, Dtype::NVFP4),
    (41, Dtype::Q1_0),
];

/// Quantizations of whole files by their `llama.cpp` number.
const FILE_TYPES: [(u64, &str); 36] = [
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (7, "Q8_0"),
    (8, "Q5_0"),
    (9, "Q5_1"),
    (10, "Q2_K"),
    (11, "Q3_K_S"),
    (12, "Q3_K_M"),
    (13, "Q3_K_L"),
    (14, "Q4_K_S"),
    (15, "Q4_K_M"),
    (16, "Q5_K_S"),
    (17, "Q5_K_M"),
    (18, "Q6_K"),
    (19, "IQ2_XXS"),
    (20, "IQ2_XS"),
    (21, "Q2_K_S"),
    (22, "IQ3_XS"),
    (23, "IQ3_XXS"),
    (24, "IQ1_S"),
    (25, "IQ4_NL"),
    (26, "IQ3_S"),
    (27, "IQ3_M"),
    (28, "IQ2_S"),
    (29, "IQ2_M"),
    (30, "IQ4_XS"),
    (31, "IQ1_M"),
    (32, "BF16"),
    (36, "TQ1_0"),
    (37, "TQ2_0"),
    (38, "MXFP4_MOE"),
    (39, "NVFP4"),
    (40, "Q1_0"),
    (1024, "guessed"),
];

/// The flag for a file type that the writer guessed.
const GUESSED: u64 = 1024;

/// Returns the dtype for a type number. Unknown types are named after their number.
pub(super) fn dtype(number: u32) -> Dtype {
    let found = TENSOR_TYPES.iter().find(|(known, _)| *known == number);
    found.map_or_else(|| format!("GGML type {number}").as_str().into(), |(_, dtype)| dtype.clone())
}

/// Returns the quantization of a file; `None` for an unknown number.
pub(super) fn file_type(number: u64) -> Option<&'static str> {
    let number = if number == GUESSED { number } else { number & !GUESSED };
    FILE_TYPES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}
