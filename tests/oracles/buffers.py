#!/usr/bin/env python3
"""Checks that `num_parameters()` of PyTorch can be derived from a count, for all architectures of `transformers`.

    tests/oracles/buffers.py FOLDER HF_META [MODEL_TYPE ...]

`FOLDER` contains the checkpoints that `architectures.py` wrote, and `HF_META` is the program. For each of them,

    num_parameters = parameterTotal − bufferCount + scalars that are not buffers

must hold. The script prints the number of architectures that have buffers or scalars, the causes, and the architectures
for which the rule fails.
"""

import collections
import json
import math
import pathlib
import subprocess
import sys

# Architectures in which a kind of buffer is a parameter that is not trained.
FROZEN_PARAMETERS = {"ernie4_5_moe": "router bias", "ernie4_5_vl_moe": "router bias", "laguna": "router bias", "sam": "fixed positions", "sam_hq": "fixed positions"}


def shapes(path):
    """Returns the shapes of the tensors in a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: tensor["shape"] for name, tensor in header.items()}


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
    if kind := FROZEN_PARAMETERS.get(model_type):
        derived += sum(group["parameters"] for group in groups if group.get("buffer") == kind)
    return derived, sorted(causes)


def main():
    folder, command = pathlib.Path(sys.argv[1]), sys.argv[2]
    causes, differing, wrong = collections.Counter(), 0, []
    checkpoints = sorted(path.parent for path in folder.glob("*/sizes.json") if path.parent.name in (sys.argv[3:] or [path.parent.name]))
    for checkpoint in checkpoints:
        count = json.loads(subprocess.run([command, str(checkpoint), "--json", "--summary"], check=True, capture_output=True).stdout)
        expected = json.loads((checkpoint / "sizes.json").read_text())["num_parameters"]
        derived, kinds = derive(checkpoint.name, count, shapes(checkpoint / "model.safetensors"))
        if derived != expected:
            wrong.append(f"{checkpoint.name}: {derived}, not {expected}, with {', '.join(kinds) or 'no buffers'}")
        if count["parameterTotal"] != expected:
            differing += 1
            causes.update(kinds or ["scalar parameters"])
    print(f"{len(checkpoints)} architectures, {differing} differ from num_parameters()")
    for cause, number in causes.most_common():
        print(f"{number:5} {cause}")
    print("\n".join([f"{len(wrong)} cannot be derived:", *wrong]))
    sys.exit(bool(wrong or not checkpoints))


if __name__ == "__main__":
    main()
