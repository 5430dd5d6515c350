#!/usr/bin/env python3
"""Writes `fixtures/published`: names, shapes and configurations of checkpoints as their authors published them.

    tests/oracles/published.py FOLDER [NAME]

An entry has the keys that the published `config.json` states, the class whose weights are stored, and the habits of its
writer: old names of tensors, keys that the configuration of its time lacks, tied or dropped tensors, packed weights. The
class is built on the meta device, and the habits are applied to its tensors. No file is copied.

In the fixtures, `{0-11}` and `{a,b}` stand for several names.
"""

import collections
import json
import pathlib
import re
import sys

import torch
import transformers
from transformers.core_model_loading import revert_weight_conversion

from published_rules import CHECKPOINTS

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL"}


def build(entry):
    """Returns the tensors that transformers would save for a class and a configuration, and the names of linear layers."""
    cls = getattr(transformers, entry["stored"])
    config = cls.config_class(**json.loads(json.dumps(entry["config"])))
    with torch.device("meta"):
        model = cls(config)
    tensors = {name: tensor for name, tensor in model.state_dict().items() if name not in model.all_tied_weights_keys}
    linear = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    # Training programs store the names in memory.
    tensors = tensors if entry.get("in_memory") else revert_weight_conversion(model, tensors)
    floats = entry["dtype"]
    found = {name: (floats if tensor.is_floating_point() else DTYPES[tensor.dtype], list(tensor.shape)) for name, tensor in tensors.items()}
    return found, linear


def packed(module, shape, quantizer, bias):
    """Returns the tensors of a packed matrix of outputs and inputs."""
    rows, columns = shape
    method, bits, group = (quantizer + (None, None))[:3]
    up = lambda a, b: -(-a // b)
    if method == "gptq":
        return {"qweight": ("I32", [columns * bits // 32, rows]), "qzeros": ("I32", [columns // group, rows * bits // 32]), "scales": ("F16", [columns // group, rows]), "g_idx": ("I32", [columns])}
    if method == "awq":
        return {"qweight": ("I32", [columns, rows // 8]), "qzeros": ("I32", [columns // group, rows // 8]), "scales": ("F16", [columns // group, rows])}
    if method == "fp8":
        return {"weight": ("F8_E4M3", [rows, columns]), "weight_scale_inv": ("F32", [up(rows, 128), up(columns, 128)])}
    if method == "fp8-channel":
        return {"weight": ("F8_E4M3", [rows, columns]), "weight_scale": ("BF16", [rows, 1])}
    if method == "w4a16":
        return {"weight_packed": ("I32", [rows, columns // 8]), "weight_scale": ("BF16", [rows, columns // group]), "weight_shape": ("I64", [2])}
    if method == "nvfp4":
        return {"weight": ("U8", [rows, columns // 2]), "weight_scale": ("F8_E4M3", [rows, columns // 16]), "weight_scale_2": ("F32", []), "input_scale": ("F32", [])}
    if method == "mlx":
        return {"weight": ("U32", [rows, columns * bits // 32]), "scales": ("BF16", [rows, columns // group]), "biases": ("BF16", [rows, columns // group])}
    if method == "nf4":
        blocks = rows * columns // 64
        return {"weight": ("U8", [rows * columns // 2, 1]), "weight.absmax": ("U8", [blocks]), "weight.nested_absmax": ("F32", [up(blocks, 256)]), "weight.nested_quant_map": ("F32", [256]),
                "weight.quant_map": ("F32", [16]), "weight.quant_state.bitsandbytes__nf4": ("U8", [149])}
    if method == "int8":
        return {"weight": ("I8", [rows, columns]), "SCB": ("F32", [rows]), "weight_format": ("U8", [])}
    if method == "exl3":
        return {"trellis": ("I16", [columns // 16, rows // 16, 16 * bits]), "suh": ("F16", [columns]), "svh": ("F16", [rows])}
    if method == "hqq":
        return {"W_q": ("U8", [rows * columns // group // 2, group]), "scale": ("F16", [rows * columns // group, 1]), "zero": ("F16", [rows * columns // group, 1])}
    raise ValueError(method)


def quantize(tensors, linear, entry):
    quantizer = entry.get("quantizer")
    if not quantizer:
        return tensors
    found = {}
    for name, (dtype, shape) in tensors.items():
        module, _, last = name.rpartition(".")
        is_linear = module in linear or any(re.search(pattern, module) for pattern in entry.get("also_packed", ()))
        if last != "weight" or len(shape) != 2 or not is_linear or any(re.search(pattern, module) for pattern in entry.get("plain", ("lm_head",))):
            found[name] = (dtype, shape)
            continue
        own = next((other for pattern, other in entry.get("own", ()) if re.search(pattern, module)), quantizer)
        found.update({f"{module}.{part}": value for part, value in packed(module, shape, own, f"{module}.bias" in tensors).items()})
    return found


def write_habits(tensors, entry):
    """Applies the habits of a writer: patterns with their replacements, dropped and added tensors, and other shapes."""
    for pattern, replacement in entry.get("rename", ()):
        tensors = {re.sub(pattern, replacement, name): value for name, value in tensors.items()}
    tensors = {name: value for name, value in tensors.items() if not any(re.search(pattern, name) for pattern in entry.get("drop", ()))}
    # The halves of stacks of matrices.
    for text, halves in entry.get("split", ()):
        for name, (dtype, (experts, rows, columns)) in [(name, value) for name, value in tensors.items() if text in name]:
            del tensors[name]
            tensors.update({name.replace(text, half): (dtype, [experts, rows // 2, columns]) for half in halves})
    for pattern, shape in entry.get("reshape", ()):
        tensors.update({name: (dtype, shape) for name, (dtype, _) in tensors.items() if re.search(pattern, name)})
    for name, value in entry.get("add", {}).items():
        dtype, shape = value
        for number in range(entry.get("layers", 1)) if "#" in name else [0]:
            tensors[name.replace("#", str(number))] = (dtype, shape)
    return tensors


def ranges(numbers):
    """Returns `0-3,7` for the numbers 0 to 3 and 7."""
    found = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def fold(tensors):
    """Returns lines of a dtype, a shape and names. Names that differ only in numbers are written once."""
    groups = collections.defaultdict(set)
    for name, (dtype, shape) in tensors.items():
        numbers = tuple(map(int, re.findall(r"(?<![^.])\d+(?![^.])", name)))
        groups[dtype, tuple(shape), re.sub(r"(?<![^.])\d+(?![^.])", "#", name)].add(numbers)
    lines = []
    for (dtype, shape, pattern), places in sorted(groups.items(), key=lambda item: (item[0][2], item[0])):
        rest = [places]
        while rest:
            part = rest.pop()
            sides = [set(column) for column in zip(*part)]
            product = 1
            for side in sides:
                product *= len(side)
            if product != len(part):
                at = max(range(len(sides)), key=lambda at: len(sides[at]))
                split = collections.defaultdict(set)
                for place in part:
                    split[frozenset(other[at] for other in part if other[:at] + other[at + 1 :] == place[:at] + place[at + 1 :])].add(place)
                if len(split) == 1:
                    split = collections.defaultdict(set)
                    for place in part:
                        split[place[0]].add(place)
                rest += split.values()
                continue
            name = pattern
            for side in sides:
                text = ranges(side)
                name = name.replace("#", text if len(side) == 1 else "{" + text + "}", 1)
            lines.append(f"{dtype} {','.join(map(str, shape)) or '-'} {name}")
    return lines


def main(folder, only=""):
    folder = pathlib.Path(folder)
    failed = 0
    for entry in CHECKPOINTS:
        if only not in entry["repo"]:
            continue
        try:
            tensors, linear = build(entry)
        except Exception as error:
            failed += 1
            print(f"{entry['repo']}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            continue
        tensors = write_habits(quantize(tensors, linear, entry), entry)
        head = {key: entry[key] for key in ("repo", "kinds", "file", "metadata", "files", "alias") if entry.get(key)}
        config = {**entry["config"], **entry.get("stated", {})}
        for key in entry.get("unstated", ()):
            config.pop(key, None)
        lines = [json.dumps(head), json.dumps(config), *fold(tensors)]
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", entry["repo"].replace("/", "--"))
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
        print(entry["repo"], len(tensors), flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
