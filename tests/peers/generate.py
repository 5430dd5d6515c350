#!/usr/bin/env python3
"""Generates repositories that exercise the counting rules: headers without data, and configurations.

    generate.py FOLDER [COUNT, of each kind: 60] [SEED: 2]

Each repository is a folder with `model.safetensors` (or two shards and an index), `hub.json` with the sizes of
the complete files, and usually a `config.json`. `truth.txt` has the number of parameters before quantization, and
`inexact.txt` the reason why a header may not show it. A seed
always generates the same repositories. Those under `quantized/` are the fixtures of that name. For those under
`differs/`, a difference between the clients is known; `reason.txt` has the reason.
"""

import json
import random
import struct
import sys
from pathlib import Path

BITS = {
    "BOOL": 8, "F4": 4, "FP4": 4, "F6_E2M3": 6, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E8M0": 8, "E8M0": 8,
    "F8_E5M2": 8, "U64": 64, "F64": 64, "UE8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64,
}

PLAIN_DTYPES = ["BF16", "F16", "F32", "U8", "F8_E8M0", "BOOL", "I64"]

MODULES = [
    "lm_head", "visual.patch_embed", "model.embed_tokens", "model.layers.0.self_attn.q_proj",
    "model.layers.0.mlp.down_proj", "model.layers.1.mlp.gate", "model.layers.1.mlp.experts.0.w1",
    "model.layers.1.mlp.experts.11.w2", "model.layers.1.mlp.experts.gate_up_proj", "language_model.model.layers.2.mlp.up_proj",
]

SUFFIXES = ["weight", "weight", "bias", "scales", "weight_scale", "A_log", "gamma"]


def plain_tensors(rng):
    """Tensors of a model that is not quantized, some with names that quantizers use."""
    found = {}
    for _ in range(rng.randint(3, 24)):
        dtype = rng.choice(PLAIN_DTYPES)
        shape = [rng.choice([1, 2, 3, 5, 7]) for _ in range(rng.randint(1, 3))] + [8]
        shape = rng.choices([shape, [], [0, 3], [8]], [20, 1, 1, 2])[0]
        if not shape and BITS[dtype] < 8:
            shape = [8]
        found[f"{rng.choice(MODULES)}.{rng.choice(SUFFIXES)}"] = (dtype, shape)
    return found


def module(rng, method):
    """The parts of a quantized matrix, its size, and the section of the configuration."""
    inputs, outputs, group = 128 * rng.randint(1, 40), 64 * rng.randint(1, 40), rng.choice([32, 64, 128])
    groups = inputs // group
    if method == "gptq":
        bits = rng.choice([2, 4, 8])
        return {"qweight": ("I32", [inputs * bits // 32, outputs]), "qzeros": ("I32", [groups, outputs * bits // 32]),
                "scales": ("F16", [groups, outputs]), "g_idx": ("I32", [inputs])}, inputs * outputs, {
            "quant_method": "gptq", "bits": bits, "group_size": group}
    if method == "awq":
        return {"qweight": ("I32", [inputs, outputs // 8]), "qzeros": ("I32", [groups, outputs // 8]),
                "scales": ("F16", [groups, outputs])}, inputs * outputs, {
            "quant_method": "awq", "bits": 4, "group_size": group}
    if method == "bitsandbytes":
        parts = {"weight": ("U8", [inputs * outputs // 2, 1]), "weight.absmax": ("F32", [inputs * outputs // 64]),
                 "weight.quant_map": ("F32", [16]), "weight.quant_state.bitsandbytes__nf4": ("U8", [70])}
        return parts, inputs * outputs, {"quant_method": "bitsandbytes", "load_in_4bit": True}
    if method == "compressed-tensors":
        bits = rng.choice([2, 4, 8])
        weights = {"num_bits": bits, "group_size": group}
        return {"weight_packed": ("I32", [outputs, inputs * bits // 32]), "weight_scale": ("BF16", [outputs, groups]),
                "weight_shape": ("I64", [2])}, inputs * outputs, {
            "quant_method": "compressed-tensors", "format": "pack-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}
    if method == "fp8":
        return {"weight": ("F8_E4M3", [outputs, inputs]), "weight_scale_inv": ("F32", [-(-outputs // 128), inputs // 128]),
                "input_scale": ("F32", [1])}, inputs * outputs, {"quant_method": "fp8"}
    if method == "mxfp4":
        return {"up_proj_blocks": ("U8", [4, outputs, inputs // 32, 16]), "up_proj_scales": ("U8", [4, outputs, inputs // 32]),
                "up_proj_bias": ("BF16", [4, outputs])}, 4 * inputs * outputs + 4 * outputs, {"quant_method": "mxfp4"}
    bits = rng.choice([2, 3, 4, 5, 6, 8])
    return {"weight": ("U32", [outputs, inputs * bits // 32]), "scales": ("BF16", [outputs, groups]),
            "biases": ("BF16", [outputs, groups])}, inputs * outputs, {"bits": bits, "group_size": group}


METHODS = ["gptq", "awq", "bitsandbytes", "compressed-tensors", "fp8", "mxfp4", "mlx"]


def quantized(rng, method):
    """A model with several quantized matrices and a few plain tensors: its tensors, its size, its configuration."""
    found, total, section = {"norm.weight": ("BF16", [64])}, 64, None
    state = rng.getstate()
    for name in rng.sample(MODULES, rng.randint(1, 6)):
        # One configuration is for all matrices, so each has the geometry of the first.
        rng.setstate(state)
        parts, size, section = module(rng, method)
        found |= {f"{name}.{part}": tensor for part, tensor in parts.items()}
        total += size
    key = "quantization" if method == "mlx" else "quantization_config"
    config = {"model_type": "x", key: section}
    return found, total, {"model_type": "x", "text_config": config} if rng.random() < 0.3 else config


def write_weights(folder, name, found, sizes, metadata=None):
    header, end = {"__metadata__": metadata or {"format": "pt"}}, 0
    for tensor, (dtype, shape) in found.items():
        elements = 1
        for length in shape:
            elements *= length
        begin, end = end, end + -(-elements * BITS[dtype] // 8)
        header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    (folder / name).write_bytes(struct.pack("<Q", len(text)) + text)
    sizes[name] = 8 + len(text) + end


def write(folder, found, config, shards=1, metadata=None):
    folder.mkdir(parents=True)
    sizes = {}
    if shards == 1:
        write_weights(folder, "model.safetensors", found, sizes, metadata)
    else:
        names, weight_map = list(found), {}
        for number in range(shards):
            shard = f"model-{number + 1:05}-of-{shards:05}.safetensors"
            part = {name: found[name] for name in names[number::shards]}
            write_weights(folder, shard, part, sizes, metadata)
            weight_map |= dict.fromkeys(part, shard)
        index = {"metadata": {}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "hub.json").write_text(json.dumps({"sizes": sizes}))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))


def known_differences():
    yield "mask", "a mask in integers does not need the configuration: nobody packs a mask", {
        "h.0.attn.bias": ("U8", [1, 1, 8, 8]), "w": ("F16", [4])}, {
        "quantization_config": {"quant_method": "gptq", "bits": 4}}
    yield "text-as-config", "huggingface.js fails on a quantization that is text", {"w": ("I32", [8])}, {
        "quantization_config": "gptq"}
    yield "scale-without-config", "scales show that a model is quantized, also without a configuration", {
        "m.weight": ("F8_E4M3", [8, 8]), "m.weight_scale": ("F32", [1])}, {}
    yield "ignored", "parts show that a module is packed, whatever a list of modules says", {
        "lm_head.qweight": ("I32", [8, 16]), "lm_head.qzeros": ("I32", [1, 2]), "lm_head.scales": ("F16", [1, 16])}, {
        "quantization_config": {"quant_method": "gptq", "bits": 4, "modules_to_not_convert": ["lm_head"]}}


def oracles(folder):
    """Writes the fixtures of known size as repositories."""
    for path in sorted(Path(__file__).parents[2].joinpath("fixtures/quantized").glob("*.json")):
        case = json.loads(path.read_text())
        shards = [shard for shard in [case.get("tensors"), *case.get("shards", [])] if shard]
        found = {t["name"]: (t["dtype"], t["shape"]) for shard in shards for t in shard}
        to = folder / path.stem
        write(to, found, case.get("config"), len(shards), case.get("metadata"))
        for name, content in case.get("files", {}).items():
            (to / name).write_text(json.dumps(content))
        (to / "truth.txt").write_text(str(case["true_parameters"]))
        if "inexact" in case:
            (to / "inexact.txt").write_text(case["inexact"])
        if "peers" in case:
            (to / "reason.txt").write_text(case["peers"])


def main(folder, count=60, seed=2):
    rng = random.Random(int(seed))
    for number in range(int(count)):
        write(folder / "generated" / f"plain-{number}", plain_tensors(rng), rng.choice([None, {}]), rng.choice([1, 2]))
    for method in METHODS:
        for number in range(int(count)):
            found, total, config = quantized(rng, method)
            to = folder / "generated" / f"{method}-{number}"
            write(to, found, config, rng.choice([1, 1, 1, 2]))
            (to / "truth.txt").write_text(str(total))
    oracles(folder / "quantized")
    for name, reason, found, config in known_differences():
        write(folder / "differs" / name, found, config)
        (folder / "differs" / name / "reason.txt").write_text(reason)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
