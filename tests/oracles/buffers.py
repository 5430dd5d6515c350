#!/usr/bin/env python3
"""Checks that `num_parameters()` of PyTorch can be derived from a count, for all architectures of `transformers`.

    tests/oracles/buffers.py HF_META FOLDER [MODEL_TYPE…]

Each architecture is built on the meta device from its default configuration. FOLDER receives a file with its header and
no data, which the command HF_META counts. Then

    num_parameters = parameterTotal − bufferCount + scalars that are not buffers

must hold. The script prints the number of architectures that have buffers or scalars, the causes, and the architectures
for which the rule fails.
"""

import collections
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")

DTYPES = {"bfloat16": "BF16", "float32": "F32", "float16": "F16", "float64": "F64", "int64": "I64", "int32": "I32", "bool": "BOOL", "uint8": "U8"}
SIZES = {"BF16": 2, "F32": 4, "F16": 2, "F64": 8, "I64": 8, "I32": 4, "BOOL": 1, "U8": 1}

# Architectures in which a kind of buffer is a parameter that is not trained.
FROZEN_PARAMETERS = {"ernie4_5_moe": "router bias", "ernie4_5_vl_moe": "router bias", "laguna": "router bias", "sam": "fixed positions", "sam_hq": "fixed positions"}


def build(model_type):
    """Returns an architecture on the meta device; `None` if no class loads it."""
    import torch
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto as auto

    kind = CONFIG_MAPPING[model_type]
    names = ["MODEL_FOR_PRETRAINING_MAPPING", *(name for name in dir(auto) if re.fullmatch("MODEL_.*MAPPING", name))]
    classes = [getattr(auto, name)[kind] for name in names if kind in getattr(auto, name)]
    if not classes:
        return None
    model_class = classes[0][0] if isinstance(classes[0], (tuple, list)) else classes[0]
    with torch.device("meta"):
        return model_class(kind())


def write(path, tensors):
    """Writes a safetensors file whose data is a hole."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        dtype, shape = DTYPES[str(tensor.dtype).removeprefix("torch.")], list(tensor.shape)
        start, end = end, end + math.prod(shape) * SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def derive(model_type, count, tensors):
    """Returns the parameters of the PyTorch module that a count implies, and the kinds of buffers."""
    groups = count["breakdown"]["groups"]
    derived = count["parameterTotal"] - sum(count["bufferCount"].values())
    derived += sum(group["tensors"] for group in groups if group["reason"].startswith("scalar") and "buffer" not in group)
    causes = {group["buffer"] for group in groups if "buffer" in group}
    for name, tensor in tensors.items():
        module, _, part = name.rpartition(".")
        # The weight and the bias of a frozen batch norm are buffers as large as its statistics.
        if part == "running_mean" and f"{module}.num_batches_tracked" not in tensors:
            derived -= 2 * tensor.numel()
            causes.add("frozen batch norm")
    if kind := FROZEN_PARAMETERS.get(model_type):
        derived += sum(group["parameters"] for group in groups if group.get("buffer") == kind)
    return derived, sorted(causes)


def main():
    command, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    import transformers

    transformers.logging.set_verbosity_error()
    folder.mkdir(parents=True, exist_ok=True)
    causes, built, differing, wrong, failed = collections.Counter(), 0, 0, [], []
    for model_type in sys.argv[3:] or transformers.CONFIG_MAPPING:
        try:
            model = build(model_type)
        except Exception as error:
            failed.append(f"{model_type} ({type(error).__name__})")
            continue
        if model is None:
            continue
        built += 1
        stored = set(model.state_dict())
        tensors = {name: tensor for name, tensor in [*model.named_parameters(), *model.named_buffers()] if name in stored}
        path = folder / f"{model_type}.safetensors"
        write(path, tensors)
        count = json.loads(subprocess.run([command, path, "--json", "--summary"], check=True, capture_output=True).stdout)
        path.unlink()
        expected, (derived, kinds) = model.num_parameters(), derive(model_type, count, tensors)
        if derived != expected:
            wrong.append(f"{model_type}: {derived}, not {expected}, with {', '.join(kinds) or 'no buffers'}")
        if count["parameterTotal"] != expected:
            differing += 1
            causes.update(kinds or ["scalar parameters"])
    print(f"{built} architectures of transformers {transformers.__version__} built, {differing} differ from num_parameters()")
    for cause, number in causes.most_common():
        print(f"{number:5} {cause}")
    print("\n".join([f"{len(wrong)} cannot be derived:", *wrong]))
    print(f"{len(failed)} not built: {', '.join(failed)}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
