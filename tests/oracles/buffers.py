#!/usr/bin/env python3
"""Checks that `num_parameters()` of PyTorch can be derived from a count, for all architectures of `transformers`.

    tests/oracles/buffers.py FOLDER HF_META

FOLDER contains the checkpoints that `architectures.py` wrote. HF_META is the program. Then

    num_parameters = parameterTotal − bufferCount + scalars that are not buffers

must hold. The script prints the number of architectures that have buffers or scalars, the causes, and the architectures
for which the rule fails.
"""

import collections
import json
import math
import pathlib
import struct
import subprocess
import sys

# Architectures in which a kind of buffer is a parameter that is not trained.
FROZEN_PARAMETERS = {"afmoe": "router bias", "ernie4_5_moe": "router bias", "ernie4_5_vl_moe": "router bias", "laguna": "router bias", "sam": "fixed positions", "sam_hq": "fixed positions"}
# Architectures in which the bias of a router is a buffer. Others learn a tensor with this name.
ROUTER_BUFFERS = {"deepseek_v4", "inkling2", "inkling2_text", "inkling_mm_model"}


def header(path):
    """Returns the shapes of all tensors."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return {name: tensor["shape"] for name, tensor in json.loads(file.read(length)).items()}


def derive(model_type, count, tensors):
    """Returns the parameters of the PyTorch module that a count implies, and the kinds of buffers."""
    groups = count["breakdown"]["groups"]
    derived = count["parameterTotal"] - sum(count["bufferCount"].values())
    derived += sum(group["tensors"] for group in groups if group["reason"].startswith("scalar") and "buffer" not in group)
    causes = {group["buffer"] for group in groups if "buffer" in group}
    for name, shape in tensors.items():
        module, _, part = name.rpartition(".")
        # The weight and the bias of a frozen batch norm are buffers as large as its statistics.
        if part == "running_mean" and f"{module}.num_batches_tracked" not in tensors:
            derived -= 2 * math.prod(shape)
            causes.add("frozen batch norm")
        if part == "bias" and module.endswith(".gate") and model_type in ROUTER_BUFFERS:
            derived -= math.prod(shape)
            causes.add("router bias")
    if kind := FROZEN_PARAMETERS.get(model_type):
        derived += sum(group["parameters"] for group in groups if group.get("buffer") == kind)
    return derived, sorted(causes)


def main():
    folder, command = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    causes, differing, wrong = collections.Counter(), 0, []
    built = sorted(path.parent for path in folder.glob("*/num_parameters"))
    for checkpoint in built:
        count = json.loads(subprocess.run([command, checkpoint, "--json", "--summary"], check=True, capture_output=True).stdout)
        expected = int((checkpoint / "num_parameters").read_text())
        derived, kinds = derive(checkpoint.name, count, header(checkpoint / "model.safetensors"))
        if derived != expected:
            wrong.append(f"{checkpoint.name}: {derived}, not {expected}, with {', '.join(kinds) or 'no buffers'}")
        if count["parameterTotal"] != expected:
            differing += 1
            causes.update(kinds or ["scalar parameters"])
    print(f"{len(built)} architectures, {differing} differ from num_parameters()")
    for cause, number in causes.most_common():
        print(f"{number:5} {cause}")
    print("\n".join([f"{len(wrong)} cannot be derived:", *wrong]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
