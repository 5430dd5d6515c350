#!/usr/bin/env python3
"""Generates repositories that exercise the counting rules: headers without data, and configurations.

    generate.py FOLDER [COUNT, of each kind: 60] [SEED: 2]

Each repository is a folder with `model.safetensors` (or two shards and an index), `hub.json` with the sizes of
the complete files, and usually a `config.json`. A seed always generates the same repositories. For those under
`differs/`, a difference between the clients is known; `reason.txt` has the reason.
"""

import json
import random
import struct
import sys
from pathlib import Path

BITS = {
    "BOOL": 8, "F4": 4, "FP4": 4, "F6_E2M3": 6, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E8M0": 8, "E8M0": 8,
    "UE8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64,
}

MODULES = [
    "lm_head", "visual.patch_embed", "model.embed_tokens", "model.layers.0.self_attn.q_proj",
    "model.layers.0.mlp.down_proj", "model.layers.1.mlp.gate", "model.layers.1.mlp.experts.0.w1",
    "model.layers.1.mlp.experts.0.w3", "model.layers.1.mlp.experts.11.w2",
    "model.layers.1.mlp.shared_experts.w1", "model.layers.1.mlp.experts.gate_up_proj", "language_model.model.layers.2.mlp.up_proj",
]

SUFFIXES = [
    "weight", "weight", "weight", "bias", "qweight", "qzeros", "g_idx", "scales", "biases", "scale",
    "weight_packed", "weight_packed", "weight_scale", "weight_scale_inv", "weight_scale_2",
    "weight_global_scale", "weight_zero_point", "input_scale", "input_global_scale", "input_zero_point",
    "zero_point", "weight_shape", "weight_g_idx", "weight.absmax", "weight.quant_map",
    "weight.nested_absmax", "weight.nested_quant_map", "weight.quant_state.bitsandbytes__nf4",
    "weight_blocks", "weight_scales",
]

# The usual tensors of each kind, so that its rules meet tensors that they apply to.
FAVOURITES = {
    "gptq": (["qweight", "qzeros", "g_idx", "scales", "weight"], ["I32", "F16", "U8"]),
    "awq": (["qweight", "qzeros", "scales", "weight"], ["I32", "F16", "U8"]),
    "bitsandbytes": (["weight", "weight.absmax", "weight.quant_map", "weight.nested_absmax",
                      "weight.quant_state.bitsandbytes__nf4"], ["U8", "I8", "F32"]),
    "compressed-tensors": (["weight_packed", "weight_scale", "weight_shape", "weight_g_idx", "weight"],
                           ["I32", "U8", "I8", "I16", "BF16", "I64"]),
    "fp8": (["weight", "weight_scale_inv", "scale", "weight_scale"],
            ["F8_E4M3", "I8", "U8", "I32", "F32", "F8_E8M0"]),
    "mxfp4": (["weight_blocks", "weight_scales", "weight", "bias"], ["U8", "BF16"]),
    "mlx": (["weight", "scales", "biases", "bias"], ["U32", "BF16", "U8"]),
    "other": (["weight", "qweight", "weight_scale", "scales"], ["U8", "I32", "F8_E8M0", "BF16"]),
    "none": (["weight", "bias", "scales", "weight_scale"], ["BF16", "F4", "U8", "F8_E8M0"]),
}

# Patterns of modules, plain, with wildcards, and as expressions of which some are beyond the subset.
NAMES = ["lm_head", "visual", "self_attn", "mlp.gate", "experts", "", "model.layers.1.*", "*down_proj*"]
TARGETS = [
    "Linear", "lm_head", "model.layers.0.self_attn.q_proj", "re:.*self_attn.*", "re:.*down_proj$",
    r"re:model\.layers\.1.*", "re:^visual", r"re:.*mlp\.(gate|up)_proj.*", "re:.*experts.*w[12]", "re:",
]


def some(rng, choices, most):
    return [rng.choice(choices) for _ in range(rng.randint(0, most))]


def tensors(rng, kind):
    found = {}
    suffixes, dtypes = FAVOURITES[kind]
    for _ in range(rng.randint(3, 24)):
        is_usual = rng.random() < 0.7
        suffix = rng.choice(suffixes if is_usual else SUFFIXES)
        dtype = rng.choice(dtypes if is_usual else list(BITS))
        shape = [rng.choice([1, 2, 3, 5, 7, 16, 48]) for _ in range(rng.randint(1, 3))] + [8]
        shape = rng.choices([shape, [], [0, 3], [8]], [20, 1, 1, 2])[0]
        if not shape and BITS[dtype] < 8:
            shape = [8]
        found[f"{rng.choice(MODULES)}.{suffix}"] = (dtype, shape)
    if kind == "mlx":
        # Whole modules: one that is complete, one without zero points, one whose weight is elsewhere.
        for module, parts in [("a", "weight scales biases"), ("b.c", "weight scales"), ("d", "scales biases")]:
            for part in parts.split():
                found[f"{module}.{part}"] = ("U32" if part == "weight" else "BF16", [3, 8])
    return found


def mlx(rng):
    mode = rng.choice(["affine", "affine", "Affine", "mxfp4", "nvfp4", "mxfp8", "none", None, 1])
    config = {
        "bits": rng.choice([2, 3, 3, 4, 4, 5, 6, 6, 7, 8, None, "4"]),
        "group_size": rng.choice([16, 32, 64, 64, 128]),
    }
    if rng.random() < 0.7:
        config["mode"] = mode
    for module in some(rng, MODULES + ["a", "b.c"], 3):
        own = [False, True, {"bits": 8}, {"mode": "mxfp4"}, {"bits": 9}, {"group_size": 32}, {}]
        config[module] = rng.choice(own)
    return config


def compressed_tensors(rng):
    formats = ["pack-quantized", "pack-quantized", "mxfp4-pack-quantized", "NVFP4-pack-quantized",
               "int-quantized", "dense"]
    config = {"format": rng.choice(formats), "ignore": some(rng, TARGETS, 3)}
    groups = {}
    for number in range(rng.randint(0, 12)):
        group = {"targets": some(rng, TARGETS, 3)}
        if rng.random() < 0.8:
            group["weights"] = {"num_bits": rng.choice([2, 3, 3, 4, 4, 5, 6, 7, 8, 12, 12, 0, None])}
        if rng.random() < 0.3:
            group["format"] = rng.choice(formats)
        groups[f"group_{number}"] = group
    config["config_groups"] = groups if rng.random() < 0.9 else None
    return config


def quantization(rng, kind):
    config = {"quant_method": rng.choice([kind, kind, kind.upper()])}
    if kind in ("gptq", "awq"):
        config["bits"] = rng.choice([2, 3, 4, 4, 8, 32, 64, 0, -1, None])
    elif kind == "bitsandbytes":
        config[rng.choice(["load_in_4bit", "load_in_4bit", "load_in_8bit"])] = rng.choice([True, True, False])
    elif kind == "compressed-tensors":
        config |= compressed_tensors(rng)
    elif kind == "fp8":
        for key in ("expert_dtype", "store_dtype"):
            if rng.random() < 0.5:
                formats = ["fp4", "fp4", "mxfp4", "int4", "nf4", "int2", "int2", "fp8", "fp6", "", 4, {}, None]
                config[key] = rng.choice(formats)
    elif kind == "other":
        config["quant_method"] = rng.choice(["hqq", "auto-round", "modelopt", "torchao", None])
        config |= rng.choice([{"bits": 4}, {"load_in_4bit": True}, {"bits": 8}, {}])
    if rng.random() < 0.4:
        config["modules_to_not_convert"] = some(rng, NAMES, 3)
    return config


def configuration(rng, kind):
    if kind == "none":
        return rng.choice([None, {}, {"quantization_config": None}, {"text_config": {"model_type": "x"}}])
    inner = {}
    if kind == "mlx":
        keys = rng.choice([["quantization"], ["quantization_config"], ["quantization", "quantization_config"]])
        inner = dict.fromkeys(keys, mlx(rng))
        if rng.random() < 0.1:
            inner["quantization"] = {"quant_method": "gptq", "bits": 4}
    else:
        inner["quantization_config"] = quantization(rng, kind)
    outer = {"model_type": "x"}
    if rng.random() < 0.3:
        rng.choice([inner, outer])["expert_dtype"] = rng.choice(["fp4", "fp8", "int2", None])
    if rng.random() < 0.3:
        return outer | {"text_config": inner}
    return outer | inner


def write_weights(folder, name, found, sizes):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for tensor, (dtype, shape) in found.items():
        elements = 1
        for length in shape:
            elements *= length
        begin, end = end, end + elements * BITS[dtype] // 8
        header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    (folder / name).write_bytes(struct.pack("<Q", len(text)) + text)
    sizes[name] = 8 + len(text) + end


def write(folder, found, config, shards=1):
    folder.mkdir(parents=True)
    sizes = {}
    if shards == 1:
        write_weights(folder, "model.safetensors", found, sizes)
    else:
        names, weight_map = list(found), {}
        for number in range(shards):
            shard = f"model-{number + 1:05}-of-{shards:05}.safetensors"
            part = {name: found[name] for name in names[number::shards]}
            write_weights(folder, shard, part, sizes)
            weight_map |= dict.fromkeys(part, shard)
        index = {"metadata": {}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "hub.json").write_text(json.dumps({"sizes": sizes}))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))


def known_differences():
    weight = {"m.qweight": ("I32", [8])}
    yield "mask", "a mask in integers does not need the configuration: nobody packs a mask", {
        "h.0.attn.bias": ("U8", [1, 1, 8, 8]), "w": ("F16", [4])}, {
        "quantization_config": {"quant_method": "gptq", "bits": 4}}
    yield "position-ids", "position ids in integers are never packed, whatever the configuration says", {
        "m.weight_packed": ("I32", [8]), "embeddings.position_ids": ("I32", [1, 16])}, {
        "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized"}}
    yield "text-for-bits", "a width that is a string is ignored", weight, {
        "quantization_config": {"quant_method": "gptq", "bits": "8"}}
    yield "list-as-text", "huggingface.js fails on a list that is text", weight, {
        "quantization_config": {"quant_method": "gptq", "ignore": "lm_head"}}
    yield "number-in-list", "huggingface.js fails on a list that holds a number", weight, {
        "quantization_config": {"quant_method": "gptq", "modules_to_not_convert": [1]}}
    yield "text-as-config", "huggingface.js fails on a quantization that is text", weight, {
        "quantization_config": "gptq"}
    yield "fraction", "a width that is not a whole number is ignored", {"m.weight_packed": ("I32", [8])}, {
        "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",
                                "config_groups": {"g": {"weights": {"num_bits": 2.5}}}}}


def main(folder, count=60, seed=2):
    rng = random.Random(int(seed))
    for kind in FAVOURITES:
        for number in range(int(count)):
            found = tensors(rng, kind)
            shards = rng.choice([1, 1, 1, 2])
            write(folder / "generated" / f"{kind}-{number}", found, configuration(rng, kind), shards)
    for name, reason, found, config in known_differences():
        write(folder / "differs" / name, found, config)
        (folder / "differs" / name / "reason.txt").write_text(reason)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
