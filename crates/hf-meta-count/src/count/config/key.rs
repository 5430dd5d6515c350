//! The keys of recipes that decide what the parts of a module look like.

use hf_meta_format::base::text::named_enum;

named_enum! {
    /// A number or a flag of a recipe that a layout depends on, under the name that findings show.
    pub(crate) Key {
        /// The number of bits per weight.
        Bits "bits",
        /// The number of weights that share a scale.
        GroupSize "group_size",
        /// The rows of a module, in VPTQ.
        OutFeatures "out_features",
        /// The columns of a module, in VPTQ.
        InFeatures "in_features",
        /// The number of weights that a code of VPTQ represents, from the list `vector_lens`.
        VectorLength "vector_length",
        /// The bytes of a block of GGUF, from the name of its type in `bits`.
        BlockBytes "block bytes",
        /// The weights in a block of GGUF.
        BlockElements "block elements",
        /// The number of codebooks of AQLM, whose entries are added up.
        Codebooks "num_codebooks",
        /// The base-2 logarithm of the entries of a codebook of AQLM.
        CodebookBits "nbits_per_codebook",
        /// The inputs that a code of AQLM covers.
        InGroupSize "in_group_size",
        /// The outputs that a code of AQLM covers.
        OutGroupSize "out_group_size",
        /// The rows of a block with one scale, the first number in `weight_block_size`.
        BlockRows "block_rows",
        /// The columns of a block with one scale.
        BlockColumns "block_columns",
        /// The side along which HQQ groups weights.
        Axis "axis",
        /// 1 if HQQ stores bytes as floats.
        ViewAsFloat "view_as_float",
        /// 1 if bitsandbytes packs two weights into a byte.
        LoadIn4Bit "load_in_4bit",
        /// 1 if AWQ stores zero points.
        ZeroPoint "zero_point",
        /// 1 if compressed-tensors needs no zero points.
        Symmetric "symmetric",
        /// 1 if the scales of inputs are computed for each input, and not stored.
        Dynamic "dynamic",
        /// 1 for the mode of MLX with biases.
        Affine "affine",
    }
}
