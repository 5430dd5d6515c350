#!/usr/bin/env python3
"""Writes fixtures of quantized checkpoints from the definitions of the formats. Needs Python 3.9 and nothing else.

    tests/oracles/definitions.py [FOLDER: fixtures/quantized]

Each layout states the parts that a packer stores for one linear layer, and names the source that defines them.
`tests/oracles/real.py` writes the layouts that the packers themselves can write on a CPU.
"""

import math
import pathlib
import sys

from fixture import ROOT, Llama, write

CASES = {}


def ceil(a, b):
    return -(-a // b)


def up(size, step):
    """Returns the next multiple of `step`."""
    return ceil(size, step) * step


def case(name, source, config=None, *, inputs=128, outputs=64, model=None, **rest):
    """Registers a layout: a function of module, output features and input features that yields (part, dtype, shape)."""

    def register(parts):
        assert name not in CASES, name
        CASES[name] = {"source": source, "config": config or {}, "inputs": inputs, "outputs": outputs, "model": model, "parts": parts, **rest}
        return parts

    return register


def build(name):
    """Returns the fixture of a layout."""
    layout = CASES[name]
    model = layout["model"] or Llama.random(name, layout["inputs"], layout["outputs"], bias=layout.get("bias", False), tied=layout.get("tied", False))
    skipped = layout.get("skip", ())
    dtype = layout.get("dtype", "BF16")
    linear = {module: shape for module, shape in model.linear_shapes().items() if not any(part in module for part in skipped)}
    if layout.get("lm_head"):
        linear["lm_head"] = [model.vocabulary, model.hidden]
    tensors = []
    for module, (o, i) in linear.items():
        tensors += [(f"{module}.{part}" if part else module, kind, list(shape)) for part, kind, shape in layout["parts"](module, o, i)]
    for module, shape in model.linear_shapes().items():
        if module not in linear:
            tensors.append((f"{module}.weight", dtype, shape))
    for tensor, shape in model.other_shapes().items():
        if tensor != "lm_head.weight" or "lm_head" not in linear:
            tensors.append((tensor, dtype, shape))
    tensors += layout.get("extra", ())
    settings = layout["config"]
    if callable(settings):
        settings = settings(linear)
    known = {"name": name, "written_by": f"definition: {layout['source']}", "true_parameters": model.parameters(), "modules": linear}
    known["config"] = model.config(**settings)
    for key in ("files", "metadata", "inexact", "peers"):
        if key in layout:
            known[key] = layout[key](linear) if callable(layout[key]) else layout[key]
    tensors.sort()
    listed = [{"name": tensor, "dtype": kind, "shape": shape} for tensor, kind, shape in tensors]
    if "shards" in layout:
        # The parts of every module lie in several files.
        known["shards"] = [listed[n :: layout["shards"]] for n in range(layout["shards"])]
    else:
        known["tensors"] = listed
    return known


def quantized(quant_method, **rest):
    return {"quantization_config": {"quant_method": quant_method, **rest}}


# GPTQ and its relatives

GPTQMODEL = "gptqmodel/nn_modules/qlinear/__init__.py @ f4c327a1"


def gptq(bits, group=128, word=32, with_g_idx=True, kind="I32"):
    """Returns the parts of GPTQ; rows are rounded up to whole words."""

    def parts(_, o, i):
        groups = 1 if group == -1 else ceil(i, group)
        yield "qweight", kind, [ceil(i * bits, word), o]
        yield "qzeros", kind, [groups, ceil(o * bits, word)]
        yield "scales", "F16", [groups, o]
        if with_g_idx:
            yield "g_idx", "I32", [i]

    return parts


def gptq_config(bits, group=128, **rest):
    known = {"desc_act": False, "sym": True, "lm_head": False, "checkpoint_format": "gptq", "pack_dtype": "int32"}
    return quantized("gptq", bits=bits, group_size=group, **{**known, **rest})


case("comfyui-tokenizer", "comfy/text_encoders/wan.py @ 0.3", {}, extra=[("spiece_model", "U8", [4_548_313])])(lambda _, o, i: [("weight", "BF16", [o, i])])
for bits in (2, 3, 4, 5, 6, 7, 8):
    case(f"gptq-{bits}bit", GPTQMODEL, gptq_config(bits, 64 if bits == 3 else 128), dtype="F16", bias=bits == 4)(gptq(bits, 64 if bits == 3 else 128))
case("gptq-4bit-channel", GPTQMODEL, gptq_config(4, -1))(gptq(4, -1))
case("gptq-3bit-channel", GPTQMODEL, gptq_config(3, -1))(gptq(3, -1))
case("gptq-4bit-no-g-idx", GPTQMODEL, gptq_config(4, 32))(gptq(4, 32, with_g_idx=False))
case("gptq-3bit-no-g-idx", GPTQMODEL, gptq_config(3, 32))(gptq(3, 32, with_g_idx=False))
case("gptq-4bit-int8-words", GPTQMODEL, gptq_config(4, 128, pack_dtype="int8"))(gptq(4, 128, 8, kind="I8"))
case("gptq-8bit-int16-words", GPTQMODEL, gptq_config(8, 128, pack_dtype="int16"))(gptq(8, 128, 16, kind="I16"))
case("gptq-4bit-int64-words", GPTQMODEL, gptq_config(4, 128, pack_dtype="int64"))(gptq(4, 128, 64, kind="I64"))
case("gptq-2bit-odd-inputs", GPTQMODEL, gptq_config(2, 32), inputs=36, outputs=16)(gptq(2, 32))
case("gptq-4bit-lm-head", GPTQMODEL, gptq_config(4, 64, lm_head=True), lm_head=True)(gptq(4, 64))
case("gptq-quantize-config-only", "auto_gptq/modeling/_base.py @ 0.7.1", {}, files={"quantize_config.json": gptq_config(4, 64)["quantization_config"]})(gptq(4, 64))


case("gptq-3bit-shards", GPTQMODEL, gptq_config(3, 32), shards=3)(gptq(3, 32))


@case("gptq-dynamic", "gptqmodel/quantization/config.py @ f4c327a1",
      gptq_config(4, 128, dynamic={r"+:.*\.down_proj.*": {"bits": 8, "group_size": 32}, r"+:.*\.(q|k)_proj.*": {"bits": 3}, r"-:.*\.gate_proj.*": {}}), skip=["gate_proj"])
def _(module, o, i):
    if "down_proj" in module:
        return gptq(8, 32)(module, o, i)
    return gptq(3 if module.endswith(("q_proj", "k_proj")) else 4)(module, o, i)


@case("gptq-eora", "gptqmodel/adapter/adapter.py @ f4c327a1",
      gptq_config(4, 128, adapter={"name": "lora", "rank": 32, "path": "eora"}))
def _(module, o, i):
    yield from gptq(4)(module, o, i)
    yield "lora_A.weight", "F16", [32, i]
    yield "lora_B.weight", "F16", [o, 32]


@case("gptq-marlin", "marlin/__init__.py @ IST-DASLab; gptqmodel FORMAT.MARLIN",
      gptq_config(4, 128, checkpoint_format="marlin", is_marlin_format=True), inputs=128, outputs=256)
def _(_, o, i):
    yield "B", "I32", [i // 16, o * 2]
    yield "s", "F16", [i // 128, o]


@case("gptq-marlin-channel", "marlin/__init__.py @ IST-DASLab",
      gptq_config(4, -1, checkpoint_format="marlin"), inputs=128, outputs=256)
def _(_, o, i):
    yield "B", "I32", [i // 16, o * 2]
    yield "s", "F16", [1, o]


def qqq(group):
    def parts(_, o, i):
        yield "B", "I32", [i // 16, o * 2]
        yield "s_channel", "F32", [1, o]
        yield "s_group", "F16", [i // group, o] if group > 0 else [0]

    return parts


def gptq_marlin24(bits, group):
    def parts(_, o, i):
        yield "B_24", "I32", [i // 32, o * 16 * bits // 32]
        yield "B_meta", "I16", [i // 32, o * 2]
        yield "s", "F16", [1 if group == -1 else i // group, o]

    return parts


MARLIN_24 = "vllm/model_executor/layers/quantization/gptq_marlin_24.py @ 31131965"
case("gptq-marlin-24-4bit", MARLIN_24, gptq_config(4, 128, checkpoint_format="marlin_24"), inputs=128, outputs=128)(gptq_marlin24(4, 128))
case("gptq-marlin-24-8bit-channel", MARLIN_24, gptq_config(8, -1, checkpoint_format="marlin_24"), inputs=128, outputs=128)(gptq_marlin24(8, -1))


QQQ = "QQQ/gptq/qlinear/qlinear_marlin.py @ HandH1998"
case("qqq-group", QQQ, quantized("qqq", bits=4, group_size=128, desc_act=False, checkpoint_format="qqq"), outputs=256)(qqq(128))
case("qqq-channel", QQQ, quantized("qqq", wbits=4, group_size=-1), outputs=256)(qqq(-1))

# AWQ

AWQ = "awq/modules/linear/%s.py @ AutoAWQ"


def awq_config(version, group=128, **rest):
    return quantized("awq", **{"bits": 4, "group_size": group, "version": version, "zero_point": True, "modules_to_not_convert": None, **rest})


def zeros_width(i, group):
    """Returns the words of zero points of a row in the gemv layouts, which pad."""
    multiple = {128: 1, 64: 2, 32: 4}[group]
    return up(ceil(i // group, 8), multiple)


def awq_gemm(group):
    def parts(_, o, i):
        yield "qweight", "I32", [i, o // 8]
        yield "qzeros", "I32", [i // group, o // 8]
        yield "scales", "F16", [i // group, o]

    return parts


def awq_gemv(group):
    def parts(_, o, i):
        yield "qweight", "I32", [o, i // 8]
        yield "qzeros", "I32", [o, zeros_width(i, group)]
        yield "scales", "F16", [o, zeros_width(i, group) * 8]

    return parts


def awq_gemv_fast(group, zeros):
    def parts(_, o, i):
        yield "qweight", "I16", [o // 4, i]
        yield "scales", "F16", [zeros_width(i, group) * 8, o]
        yield zeros, "F16", [zeros_width(i, group) * 8, o]

    return parts


for group in (32, 64, 128):
    case(f"awq-gemm-g{group}", AWQ % "gemm", awq_config("gemm", group), bias=group == 64)(awq_gemm(group))
case("awq-gemv-g32", AWQ % "gemv", awq_config("gemv", 32))(awq_gemv(32))
case("awq-gemv-g64", AWQ % "gemv", awq_config("gemv", 64))(awq_gemv(64))
case("awq-gemv-g128", AWQ % "gemv", awq_config("gemv", 128))(awq_gemv(128))
case("awq-gemv-fast-g64", AWQ % "gemv_fast", awq_config("gemv_fast", 64))(awq_gemv_fast(64, "qzeros"))
case("awq-gemv-fast-g128", AWQ % "gemv_fast", awq_config("gemv_fast", 128))(awq_gemv_fast(128, "qzeros"))
case("awq-llm-awq", "awq/quantize/qmodule.py @ mit-han-lab/llm-awq", awq_config("llm-awq", 128))(awq_gemv_fast(128, "scaled_zeros"))


@case("awq-marlin", AWQ % "marlin", awq_config("marlin", 128, zero_point=False), outputs=256)
def _(_, o, i):
    yield "qweight", "I32", [i // 16, o * 2]
    yield "scales", "F16", [i // 128, o]


@case("awq-marlin-channel", AWQ % "marlin", awq_config("marlin", -1, zero_point=False), outputs=256)
def _(_, o, i):
    yield "qweight", "I32", [i // 16, o * 2]
    yield "scales", "F16", [1, o]


@case("paroquant", "gptqmodel/nn_modules/qlinear/paroquant.py @ f4c327a1; paroquant @ 0.1.16",
      quantized("paroquant", bits=4, group_size=128, krot=8, method="paroquant", format="paroquant"))
def _(module, o, i):
    yield from awq_gemm(128)(module, o, i)
    yield "theta", "F16", [8, i // 2]
    yield "pairs", "I16", [8, i]
    yield "channel_scales", "F16", [1, i]


# bitsandbytes

BNB = "bitsandbytes/functional.py and nn/modules.py @ 0.50.2"


def bnb4(kind="nf4", storage="U8", width=1, nested=True, block=64):
    def parts(_, o, i):
        blocks = ceil(o * i, block)
        yield "weight", storage, [o * i // (2 * width), 1]
        yield "weight.absmax", "U8" if nested else "F32", [blocks]
        if nested:
            yield "weight.nested_absmax", "F32", [ceil(blocks, 256)]
            yield "weight.nested_quant_map", "F32", [256]
        yield "weight.quant_map", "F32", [16]
        yield f"weight.quant_state.bitsandbytes__{kind}", "U8", [170 if nested else 80]

    return parts


def bnb_config(kind="nf4", storage="uint8", nested=True):
    return quantized("bitsandbytes", load_in_4bit=True, load_in_8bit=False, bnb_4bit_quant_type=kind, bnb_4bit_quant_storage=storage,
                     bnb_4bit_use_double_quant=nested, bnb_4bit_compute_dtype="bfloat16", llm_int8_skip_modules=["lm_head"])


case("bitsandbytes-nf4", BNB, bnb_config())(bnb4())
case("bitsandbytes-fp4", BNB, bnb_config("fp4", nested=False))(bnb4("fp4", nested=False))
case("bitsandbytes-nf4-bfloat16", BNB, bnb_config(storage="bfloat16"))(bnb4(storage="BF16", width=2))
case("bitsandbytes-nf4-float16", BNB, bnb_config(storage="float16", nested=False))(bnb4(storage="F16", width=2, nested=False))
case("bitsandbytes-fp4-float32", BNB, bnb_config("fp4", "float32"))(bnb4("fp4", "F32", 4))
case("bitsandbytes-nf4-no-config", BNB, {})(bnb4())


@case("bitsandbytes-int8", BNB, quantized("bitsandbytes", load_in_4bit=False, load_in_8bit=True, llm_int8_threshold=6.0))
def _(_, o, i):
    yield "weight", "I8", [o, i]
    yield "SCB", "F32", [o]
    yield "weight_format", "U8", []


@case("moshi-int8", "moshi/utils/quantize.py @ e6a55d27, bitsandbytes without its format", {})
def _(_, o, i):
    yield "weight", "I8", [o, i]
    yield "weight_scb", "F32", [o]


# compressed-tensors

CT = "compressed_tensors/compressors/%s/base.py @ 0.20.0"


def weights(bits, strategy="group", group=128, symmetric=True, kind="int", **rest):
    return {"num_bits": bits, "type": kind, "strategy": strategy, "group_size": group if "group" in strategy else None, "symmetric": symmetric, "dynamic": False, **rest}


def ct_config(form, *groups, ignore=("lm_head",), **rest):
    """Returns the configuration; a group is its weights, or a pair of targets and weights."""
    named = {}
    for n, group in enumerate(groups):
        targets, w = group if isinstance(group, tuple) else (["Linear"], group)
        named[f"group_{n}"] = {"targets": targets, "weights": w, "input_activations": None, "output_activations": None, **({} if form != "mixed-precision" else {"format": w.pop("format")})}
    return quantized("compressed-tensors", format=form, config_groups=named, ignore=list(ignore), quantization_status="compressed", kv_cache_scheme=None, **rest)


def packed(bits, group=128, symmetric=True, order=False, dense=True, with_shape=True):
    """Returns the parts of pack-quantized. Versions before 0.13 left bits of a word unused (`dense` is false)."""

    def parts(_, o, i):
        words = (lambda n: ceil(n * bits, 32)) if dense else (lambda n: ceil(n, 32 // bits))
        groups = i // group if group else 1
        yield "weight_packed", "I32", [o, words(i)]
        yield "weight_scale", "BF16", [o, groups]
        if with_shape:
            yield "weight_shape", "I64", [2]
        if not symmetric:
            yield "weight_zero_point", "I32", [words(o), groups]
        if order:
            yield "weight_g_idx", "I32", [i]

    return parts


PACK = CT % "pack_quantized"
for bits in range(2, 9):
    case(f"compressed-tensors-w{bits}-group", PACK, ct_config("pack-quantized", weights(bits)))(packed(bits))
for bits in (2, 4, 8):
    case(f"compressed-tensors-w{bits}-channel", PACK, ct_config("pack-quantized", weights(bits, "channel")))(packed(bits, None))
case("compressed-tensors-w3-channel", PACK, ct_config("pack-quantized", weights(3, "channel")))(packed(3, None))
case("compressed-tensors-w3-group-padded-words", "compressed_tensors/compressors/quantized_compressors/pack_quantized.py @ 0.12", ct_config("pack-quantized", weights(3)))(packed(3, dense=False))
case("compressed-tensors-w3-channel-padded-words", "compressed_tensors/compressors/quantized_compressors/pack_quantized.py @ 0.12", ct_config("pack-quantized", weights(3, "channel")))(packed(3, None, dense=False))
case("compressed-tensors-w4-asymmetric", PACK, ct_config("pack-quantized", weights(4, symmetric=False)))(packed(4, symmetric=False))
case("compressed-tensors-w3-asymmetric", PACK, ct_config("pack-quantized", weights(3, symmetric=False)))(packed(3, symmetric=False))
case("compressed-tensors-w4-channel-asymmetric", PACK, ct_config("pack-quantized", weights(4, "channel", symmetric=False)))(packed(4, None, symmetric=False))
case("compressed-tensors-w4-actorder-group", PACK, ct_config("pack-quantized", weights(4, actorder="group")))(packed(4, order=True))
case("compressed-tensors-w4-odd-rows", PACK, ct_config("pack-quantized", weights(4, group=12)), inputs=36, outputs=7)(packed(4, 12))
case("compressed-tensors-w8-g32", PACK, ct_config("pack-quantized", weights(8, group=32)))(packed(8, 32))


@case("compressed-tensors-w4-kv-zero-points", "compressed_tensors/quantization/lifecycle/initialize.py @ 0.20", ct_config("pack-quantized", weights(4)),
      extra=[(f"model.layers.0.self_attn.{name}", "BF16", [1]) for name in ("k_scale", "k_zero_point", "v_scale", "v_zero_point")])
def _(module, o, i):
    return packed(4)(module, o, i)


def stored(kind, scale="BF16", rows=True, zero=None, name="weight", activation=False):
    """Returns the parts of a weight that is stored in a special dtype, with a scale per row or per tensor."""

    def parts(_, o, i):
        yield name, kind, [o, i]
        yield "weight_scale", scale, [o, 1] if rows else [1]
        if zero:
            yield "weight_zero_point", zero, [o, 1] if rows else [1]
        if activation:
            yield "input_scale", scale, [1]

    return parts


NAIVE = CT % "naive_quantized"
case("compressed-tensors-int-quantized", NAIVE, ct_config("int-quantized", weights(8, "channel")))(stored("I8"))
case("compressed-tensors-int-quantized-asymmetric", NAIVE, ct_config("int-quantized", weights(8, "channel", symmetric=False)))(stored("I8", zero="I8"))
case("compressed-tensors-naive-w4", NAIVE, ct_config("naive-quantized", weights(4, "channel")))(stored("I8"))
case("compressed-tensors-float-quantized", NAIVE, ct_config("float-quantized", weights(8, "tensor", kind="float")))(stored("F8_E4M3", rows=False, activation=True))
case("compressed-tensors-float-quantized-channel", NAIVE, ct_config("float-quantized", weights(8, "channel", kind="float")))(stored("F8_E4M3"))


@case("compressed-tensors-float-quantized-block", NAIVE, ct_config("float-quantized", weights(8, "block", kind="float", block_structure=[128, 128])), outputs=32)
def _(_, o, i):
    yield "weight", "F8_E4M3", [o, i]
    yield "weight_scale", "BF16", [ceil(o, 128), ceil(i, 128)]


KV = [(f"model.layers.0.self_attn.{part}", "BF16", [1]) for part in ("k_scale", "v_scale", "q_scale")]
case("compressed-tensors-float-quantized-kv", NAIVE, ct_config("float-quantized", weights(8, "tensor", kind="float")), extra=KV)(stored("F8_E4M3", rows=False, activation=True))


def nvfp4(_, o, i):
    yield "weight_packed", "U8", [o, i // 2]
    yield "weight_scale", "F8_E4M3", [o, i // 16]
    yield "weight_global_scale", "F32", [1]


def nvfp4_activations(module, o, i):
    yield from nvfp4(module, o, i)
    yield "input_global_scale", "F32", [1]


def mx(bits, name="weight_packed"):
    def parts(_, o, i):
        yield name, "U8", [o, i * bits // 8]
        yield "weight_scale", "U8", [o, i // 32]

    return parts


FP4 = dict(strategy="tensor_group", group=16, kind="float")
case("compressed-tensors-nvfp4", CT % "nvfp4", ct_config("nvfp4-pack-quantized", weights(4, **FP4)))(nvfp4_activations)
case("compressed-tensors-nvfp4a16", CT % "nvfp4", ct_config("nvfp4-pack-quantized", weights(4, **FP4)))(nvfp4)
case("compressed-tensors-mxfp4", CT % "mxfp4", ct_config("mxfp4-pack-quantized", weights(4, group=32, kind="float", scale_dtype="torch.uint8")))(mx(4))
case("compressed-tensors-mxfp6", CT % "mxfp6", ct_config("mxfp6-pack-quantized", weights(6, group=32, kind="float", scale_dtype="torch.uint8")))(mx(6))


@case("compressed-tensors-mxfp8", CT % "mxfp8", ct_config("mxfp8-quantized", weights(8, group=32, kind="float", scale_dtype="torch.uint8")))
def _(_, o, i):
    yield "weight", "F8_E4M3", [o, i]
    yield "weight_scale", "U8", [o, i // 32]


@case("compressed-tensors-mixed", "compressed_tensors/config/base.py @ 0.20.0",
      lambda _: ct_config("mixed-precision",
                          ([r"re:.*(q|k|v|o)_proj$"], weights(8, group=32, format="pack-quantized")),
                          ([r"re:.*(gate|up)_proj$"], weights(4, **FP4, format="nvfp4-pack-quantized")),
                          ([r"re:.*layers\.\d+\.mlp\.down_proj$"], weights(8, "channel", kind="float", format="float-quantized"))))
def _(module, o, i):
    if "self_attn" in module:
        return packed(8, 32)(module, o, i)
    return (stored("F8_E4M3") if "down_proj" in module else nvfp4)(module, o, i)


@case("compressed-tensors-mixed-bits", "compressed_tensors/config/base.py @ 0.20.0",
      lambda _: ct_config("pack-quantized",
                          (["re:.*self_attn.*"], weights(8)), (["re:.*(gate_proj|up_proj)"], weights(4, group=64)), (["re:.*down_proj"], weights(3))))
def _(module, o, i):
    if "self_attn" in module:
        return packed(8)(module, o, i)
    return (packed(3) if "down_proj" in module else packed(4, 64))(module, o, i)


MARLIN24 = "compressed_tensors/compressors/sparse_quantized_compressors/marlin_24.py @ 0.12"


def marlin24(bits, group):
    """Returns the parts of marlin-24: half of the inputs are stored, in tiles of 16."""

    def parts(_, o, i):
        yield "weight_packed", "I32", [i // 32, o * 16 * bits // 32]
        yield "scale_packed", "F16", [i // group if group else 1, o]
        yield "meta", "I16", [i // 32, o * 2]

    return parts


case("compressed-tensors-marlin-24-w4", MARLIN24, ct_config("marlin-24", weights(4)), outputs=64)(marlin24(4, 128))
case("compressed-tensors-marlin-24-w8-channel", MARLIN24, ct_config("marlin-24", weights(8, "channel")), outputs=64)(marlin24(8, None))

SPARSE = {"format": "sparse-24-bitmask", "sparsity_structure": "2:4", "targets": ["Linear"], "ignore": ["lm_head"], "global_sparsity": 0.5}


@case("compressed-tensors-sparse-24-bitmask", "compressed_tensors/compressors/sparse_compressors/sparse_24_bitmask.py @ 0.12",
      quantized("compressed-tensors", format="dense", config_groups={}, ignore=["lm_head"], sparsity_config=SPARSE))
def _(_, o, i):
    yield "compressed", "BF16", [o, i // 2]
    yield "bitmask", "U8", [o, i // 8]
    yield "shape", "I64", [2, 1]


@case("compressed-tensors-sparse-24-bitmask-fp8", "compressed_tensors/compressors/sparse_compressors/sparse_24_bitmask.py @ 0.12",
      ct_config("float-quantized", weights(8, "channel", kind="float"), sparsity_config=SPARSE))
def _(_, o, i):
    yield "compressed", "F8_E4M3", [o, i // 2]
    yield "bitmask", "U8", [o, i // 8]
    yield "shape", "I64", [2, 1]
    yield "weight_scale", "BF16", [o, 1]


@case("compressed-tensors-sparse-bitmask", "compressed_tensors/compressors/sparse_compressors/sparse_bitmask.py @ 0.12",
      quantized("compressed-tensors", format="dense", config_groups={}, ignore=["lm_head"],
                sparsity_config={**SPARSE, "format": "sparse-bitmask", "sparsity_structure": "unstructured", "global_sparsity": 0.4}))
def _(_, o, i):
    yield "compressed", "BF16", [o * i * 3 // 5]
    yield "bitmask", "U8", [o, ceil(i, 8)]
    yield "row_offsets", "I64", [o]
    yield "shape", "I64", [2, 1]


# FP8 and MXFP4

FP8 = "transformers/integrations/finegrained_fp8.py @ 5.23.0"


@case("fp8-block", FP8, quantized("fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[128, 128]), inputs=64, outputs=32)
def _(_, o, i):
    yield "weight", "F8_E4M3", [o, i]
    yield "weight_scale_inv", "F32", [ceil(o, 128), ceil(i, 128)]


@case("fp8-static", "vllm/model_executor/layers/quantization/fp8.py", quantized("fp8", activation_scheme="static"))
def _(_, o, i):
    yield "weight", "F8_E4M3", [o, i]
    yield "weight_scale", "F32", [1]
    yield "input_scale", "F32", [1]


@case("fbgemm-fp8", "transformers/integrations/fbgemm_fp8.py @ 5.23.0", quantized("fbgemm_fp8", activation_scale_ub=1200.0, modules_to_not_convert=["lm_head"]))
def _(_, o, i):
    yield "weight", "F8_E4M3", [o, i]
    yield "weight_scale", "F32", [o, 1]
    yield "input_scale_ub", "F32", [1]


# modelopt

MODELOPT = "modelopt/torch/export/quant_utils.py @ 0.47.0"


def hf_quant(algorithm, **rest):
    return {"hf_quant_config.json": {"producer": {"name": "modelopt", "version": "0.47.0"}, "quantization": {"quant_algo": algorithm, "kv_cache_quant_algo": None, "exclude_modules": ["lm_head"], **rest}}}


def modelopt_config(algorithm, ignore=(), **rest):
    return quantized("modelopt", quant_algo=algorithm, ignore=["lm_head", *ignore], producer={"name": "modelopt", "version": "0.47.0"}, **rest)


def modelopt_nvfp4(_, o, i):
    yield "weight", "U8", [o, i // 2]
    yield "weight_scale", "F8_E4M3", [o, i // 16]
    yield "weight_scale_2", "F32", []
    yield "input_scale", "F32", []


case("modelopt-nvfp4", MODELOPT, modelopt_config("NVFP4", group_size=16), files=hf_quant("NVFP4", group_size=16))(modelopt_nvfp4)
case("modelopt-nvfp4-hf-quant-config-only", MODELOPT, {}, files=hf_quant("NVFP4", group_size=16))(modelopt_nvfp4)
case("modelopt-nvfp4-shards", MODELOPT, {}, files=hf_quant("NVFP4", group_size=16), shards=2)(modelopt_nvfp4)
case("modelopt-nvfp4-no-config", MODELOPT, {})(modelopt_nvfp4)


@case("modelopt-nvfp4-awq-kv", MODELOPT, modelopt_config("NVFP4_AWQ", group_size=16), files=hf_quant("NVFP4_AWQ", group_size=16, has_zero_point=False, pre_quant_scale=True))
def _(module, o, i):
    yield from modelopt_nvfp4(module, o, i)
    yield "pre_quant_scale", "BF16", [i]
    if module.endswith(("k_proj", "v_proj")):
        yield f"{module[-6]}_scale", "F32", [1]


@case("modelopt-w4a16-awq", MODELOPT, modelopt_config("W4A16_AWQ", group_size=128), files=hf_quant("W4A16_AWQ", group_size=128, has_zero_point=False, pre_quant_scale=True))
def _(_, o, i):
    yield "weight", "U8", [o // 2, i]
    yield "weight_scale", "BF16", [o, i // 128]
    yield "pre_quant_scale", "BF16", [i]


@case("modelopt-w4a8-awq", MODELOPT, modelopt_config("W4A8_AWQ", group_size=128), files=hf_quant("W4A8_AWQ", group_size=128, has_zero_point=False, pre_quant_scale=True))
def _(_, o, i):
    yield "weight", "U8", [o // 2, i]
    yield "weight_scale", "BF16", [o, i // 128]
    yield "weight_scale_2", "F32", []
    yield "input_scale", "F32", []
    yield "pre_quant_scale", "BF16", [i]


@case("modelopt-fp8", MODELOPT, modelopt_config("FP8"), files=hf_quant("FP8"))
def _(_, o, i):
    yield "weight", "F8_E4M3", [o, i]
    yield "weight_scale", "F32", []
    yield "input_scale", "F32", []


@case("modelopt-fp8-per-channel", MODELOPT, modelopt_config("FP8_PER_CHANNEL_PER_TOKEN"), files=hf_quant("FP8_PER_CHANNEL_PER_TOKEN"))
def _(_, o, i):
    yield "weight", "F8_E4M3", [o, i]
    yield "weight_scale", "F32", [o]


@case("modelopt-fp8-block", MODELOPT, modelopt_config("FP8_PB_WO"), files=hf_quant("FP8_PB_WO"))
def _(_, o, i):
    yield "weight", "F8_E4M3", [o, i]
    yield "weight_scale", "F32", [ceil(o, 128), 1, ceil(i, 128), 1]


@case("modelopt-mxfp4", MODELOPT, modelopt_config("MXFP4", group_size=32), files=hf_quant("MXFP4", group_size=32))
def _(_, o, i):
    yield from mx(4, "weight")(None, o, i)


@case("modelopt-int8-sq", MODELOPT, modelopt_config("W8A8_SQ_PER_CHANNEL"), files=hf_quant("W8A8_SQ_PER_CHANNEL"))
def _(_, o, i):
    yield "weight", "I8", [o, i]
    yield "weight_scale", "F32", [o]
    yield "input_scale", "F32", []
    yield "pre_quant_scale", "BF16", [i]


@case("modelopt-mixed", MODELOPT,
      lambda linear: modelopt_config("MIXED_PRECISION", quantized_layers={module: {"quant_algo": "FP8" if "self_attn" in module else "NVFP4", **({} if "self_attn" in module else {"group_size": 16})} for module in linear}))
def _(module, o, i):
    if "self_attn" in module:
        yield "weight", "F8_E4M3", [o, i]
        yield "weight_scale", "F32", []
        yield "input_scale", "F32", []
    else:
        yield from modelopt_nvfp4(module, o, i)


# Quark

QUARK = "quark/torch/export/nn/modules/qparamslinear.py and quark/torch/kernel @ 0.13"


def quark_config(dtype, scheme, group=None, custom="hf", exclude=(), **rest):
    weight = {"dtype": dtype, "qscheme": scheme, "group_size": group, "is_dynamic": False, **rest}
    return quantized("quark", global_quant_config={"weight": weight, "input_tensors": None, "output_tensors": None, "bias": None}, exclude=["lm_head", *exclude],
                     layer_quant_config={}, layer_type_quant_config={}, kv_cache_quant_config={}, quant_mode="eager_mode",
                     export={"kv_cache_group": [], "pack_method": "reorder", "weight_format": "real_quantized", "weight_merge_groups": None})


case("quark-mxfp4", QUARK, quark_config("fp4", "per_group", 32, scale_format="e8m0"))(mx(4, "weight"))
case("quark-mxfp6", QUARK, quark_config("fp6_e2m3", "per_group", 32, scale_format="e8m0"))(mx(6, "weight"))


@case("quark-fp4-group", "quark/torch/utils/pack.py @ 0.13, FP4PerGroupSpec", quark_config("fp4", "per_group", 32, scale_format="float32"))
def _(_, o, i):
    yield "weight", "U8", [o, i // 2]
    yield "weight_scale", "BF16", [o, i // 32]


@case("quark-int4-group", QUARK, quark_config("uint4", "per_group", 128, symmetric=False))
def _(_, o, i):
    yield "weight", "I32", [i, o // 8]
    yield "weight_scale", "BF16", [i // 128, o]
    yield "weight_zero_point", "I32", [i // 128, o // 8]


@case("quark-int4-channel", QUARK, quark_config("int4", "per_channel"))
def _(_, o, i):
    yield "weight", "I32", [o, i // 8]
    yield "weight_scale", "BF16", [o]
    yield "weight_zero_point", "I32", [o // 8]


@case("quark-fp8", QUARK, quark_config("fp8_e4m3", "per_tensor"))
def _(_, o, i):
    yield "weight", "F8_E4M3", [o, i]
    yield "weight_scale", "F32", []
    yield "input_scale", "F32", []



# Codebooks and vectors


@case("bitnet", "transformers/integrations/bitnet.py @ 5.23.0", quantized("bitnet", quantization_mode="offline", linear_class="autobitlinear"))
def _(_, o, i):
    yield "weight", "U8", [o // 4, i]
    yield "weight_scale", "BF16", [1]


def aqlm(books, bits, inputs=8, outputs=1):
    def parts(_, o, i):
        kind = "I16" if bits > 8 else "I8"
        yield "codes", kind, [o // outputs, i // inputs, books]
        yield "codebooks", "F16", [books, 2**bits, outputs, inputs]
        yield "scales", "F16", [o // outputs, 1, 1, 1]

    return parts


def aqlm_config(books, bits, inputs=8, outputs=1):
    return quantized("aqlm", in_group_size=inputs, out_group_size=outputs, num_codebooks=books, nbits_per_codebook=bits, linear_weights_not_to_quantize=["lm_head.weight"])


AQLM = "aqlm/inference.py @ 1.1.7"
case("aqlm-1x16", AQLM, aqlm_config(1, 16), dtype="F16")(aqlm(1, 16))
case("aqlm-2x8", AQLM, aqlm_config(2, 8), dtype="F16")(aqlm(2, 8))
case("aqlm-4x8-g16-o2", AQLM, aqlm_config(4, 8, 16, 2), dtype="F16")(aqlm(4, 8, 16, 2))


@case("exl2", "exllamav2/conversion/adaptivegptq.py @ 0.3.2",
      quantized("exl2", version="0.3.2", bits=4.25, head_bits=6, calibration={"rows": 115, "length": 2048, "dataset": "(default)"}), outputs=32)
def _(_, o, i):
    bits, groups = (4, 4), i // 64
    half = groups // 2
    rows = (half * 64 * bits[0] + (groups - half) * 64 * bits[1]) // 32
    yield "q_weight", "I32", [rows, o]
    yield "q_invperm", "I32", [i]
    yield "q_scale", "I32", [groups, o // 8]
    yield "q_scale_max", "F16", [groups]
    yield "q_groups", "I16", [2 * groups]


@case("exl2-3bit-head", "exllamav2/conversion/adaptivegptq.py @ 0.3.2", quantized("exl2", version="0.2.0", bits=3.0, head_bits=6), outputs=32, lm_head=True)
def _(module, o, i):
    bits, groups = (6 if module == "lm_head" else 3), i // 32
    yield "q_weight", "I32", [i * bits // 32, o]
    yield "q_invperm", "I32" if module != "lm_head" else "I16", [i]
    yield "q_scale", "I32", [groups, o // 8]
    yield "q_scale_max", "F16", [groups]
    yield "q_groups", "I16", [2 * groups]


def exl3(bits, packed_signs=False, codebook=None):
    def parts(_, o, i):
        o, i = up(o, 128), up(i, 128)
        yield "trellis", "I16", [i // 16, o // 16, 16 * bits]
        if packed_signs:
            yield "su", "I16", [i // 16]
            yield "sv", "I16", [o // 16]
        else:
            yield "suh", "F16", [i]
            yield "svh", "F16", [o]
        if codebook:
            yield codebook, "I32", []

    return parts


EXL3 = "exllamav3/modules/quant/exl3.py @ 1.6.5"


def exl3_config(bits, head_bits=6):
    return quantized("exl3", version="1.6.5", bits=float(bits), head_bits=head_bits, calibration={"rows": 128, "cols": 2048}, out_scales="always", codebook="mcg")


case("exl3-4bpw", EXL3, exl3_config(4), outputs=128)(exl3(4, codebook="mcg"))
case("exl3-3bpw-mul1", EXL3, exl3_config(3), outputs=128)(exl3(3, codebook="mul1"))
case("exl3-padded-head", EXL3, exl3_config(4, 4), outputs=128, lm_head=True, model=Llama(128, 512, 256, 128, 416, 1, 64),
     inexact="outputs are padded to 128; only vocab_size states those of the head")(exl3(4, codebook="mcg"))
case("exl3-packed-signs", EXL3, exl3_config(2), outputs=128)(exl3(2, True))


VPTQ = "vptq/layers/vqlinear.py @ 0.0.5"


def vptq_config(vector, centroids, residual, **rest):
    def config(linear):
        layers = {module: {"in_features": i, "out_features": o, "vector_lens": [-1, vector], "num_centroids": [-1, centroids], "num_res_centroids": [-1, residual],
                           "group_num": 1, "group_size": i, "outlier_size": 0, "indices_as_float": False, "enable_norm": True, "enable_perm": True,
                           "is_indice_packed": True, "bias": False} for module, (o, i) in linear.items()}
        return quantized("vptq", config_for_layers=layers, shared_layer_config={})

    return config


def vptq(vector, centroids, residual):
    bits = int(math.log2(centroids)) + (int(math.log2(residual)) if residual > 0 else 0)

    def parts(_, o, i):
        yield "indices", "I32", [1, ceil(o, vector), ceil(i * bits, 32)]
        yield "centroids.weight", "BF16", [1, centroids * vector]
        if residual > 0:
            yield "res_centroids.weight", "BF16", [1, residual * vector]
        yield "perm", "I16", [i]
        yield "weight_scale", "BF16", [i]
        yield "weight_bias", "BF16", [i]

    return parts


case("vptq-v8-k4096", VPTQ, vptq_config(8, 4096, -1))(vptq(8, 4096, -1))
case("vptq-v8-k65536-k256", VPTQ, vptq_config(8, 65536, 256))(vptq(8, 65536, 256))
case("vptq-v6-padded", VPTQ, vptq_config(6, 4096, 4096))(vptq(6, 4096, 4096))


@case("quip-sharp-e8p", "lib/linear/quantized_linear.py @ Cornell-RelaxML/quip-sharp",
      {"quip_params": {"codebook": "E8P12", "codebook_version": 1, "codesz": 8, "idx_dtype": "torch.int64", "lora_rank": 0, "packsz": 4, "rescale_WH": False, "resid_scale_override": -1}})
def _(_, o, i):
    yield "Qidxs", "I64", [o, i // 32]
    yield "SU", "F16", [i]
    yield "SV", "F16", [o]
    yield "codebook_id", "I64", []
    yield "Wscale", "F32", []


def qtip(bits, table_bits):
    """Returns the parts of QTIP: one row of words per tile of 16 x 16 weights, and for some codes a lookup table."""

    def parts(_, o, i):
        yield "trellis", "I16", [o // 16 * (i // 16), 16 * bits]
        yield "SU", "F16", [i]
        yield "SV", "F32", [o]
        yield "rcp", "I64", []
        yield "tp_rank", "I64", []
        if table_bits:
            yield "tlut", "F16", [2**table_bits, 2]

    return parts


def qtip_config(bits, mode, table_bits):
    return {"quip_params": {"codebook": "bitshift", "codebook_version": 0, "L": 16, "K": bits, "V": 2 if table_bits else 1, "td_x": 16, "td_y": 16,
                            "tlut_bits": table_bits, "decode_mode": mode, "skip_list": []}}


for bits, mode, table_bits in ((2, "quantlut_sym", 9), (3, "quantlut_sym", 9), (4, "1mad", 0)):
    case(f"qtip-{bits}bit-{mode.replace('_', '-')}", "lib/linear/quantized_linear.py @ Cornell-RelaxML/qtip e90c668", qtip_config(bits, mode, table_bits))(qtip(bits, table_bits))


# HQQ, quanto, torchao, MLX


@case("hqq-4bit-axis-1", "hqq/core/quantize.py @ 0.2.8", quantized("hqq", quant_config={"weight_quant_params": {"nbits": 4, "channel_wise": True, "group_size": 64, "optimize": True, "round_zero": True, "axis": 1}}, skip_modules=["lm_head"]))
def _(_, o, i):
    yield "W_q", "U8", [o * i // 64 // 2, 64]
    yield "scale", "BF16", [o * i // 64, 1]
    yield "zero", "BF16", [o * i // 64, 1]
    yield "shape", "I64", [2]
    for part in ("nbits", "group_size", "axis"):
        yield part, "I32", []
    for part, size in (("packing", 7), ("compute_dtype", 14), ("unpack_view_dtype", 11)):
        yield part, "U8", [size]
    for part in ("channel_wise", "optimize", "round_zero", "quant_zero", "quant_scale", "view_as_float", "offload_meta", "stores_quant_config", "encoded_state_dict"):
        yield part, "U8", []


@case("hqq-4bit-axis-0", "hqq/core/quantize.py @ 0.2.8", quantized("hqq", quant_config={"weight_quant_params": {"nbits": 4, "channel_wise": True, "group_size": 64, "optimize": True, "round_zero": True, "axis": 0}}, skip_modules=["lm_head"]))
def _(_, o, i):
    yield "W_q", "U8", [32, o * i // 64]
    yield "scale", "BF16", [1, o * i // 64]
    yield "zero", "BF16", [1, o * i // 64]
    yield "shape", "I64", [2]


def quanto(bits):
    def parts(_, o, i):
        if bits == 8:
            yield "weight._data", "I8", [o, i]
            yield "weight._scale", "BF16", [o, 1]
        else:
            groups = o * i // 128
            yield "weight._data._data", "U8", [groups * bits // 8, 128]
            yield "weight._scale", "BF16", [groups, 1]
            yield "weight._shift", "BF16", [groups, 1]
        yield "input_scale", "BF16", []
        yield "output_scale", "BF16", []

    return parts


for bits in (2, 4, 8):
    case(f"quanto-int{bits}", "optimum/quanto/tensor @ 0.2.7", quantized("quanto", weights=f"int{bits}", activations=None, modules_to_not_convert=None))(quanto(bits))


def mlx(bits, group=64, mode="affine"):
    def parts(_, o, i):
        yield "weight", "U32", [o, i * bits // 32]
        if mode == "affine":
            yield "scales", "BF16", [o, i // group]
            yield "biases", "BF16", [o, i // group]
        else:
            yield "scales", "U8", [o, i // group]

    return parts


for bits in (2, 3, 4, 5, 6, 8):
    case(f"mlx-{bits}bit", "mlx quantize @ 0.32.4", {"quantization": {"group_size": 64, "bits": bits, "mode": "affine"}, "quantization_config": {"group_size": 64, "bits": bits, "mode": "affine"}})(mlx(bits))
for mode, bits, group in (("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)):
    case(f"mlx-{mode}", "mlx quantize @ 0.32.4", {"quantization": {"group_size": group, "bits": bits, "mode": mode}})(mlx(bits, group, mode))


@case("mlx-nvfp4-global-scale", "mlx_lm/utils.py quantize_model @ 0.32.2", {"quantization": {"group_size": 16, "bits": 4, "mode": "nvfp4"}})
def _(module, o, i):
    yield from mlx(4, 16, "nvfp4")(module, o, i)
    yield "global_scale", "F32", [1]


@case("mlx-mixed", "mlx_lm/quant @ 0.32.2", lambda linear: {"quantization": {"group_size": 64, "bits": 4, **{module: {"group_size": 32, "bits": 6} for module in linear if "down_proj" in module}, **{module: False for module in linear if "gate" in module}}}, skip=["gate_proj"])
def _(module, o, i):
    return (mlx(6, 32) if "down_proj" in module else mlx(4))(module, o, i)


@case("metal-4bit", "transformers/integrations/metal_quantization.py @ 5.23.0", quantized("metal", bits=4, group_size=64))
def _(_, o, i):
    yield "weight", "U32", [o, i // 8]
    yield "scales", "F32", [o, i // 64]
    yield "qbiases", "F32", [o, i // 64]


# Neural Compressor

COMPRESSOR = "neural_compressor/adaptor/torch_utils/model_wrapper.py @ 2.6"


def compressor(bits, group=32, word=32, along_inputs=True, zeros=True):
    """Returns the parts of Neural Compressor without the format of Optimum. A word holds whole values."""

    def parts(_, o, i):
        each, kind = word // bits, f"I{word}"
        yield "qweight", kind, [o, ceil(i, each)] if along_inputs else [ceil(o, each), i]
        yield "scales", "F32", [o, ceil(i, group)]
        if zeros:
            yield "qzeros", kind, [o, ceil(ceil(i, group), each)] if along_inputs else [ceil(o, each), ceil(i, group)]

    return parts


for bits in (2, 4, 8):
    case(f"neural-compressor-{bits}bit", COMPRESSOR)(compressor(bits))
    case(f"neural-compressor-{bits}bit-outputs", COMPRESSOR)(compressor(bits, along_inputs=False))
    case(f"neural-compressor-{bits}bit-symmetric", COMPRESSOR)(compressor(bits, zeros=False))
case("neural-compressor-4bit-int8-words", COMPRESSOR)(compressor(4, word=8))
case("neural-compressor-2bit-int8-words", COMPRESSOR)(compressor(2, word=8))


# Others


@case("eetq", "transformers/integrations/eetq.py @ 5.23.0", quantized("eetq", weights="int8", modules_to_not_convert=None))
def _(_, o, i):
    yield "weight", "I8", [i, o]
    yield "weight_scales", "F16", [o]


def sinq(bits, group=64, packed_scales=True):
    """Returns the parts of SINQ: those of HQQ, scales that are packed as well, and a second scale per input."""

    def parts(_, o, i):
        groups = o * i // group
        yield "W_q", *(("I32", [ceil(groups, 10), group]) if bits == 3 else ("U8", [groups * bits // 8, group]))
        if packed_scales:
            for part, shape in (("scale.x", [32, groups // 32]), ("scale.s", [1, groups // 32]), ("scale.m", [1, groups // 32]), ("zero.x", [groups, 1]), ("zero.s", [1, 1]), ("zero.m", [1, 1])):
                yield f"meta.{part}", "U8" if part.endswith("x") else "F16", shape
        else:
            yield "meta.scale", "F16", [groups, 1]
            yield "meta.zero", "F16", [groups, 1]
        yield "meta.scale2", "F16", [1, i]

    return parts


for bits in (2, 3, 4, 8):
    case(f"sinq-{bits}bit", "sinq/sinqlinear_hf.py and sinq/quantizer.py @ 0.2.0", quantized("sinq", nbits=bits, group_size=64, tiling_mode="1D", method="sinq", modules_to_not_convert=["lm_head"]))(sinq(bits))
case("sinq-4bit-plain-scales", "sinq/quantizer.py @ 0.2.0", quantized("sinq", nbits=4, group_size=64, tiling_mode="1D", method="sinq_nogemlite"))(sinq(4, packed_scales=False))


@case("quark-int2-group", "quark/torch/utils/pack.py @ 0.13, one value per word", quark_config("int2", "per_group", 32))
def _(_, o, i):
    yield "weight", "I32", [i, o]
    yield "weight_scale", "BF16", [i // 32, o]
    yield "weight_zero_point", "I32", [i // 32, o]


def nunchaku(precision):
    def parts(_, o, i):
        yield "qweight", "I8", [o, i // 2]
        yield "wscales", *(("BF16", [i // 64, o]) if precision == "int4" else ("F8_E4M3", [i // 16, o]))
        yield "smooth_factor", "BF16", [i]
        yield "smooth_factor_orig", "BF16", [i]
        yield "proj_down", "BF16", [i, 32]
        yield "proj_up", "BF16", [o, 32]
        if precision == "nvfp4":
            yield "wcscales", "BF16", [o]

    return parts


NUNCHAKU = "nunchaku/models/linear.py @ nunchaku-tech"
case("nunchaku-int4", NUNCHAKU, quantized("svdquant", weight={"dtype": "int4", "group_size": 64, "scale_dtype": None}, activation={"dtype": "int4", "group_size": 64}, rank=32))(nunchaku("int4"))
case("nunchaku-nvfp4", NUNCHAKU, quantized("svdquant", weight={"dtype": "fp4_e2m1_all", "group_size": 16, "scale_dtype": [None, "fp8_e4m3_nan"]}, rank=32))(nunchaku("nvfp4"))


@case("nunchaku-awq-w4a16", NUNCHAKU, quantized("svdquant", weight={"dtype": "int4", "group_size": 64}))
def _(_, o, i):
    yield "qweight", "I32", [o // 4, i // 2]
    yield "wscales", "BF16", [i // 64, o]
    yield "wzeros", "BF16", [i // 64, o]


# GPTQ parts under other names of the method

for method, form in (("auto-round", "auto_round:auto_gptq"), ("intel/auto-round", "auto_round:gptq:exllamav2"), ("inc", "auto_round:auto_gptq")):
    case(f"{method.rpartition('/')[2]}-gptq-4bit" if "/" not in method else "intel-auto-round-gptq-4bit", "auto_round_extension/torch/qlinear_torch.py @ 0.16.1",
         quantized(method, bits=4, group_size=128, sym=True, data_type="int", packing_format=form, autoround_version="0.16.1", block_name_to_quantize="model.layers"),
         )(gptq(4, with_g_idx=False))
for bits in (2, 3, 8):
    case(f"auto-round-gptq-{bits}bit", "auto_round_extension/torch/qlinear_torch.py @ 0.16.1",
         quantized("auto-round", bits=bits, group_size=64, sym=True, packing_format="auto_round:auto_gptq"))(gptq(bits, 64, with_g_idx=False))
case("auto-round-awq-4bit", "auto_round/export/export_to_awq/utils.py @ 0.16.1",
     quantized("auto-round", bits=4, group_size=128, sym=False, packing_format="auto_round:auto_awq"))(awq_gemm(128))


# Formats of GPTQModel besides GPTQ and AWQ


def bitblas(bits, group):
    def parts(_, o, i):
        yield "qweight", "I8", [o, i * bits // 8]
        yield "scales", "F16", [o, i // group if group > 0 else 1]
        yield "qzeros", "I8", [i // group if group > 0 else 1, o * bits // 8]

    return parts


BITBLAS = "gptqmodel/nn_modules/qlinear/bitblas.py @ f4c327a1"
for bits in (2, 4):
    case(f"bitblas-{bits}bit", BITBLAS, gptq_config(bits, 128, checkpoint_format="bitblas"))(bitblas(bits, 128))
case("bitblas-method", "vllm/model_executor/layers/quantization/bitblas.py",
     quantized("bitblas", bits=4, group_size=64, desc_act=False, is_sym=False, checkpoint_format="bitblas", lm_head=False))(bitblas(4, 64))


@case("qoq-g128", "sglang/srt/layers/quantization/qoq.py @ 0ad10073", quantized("qoq", wbits=4, group_size=128), dtype="F16")
def _(_, o, i):
    yield "qweight", "I8", [o, i // 2]
    yield "s1_scales", "F16", [o]
    yield "s2_scales", "I8", [i // 128, o]
    yield "s2_zeros", "I8", [i // 128, o]


GGUF_BLOCKS = {"q4_0": (32, 18), "q8_0": (32, 34), "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210)}
for bits, block in (("q4_0", "q4_0"), ("q8_0", "q8_0"), ("q4_k_m", "q4_k"), ("q6_k", "q6_k")):
    values, size = GGUF_BLOCKS[block]
    case(f"gguf-blocks-{bits.replace('_', '-')}", "gptqmodel/nn_modules/qlinear/gguf.py @ f4c327a1",
         quantized("gguf", bits=bits, group_size=-1, checkpoint_format="gguf", method="gguf", format=bits.removeprefix(bits[:3]) or "0"), inputs=256,
         )(lambda _, o, i, values=values, size=size: [("qweight", "U8", [o, ceil(i, values) * size])])


@case("gptqmodel-fp8-row", "gptqmodel/nn_modules/qlinear/fp8.py @ f4c327a1", quantized("fp8", bits=8, format="float8_e4m3fn", weight_scale_method="row", weight_scale_semantics="inverse", checkpoint_format="fp8"))
def _(_, o, i):
    yield "weight", "F8_E4M3", [o, i]
    yield "weight_scale_inv", "F32", [o]


# FP8, MXFP4 and FP4 of other writers


@case("fp8-block-ue8m0", FP8, quantized("fp8", activation_scheme="dynamic", fmt="e4m3", scale_fmt="ue8m0", weight_block_size=[128, 128]), inputs=64, outputs=32)
def _(_, o, i):
    yield "weight", "F8_E4M3", [o, i]
    yield "weight_scale_inv", "F8_E8M0", [ceil(o, 128), ceil(i, 128)]


@case("fp8-packed-fp4", FP8, quantized("fp8", activation_scheme="dynamic", fmt="e4m3", scale_fmt="ue8m0", weight_block_size=[128, 128]))
def _(module, o, i):
    if "mlp" in module:
        yield "weight", "I8", [o, i // 2]
        yield "weight_scale_inv", "F8_E8M0", [o, i // 32]
    else:
        yield "weight", "F8_E4M3", [o, i]
        yield "weight_scale_inv", "F8_E8M0", [ceil(o, 128), ceil(i, 128)]


@case("modelopt-nvfp4-svdquant", MODELOPT, modelopt_config("NVFP4_SVD", group_size=16, lowrank=32), files=hf_quant("NVFP4_SVD", group_size=16, has_zero_point=False, pre_quant_scale=True, lowrank=32))
def _(module, o, i):
    yield from modelopt_nvfp4(module, o, i)
    yield "pre_quant_scale", "BF16", [i]
    yield "weight_quantizer.svdquant_lora_a", "BF16", [32, i]
    yield "weight_quantizer.svdquant_lora_b", "BF16", [o, 32]


@case("modelopt-mxfp8", MODELOPT, modelopt_config("MXFP8", group_size=32), files=hf_quant("MXFP8", group_size=32))
def _(_, o, i):
    yield "weight", "F8_E4M3", [o, i]
    yield "weight_scale", "U8", [o, i // 32]


@case("modelopt-w4a8-nvfp4-fp8", MODELOPT, modelopt_config("W4A8_NVFP4_FP8", group_size=32), files=hf_quant("W4A8_NVFP4_FP8", group_size=32))
def _(_, o, i):
    yield "weight", "U8", [o, i // 2]
    yield "weight_scale", "F8_E4M3", [o, i // 32]
    yield "weight_scale_2", "F32", []
    yield "input_scale", "F32", []


@case("comfyui-scaled-fp8", "comfy/utils.py and comfy/ops.py @ ComfyUI", {})
def _(_, o, i):
    yield "weight", "F8_E4M3", [o, i]
    yield "scale_weight", "F32", []


@case("comfyui-nvfp4", "comfy/quant_ops.py @ ComfyUI", {},
      metadata=lambda linear: {"format": "pt", "_quantization_metadata": '{"format_version": "1.0", "layers": {' + ", ".join(f'"{module}": {{"format": "nvfp4"}}' for module in linear) + "}}"})
def _(_, o, i):
    yield "weight", "U8", [o, i // 2]
    yield "weight_scale", "F8_E4M3", [up(o, 128), up(i // 16, 4)]
    yield "weight_scale_2", "F32", []


@case("comfyui-nvfp4-comfy-quant", "comfy/quant_ops.py @ ComfyUI", {})
def _(_, o, i):
    yield "weight", "U8", [o, i // 2]
    yield "weight_scale", "F8_E4M3", [up(o, 128), up(i // 16, 4)]
    yield "weight_scale_2", "F32", []
    yield "comfy_quant", "U8", [19]


LIGHTX2V = "tools/convert/quant/quant.py @ LightX2V"
case("lightx2v-int8", LIGHTX2V)(stored("I8", "F32"))
case("lightx2v-fp8", LIGHTX2V)(stored("F8_E4M3", "F32"))


@case("lightx2v-nvfp4", LIGHTX2V, {}, inputs=32, outputs=32)
def _(_, o, i):
    yield "weight", "U8", [o, i // 2]
    yield "weight_scale", "F8_E4M3", [up(o, 128), up(i // 16, 4)]
    yield "weight_global_scale", "F32", []
    yield "input_absmax", "F32", [1]


# Vectors, Hadamard transforms, sparse outliers


def higgs(bits, group=256):
    def parts(_, o, i):
        i = up(i, 1024)
        yield "weight", "I16", [o * bits // 16, i]
        yield "scales", "BF16", [o, i // group]
        yield "tables", "BF16", [2**bits]
        yield "tables2", "F16", [2**bits, 2**bits, 2]

    return parts


def higgs_config(bits):
    return lambda linear: quantized("higgs", bits=bits, p=2, modules_to_not_convert=["lm_head"], hadamard_size=1024, group_size=256,
                                    tune_metadata={module: {"M": 1, "N": o, "K": up(i, 1024), "num_bits": bits, "group_size": 256, "num_sms": 108, "template_id": 4} for module, (o, i) in linear.items()})


case("higgs-4bit", "transformers/integrations/higgs.py @ 5.23.0", higgs_config(4), inputs=1024)(higgs(4))
case("higgs-3bit-padded", "transformers/integrations/higgs.py @ 5.23.0", higgs_config(3), inputs=128, outputs=256,
     inexact="inputs are padded to 1,024; only the dimensions of the model state them")(higgs(3))


def fp_quant(group, hadamard, master=False):
    def parts(_, o, i):
        yield "qweight", "U8", [o, i // 2]
        yield "scales", "U8", [o, i // group]
        yield "weight_global_scale", "BF16", [1]
        yield "act_global_scale", "BF16", [1]
        yield "forward_hadamard_matrix", "BF16", [hadamard, hadamard]
        yield "backward_hadamard_matrix", "BF16", [hadamard, hadamard]
        if master:
            yield "dqweight", "BF16", [0]

    return parts


FPQUANT = "fp_quant/module/linear.py @ 0.3.2"
case("fp-quant-mxfp4", FPQUANT, quantized("fp_quant", forward_dtype="mxfp4", forward_method="abs_max", backward_dtype="bf16", store_master_weights=False, hadamard_group_size=32, pseudoquantization=False, transform_init="hadamard"))(fp_quant(32, 32))
case("fp-quant-nvfp4", FPQUANT, quantized("fp_quant", forward_dtype="nvfp4", forward_method="abs_max", backward_dtype="bf16", store_master_weights=False, hadamard_group_size=16, pseudoquantization=False))(fp_quant(16, 16, True))


@case("fp-quant-pseudoquantization", FPQUANT, quantized("fp_quant", forward_dtype="mxfp4", store_master_weights=False, hadamard_group_size=128, pseudoquantization=True))
def _(_, o, i):
    yield "dqweight", "BF16", [o, i]
    yield "weight_global_scale", "BF16", [1]
    yield "act_global_scale", "BF16", [1]
    yield "forward_hadamard_matrix", "BF16", [128, 128]
    yield "backward_hadamard_matrix", "BF16", [128, 128]


def spqr_sizes(o, i):
    return {"dense_weights": ("I64", ceil(o, 16) * ceil(i, 16) * 16), "row_offsets": ("I32", o + 1), "col_vals": ("I32", o * i // 97), "in_perm": ("I32", i // 2)}


@case("spqr", "spqr_quant/inference.py @ Vahe1994/SpQR",
      lambda linear: quantized("spqr", bits=3, beta1=16, beta2=16, modules_to_not_convert=["lm_head"],
                               shapes={f"{module}.{part}.shape": size for module, (o, i) in linear.items() for part, (_, size) in spqr_sizes(o, i).items()}))
def _(_, o, i):
    for part, (kind, size) in spqr_sizes(o, i).items():
        yield part, kind, [size]


@case("fouroversix", "fouroversix/model/modules/linear.py @ dadfad6", quantized("fouroversix", dtype="nvfp4", keep_master_weights=False, scale_rule="mse", weight_scale_2d=False, modules_to_not_convert=["lm_head"]))
def _(_, o, i):
    yield "quantized_weight_values", "U8", [o, i // 2]
    yield "quantized_weight_scale_factors", "F8_E4M3", [o * i // 16]
    yield "quantized_weight_amax", "F32", [1]
    yield "quantized_weight_metadata", "I32", [6]


# Whole checkpoints whose names or shapes are not those of a Llama with packed linear layers


WHOLE = {}


def whole(name, source):
    """Registers a function that returns the configuration, the tensors, the logical shapes of packed modules, and the other fields."""

    def register(build):
        assert name not in CASES and name not in WHOLE, name
        WHOLE[name] = (source, build)
        return build

    return register


def whole_case(name):
    source, build = WHOLE[name]
    config, tensors, modules, rest = build()
    is_plain = rest.pop("is_plain", None)
    plain = rest.pop("plain") if "plain" in rest else [tensor for tensor, _, _ in tensors if is_plain(tensor)]
    sizes = {tensor: math.prod(shape) for tensor, _, shape in tensors if tensor in set(plain) and shape}
    total = sum(sizes.values()) + sum(math.prod(shape) for shape in modules.values())
    return {"name": name, "written_by": f"definition: {source}", "true_parameters": total, "modules": modules, "config": config, **rest,
            "tensors": [{"name": tensor, "dtype": kind, "shape": list(shape)} for tensor, kind, shape in sorted(tensors)]}


def attention(prefix, h, q, kv, kind="BF16"):
    for name, shape in (("q_proj", [q, h]), ("k_proj", [kv, h]), ("v_proj", [kv, h]), ("o_proj", [h, q])):
        yield f"{prefix}.self_attn.{name}.weight", kind, shape
    for name in ("input_layernorm", "post_attention_layernorm"):
        yield f"{prefix}.{name}.weight", kind, [h]


def ends(h, vocabulary, tied=False):
    yield "model.embed_tokens.weight", "BF16", [vocabulary, h]
    yield "model.norm.weight", "BF16", [h]
    if not tied:
        yield "lm_head.weight", "BF16", [vocabulary, h]


@whole("mxfp4-gpt-oss", "transformers/integrations/mxfp4.py @ 5.23.0; gpt-oss checkpoints")
def _():
    h, size, experts, layers = 96, 160, 4, 2
    tensors, modules = [*ends(h, 320)], {}
    for n in range(layers):
        prefix = f"model.layers.{n}"
        tensors += attention(prefix, h, 128, 64)
        tensors += [(f"{prefix}.self_attn.sinks", "BF16", [8]), (f"{prefix}.mlp.router.weight", "BF16", [experts, h]), (f"{prefix}.mlp.router.bias", "BF16", [experts])]
        for name, o, i in (("gate_up_proj", 2 * size, h), ("down_proj", h, size)):
            module = f"{prefix}.mlp.experts.{name}"
            modules[module] = [experts, o, i]
            tensors += [(f"{module}_blocks", "U8", [experts, o, i // 32, 16]), (f"{module}_scales", "U8", [experts, o, i // 32]), (f"{module}_bias", "BF16", [experts, o])]
    config = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": h, "intermediate_size": size, "num_hidden_layers": layers, "num_local_experts": experts,
              "num_experts_per_tok": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16, "vocab_size": 320,
              **quantized("mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])}
    return config, tensors, modules, {"is_plain": lambda name: not name.endswith(("_blocks", "_scales"))}


def stacked(h, size, experts, config, parts, plain, outputs_first):
    """Returns a Llama 4 with packed experts that are stacked."""
    tensors, modules, prefix = [*ends(h, 256)], {}, "model.layers.0"
    tensors += attention(prefix, h, 2 * h, h // 2)
    tensors += [(f"{prefix}.feed_forward.router.weight", "BF16", [experts, h])]
    for name, o, i in (("gate_up_proj", 2 * size, h), ("down_proj", h, size)):
        module = f"{prefix}.feed_forward.experts.{name}"
        modules[module] = [experts, o, i] if outputs_first else [experts, i, o]
        tensors += [(module + part, kind, shape) for part, kind, shape in parts(experts, o, i)]
    config = {"architectures": ["Llama4ForCausalLM"], "model_type": "llama4_text", "hidden_size": h, "intermediate_size": size, "num_hidden_layers": 1, "num_local_experts": experts,
              "num_experts_per_tok": 1, "vocab_size": 256, **config}
    return config, tensors, modules, {"is_plain": lambda name: "experts" not in name and plain}


@whole("modelopt-nvfp4-stacked-experts", MODELOPT)
def _():
    def parts(e, o, i):
        yield "", "U8", [e, i // 2, o]
        yield "_weight_scale", "F8_E4M3", [e, i // 16, o]
        yield "_weight_scale_2", "F32", []
        yield "_input_scale", "F32", []

    return stacked(96, 160, 4, modelopt_config("NVFP4", group_size=16), parts, True, False)


@whole("fbgemm-fp8-stacked-experts", "transformers/integrations/fbgemm_fp8.py @ 5.23.0")
def _():
    def parts(e, o, i):
        yield "", "F8_E4M3", [e, i, o]
        yield "_scale", "F32", [e, 1, o]

    return stacked(96, 160, 4, quantized("fbgemm_fp8", activation_scale_ub=1200.0), parts, True, False)


@whole("fp8-block-stacked-experts", FP8)
def _():
    def parts(e, o, i):
        yield "", "F8_E4M3", [e, o, i]
        yield "_scale_inv", "F32", [e, ceil(o, 128), ceil(i, 128)]

    return stacked(96, 160, 4, quantized("fp8", weight_block_size=[128, 128], activation_scheme="dynamic"), parts, True, True)


@whole("compressed-tensors-w4-stacked-experts", PACK)
def _():
    def parts(e, o, i):
        yield "_packed", "I32", [e, o, i // 8]
        yield "_scale", "BF16", [e, o, i // 32]
        yield "_shape", "I64", [3]

    return stacked(96, 160, 4, ct_config("pack-quantized", weights(4, group=32), ignore=["lm_head", "re:.*self_attn.*"]), parts, True, True)


@whole("mlx-4bit-stacked-experts", "mlx_lm/models/switch_layers.py @ 0.32.2")
def _():
    h, size, experts = 128, 192, 4
    tensors, modules, prefix = [], {}, "model.layers.0"

    def pack(module, shape):
        *rest, i = shape
        modules[module] = shape
        tensors.extend([(f"{module}.weight", "U32", [*rest, i // 8]), (f"{module}.scales", "BF16", [*rest, i // 64]), (f"{module}.biases", "BF16", [*rest, i // 64])])

    pack("model.embed_tokens", [256, h])
    pack("lm_head", [256, h])
    for name, shape in (("q_proj", [192, h]), ("k_proj", [64, h]), ("v_proj", [64, h]), ("o_proj", [h, 192])):
        pack(f"{prefix}.self_attn.{name}", shape)
    for name, shape in (("gate_proj", [experts, size, h]), ("up_proj", [experts, size, h]), ("down_proj", [experts, h, size])):
        pack(f"{prefix}.mlp.switch_mlp.{name}", shape)
    tensors += [(f"{prefix}.mlp.gate.weight", "U32", [experts, h // 4]), (f"{prefix}.mlp.gate.scales", "BF16", [experts, h // 64]), (f"{prefix}.mlp.gate.biases", "BF16", [experts, h // 64])]
    modules[f"{prefix}.mlp.gate"] = [experts, h]
    tensors += [(f"{prefix}.{name}.weight", "BF16", [h]) for name in ("input_layernorm", "post_attention_layernorm")] + [("model.norm.weight", "BF16", [h])]
    quantization = {"group_size": 64, "bits": 4, "mode": "affine", f"{prefix}.mlp.gate": {"group_size": 64, "bits": 8}}
    config = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": h, "moe_intermediate_size": size, "num_hidden_layers": 1, "num_experts": experts, "num_experts_per_tok": 2,
              "vocab_size": 256, "quantization": quantization, "quantization_config": quantization}
    return config, tensors, modules, {"is_plain": lambda name: "norm" in name}


def expert_list(config, parts):
    h, size, experts = 128, 192, 4
    tensors, modules, prefix = [*ends(h, 256)], {}, "model.layers.0"
    tensors += attention(prefix, h, 192, 64)
    tensors += [(f"{prefix}.mlp.gate.weight", "BF16", [experts, h])]
    for expert in range(experts):
        for name, o, i in (("gate_proj", size, h), ("up_proj", size, h), ("down_proj", h, size)):
            module = f"{prefix}.mlp.experts.{expert}.{name}"
            modules[module] = [o, i]
            tensors += [(f"{module}.{part}", kind, shape) for part, kind, shape in parts(module, o, i)]
    config = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": h, "moe_intermediate_size": size, "num_hidden_layers": 1, "num_experts": experts, "num_experts_per_tok": 2,
              "vocab_size": 256, **config}
    return config, tensors, modules, {"is_plain": lambda name: "experts" not in name}


whole("gptq-3bit-experts", GPTQMODEL)(lambda: expert_list(gptq_config(3, 32, dynamic={"-:.*self_attn.*": {}}), gptq(3, 32)))
whole("awq-experts", AWQ % "gemm")(lambda: expert_list(awq_config("gemm", 32, modules_to_not_convert=["self_attn", "mlp.gate"]), awq_gemm(32)))
whole("modelopt-nvfp4-experts", MODELOPT)(lambda: expert_list(modelopt_config("NVFP4", ["model.embed_tokens", "model.layers.0.mlp.gate", "model.layers.0.self_attn*"], group_size=16), modelopt_nvfp4))
whole("quark-mxfp4-experts", QUARK)(lambda: expert_list(quark_config("fp4", "per_group", 32, exclude=[f"model.layers.0.self_attn.{name}_proj" for name in "qkvo"], scale_format="e8m0"), mx(4, "weight")))


def gemma(bits, embedding_bits, down=None):
    """Returns a Gemma that was trained with quantization. The bits are in the configuration only."""
    model = Llama(hidden=128, intermediate=384, q=192, kv=64, vocabulary=288, tied=True)
    tensors, modules = [], {}

    def kind(width):
        return ("I8", 1) if width == 8 else ("U8", 8 // width)

    for module, (o, i) in model.linear_shapes().items():
        dtype, values = kind(down if down and "down_proj" in module else bits)
        modules[module] = [o, i]
        tensors += [(f"{module}.weight", dtype, [o, ceil(i, values)]), (f"{module}.weight_scale", "F32", [o, 1]),
                    (f"{module}.input_activation_scale", "F32", []), (f"{module}.output_activation_scale", "F32", [])]
    for tensor, shape in model.other_shapes().items():
        if tensor == "model.embed_tokens.weight" and embedding_bits:
            dtype, values = kind(embedding_bits)
            modules["model.embed_tokens"] = shape
            tensors += [("model.embed_tokens.embedding_quantized", dtype, [shape[0], ceil(shape[1], values)]), ("model.embed_tokens.embedding_scale", "F32", [shape[0], 1])]
        else:
            tensors.append((tensor, "BF16", shape))
    tensors += [(f"model.layers.0.self_attn.{name}_cache_scale", "F32", []) for name in "kv"]
    patterns = {**({r"\.down_proj$": {"num_bits": down}} if down else {}), **({r"embed_tokens": {"num_bits": embedding_bits}} if embedding_bits else {})}
    config = {**model.config(**quantized("gemma", num_bits=bits, quantize_embeddings=bool(embedding_bits), module_quant_configs=patterns or None, modules_to_not_convert=["lm_head"])),
              "architectures": ["GemmaForCausalLM"], "model_type": "gemma"}
    return config, tensors, modules, {"is_plain": lambda name: "norm" in name or name == "model.embed_tokens.weight"}


for bits, embedding, down in ((4, None, None), (2, 4, 8), (4, 8, 2)):
    whole(f"gemma-{bits}bit{f'-embedding-{embedding}bit' if embedding else ''}", "transformers/integrations/gemma_quant.py @ 5.23.0")(lambda bits=bits, embedding=embedding, down=down: gemma(bits, embedding, down))


@whole("dfloat11", "dfloat11/dfloat11.py @ 0.5.0")
def _():
    model = Llama.random("dfloat11", layers=2)
    tensors, modules = [(tensor, "BF16", shape) for tensor, shape in model.other_shapes().items() if tensor != "lm_head.weight"], {"lm_head": [model.vocabulary, model.hidden]}
    for layer in range(model.layers):
        modules[f"model.layers.{layer}"] = [sum(o * i for module, (o, i) in model.linear_shapes().items() if f".{layer}." in module)]
    for module, shape in modules.items():
        n = math.prod(shape)
        bytes_ = n * 3 // 8
        tensors += [(f"{module}.sign_mantissa", "U8", [n]), (f"{module}.encoded_exponent", "U8", [bytes_]), (f"{module}.luts", "U8", [5, 256]), (f"{module}.gaps", "U8", [ceil(ceil(bytes_, 8) * 5, 8)]),
                    (f"{module}.output_positions", "U8", [4 * (ceil(bytes_, 4096) + 1)]), (f"{module}.split_positions", "I64", [6 if module != "lm_head" else 0])]
    names = [name.removeprefix("model.layers.0.") for name in model.linear_shapes() if ".0." in name]
    config = model.config(dfloat11_config={"version": "0.5.0", "threads_per_block": [512], "bytes_per_thread": 8, "pattern_dict": {r"model\.layers\.\d+": names, "lm_head": []}})
    return config, tensors, modules, {"is_plain": lambda name: "norm" in name or "embed" in name}


@whole("nunchaku-flux-block", "nunchaku/models/transformers/transformer_flux_v2.py @ nunchaku-tech")
def _():
    d = 256
    tensors, modules, prefix = [], {}, "transformer_blocks.0"
    for name, o, i in (("attn.to_qkv", 3 * d, d), ("attn.to_out.0", d, d), ("attn.add_qkv_proj", 3 * d, d), ("attn.to_add_out", d, d), ("ff.net.0.proj", 4 * d, d), ("ff.net.2", d, 4 * d)):
        module = f"{prefix}.{name}"
        modules[module] = [o, i]
        tensors += [(f"{module}.{part}", kind, shape) for part, kind, shape in nunchaku("int4")(module, o, i)] + [(f"{module}.bias", "BF16", [o])]
    for name in ("norm1.linear", "norm1_context.linear"):
        module = f"{prefix}.{name}"
        modules[module] = [6 * d, d]
        tensors += [(f"{module}.qweight", "I32", [6 * d // 4, d // 2]), (f"{module}.wscales", "BF16", [d // 64, 6 * d]), (f"{module}.wzeros", "BF16", [d // 64, 6 * d]), (f"{module}.bias", "BF16", [6 * d])]
    tensors += [(f"{prefix}.attn.{name}.weight", "BF16", [32]) for name in ("norm_q", "norm_k", "norm_added_q", "norm_added_k")] + [("x_embedder.weight", "BF16", [d, 64]), ("x_embedder.bias", "BF16", [d])]
    plain = [name for name, _, _ in tensors if name.endswith(".bias") or "attn.norm" in name or name.startswith("x_embedder")]
    metadata = {"model_class": "NunchakuFluxTransformer2DModelV2", "quantization_config": '{"method": "svdquant", "weight": {"dtype": "int4", "scale_dtype": null, "group_size": 64}, "activation": {"dtype": "int4", "scale_dtype": null, "group_size": 64}, "rank": 32}'}
    return {}, tensors, modules, {"plain": plain, "metadata": metadata}


@whole("nunchaku-flux-block-v1", "nunchaku/lora/flux and src/Linear.cpp @ nunchaku-tech")
def _():
    d = 256
    tensors, modules = [], {}
    for name, o, i in (("qkv_proj", 3 * d, d), ("out_proj", d, d), ("mlp_fc1", 4 * d, d), ("mlp_fc2", d, 4 * d)):
        module = f"single_transformer_blocks.0.{name}"
        modules[module] = [o, i]
        tensors += [(f"{module}.qweight", "I8", [o, i // 2]), (f"{module}.wscales", "BF16", [i // 64, o]), (f"{module}.smooth", "BF16", [i]), (f"{module}.smooth_orig", "BF16", [i]),
                    (f"{module}.lora_down", "BF16", [i, 32]), (f"{module}.lora_up", "BF16", [o, 32]), (f"{module}.bias", "BF16", [o])]
    tensors += [("single_transformer_blocks.0.norm_q.weight", "BF16", [32]), ("single_transformer_blocks.0.norm_k.weight", "BF16", [32])]
    return {}, tensors, modules, {"is_plain": lambda name: name.endswith(".bias") or "norm" in name, "metadata": {"config": '{"_class_name": "FluxTransformer2DModel"}'}}


@whole("bitsandbytes-nf4-diffusers", BNB)
def _():
    d = 192
    tensors, modules, prefix = [], {}, "transformer_blocks.0"
    for name, o, i in (("attn.to_q", d, d), ("attn.to_k", d, d), ("attn.to_v", d, d), ("attn.to_out.0", d, d), ("ff.net.0.proj", 4 * d, d), ("ff.net.2", d, 4 * d)):
        module = f"{prefix}.{name}"
        modules[module] = [o, i]
        tensors += [(f"{module}.{part}", kind, shape) for part, kind, shape in bnb4(nested=False)(module, o, i)] + [(f"{module}.bias", "BF16", [o])]
    tensors += [("proj_out.weight", "BF16", [64, d]), ("proj_out.bias", "BF16", [64])]
    plain = [name for name, _, _ in tensors if name.endswith(".bias") or name == "proj_out.weight"]
    config = {"_class_name": "FluxTransformer2DModel", "_diffusers_version": "0.42.1", "attention_head_dim": 32, "num_attention_heads": 6, "num_layers": 1, **bnb_config(nested=False)}
    return config, tensors, modules, {"plain": plain}


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "fixtures" / "quantized"
    for name in CASES:
        write(folder, build(name))
    for name in WHOLE:
        write(folder, whole_case(name))
    print(f"{len(CASES) + len(WHOLE)} fixtures in {folder}")


if __name__ == "__main__":
    main()
