#!/usr/bin/env python3
"""Writes `architectures/timm.txt`: the sizes of the models that timm builds.

    tests/oracles/timm_models.py FOLDER TABLE

Builds each architecture of timm on the meta device, and keeps its shapes in `FOLDER/NAME.json`, unless the file exists. timm
builds a model from the name of its architecture, so that the table has numbers in place of formulas. A second run writes the
same table.
"""

import collections
import functools
import inspect
import json
import math
import os
import pathlib
import re
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

HEADER = """\
# The sizes of the models that timm {version} builds. Written by tests/oracles/timm_models.py.
#
#   timm NAMES                        architectures with equal sizes
#   exact                             timm loads the names as they are stored. Otherwise, it can convert the names of other programs
#   pool NAME                         the way of pooling, on which modules depend
#   classifier MODULE ...             the modules with a row per class, which are not counted
#   first MODULE ...                  the modules with a column per channel, of which only the tensors are counted
#   PATH TENSORS ELEMENTS ROWS        the outermost modules. `PATH/N` is a list of N modules. ROWS is the sum of the first sides
#                                     of all matrices
#
# Not counted: the tensors that depend on the size and the channels of images, and buffers that timm does not need."""

# Tensors that depend on the size of images, or that some versions do not store.
IMAGE = re.compile(r"pos_embed|relative_position|rel_pos|rope|attn_mask|freqs|attention_bias|num_batches_tracked")


def without_initialization():
    """Initializing tensors on the meta device takes most of the time, and has no effect."""
    import torch

    skipped = lambda plain: lambda tensor, *rest, **named: tensor if tensor.is_meta else plain(tensor, *rest, **named)
    for name in dir(torch.nn.init):
        if name.endswith("_") and not name.startswith("_"):
            setattr(torch.nn.init, name, skipped(getattr(torch.nn.init, name)))
    for name in ("normal_", "uniform_", "fill_", "zero_", "erfinv_", "clamp_", "mul_", "add_", "copy_"):
        setattr(torch.Tensor, name, skipped(getattr(torch.Tensor, name)))


def sample(name):
    import timm
    import torch

    with torch.device("meta"):
        model = timm.create_model(name)
    pool = getattr(model, "global_pool", None)
    return {"classifier": model.pretrained_cfg.get("classifier"), "first_conv": model.pretrained_cfg.get("first_conv"), "pool": pool if isinstance(pool, str) else None,
            "tensors": {key: list(tensor.shape) for key, tensor in model.state_dict().items()}}


def several(value):
    return [value] if isinstance(value, str) else list(value or ())


def lines(data, is_exact):
    """Returns the lines of an architecture."""
    classifiers, first = several(data["classifier"]), several(data["first_conv"])
    parts = collections.defaultdict(lambda: [set(), 0, 0, 0])
    for name, shape in data["tensors"].items():
        module = name.rsplit(".", 1)[0]
        if module in classifiers or IMAGE.search(name):
            continue
        top, _, rest = name.partition(".")
        part = parts[top]
        number = rest.split(".")[0]
        part[0].add(int(number) if number.isdigit() else None)
        part[1] += 1
        if module not in first:
            part[2] += math.prod(shape)
            part[3] += shape[0] if len(shape) > 1 and shape[0] > 1 else 0
    found = ["exact"] * is_exact + [f"pool {data['pool']}"] * bool(data["pool"]) + ["classifier " + " ".join(classifiers)] * bool(classifiers) + ["first " + " ".join(first)] * bool(first)
    for top, (numbers, *sizes) in sorted(parts.items()):
        is_list = None not in numbers and numbers == set(range(len(numbers))) and len(numbers) > 1
        found.append(" ".join(map(str, [f"{top}/{len(numbers)}" if is_list else top, *sizes])))
    return tuple(found)


def main():
    folder, target = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    without_initialization()
    import timm
    from timm.models import _registry

    source = functools.cache(lambda module: inspect.getsource(sys.modules[module]))
    groups = collections.defaultdict(list)
    old = collections.defaultdict(list)
    for name, new in _registry._deprecated_models.items():
        old[(new or "").split(".")[0]].append(name)
    for name in sorted(timm.list_models()):
        path = folder / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(sample(name)))
        is_exact = "pretrained_filter_fn" not in source(timm.model_entrypoint(name).__module__)
        groups[lines(json.loads(path.read_text()), is_exact)] += [name, *old[name]]
    text = HEADER.format(version=timm.__version__).splitlines()
    for found, names in sorted(groups.items(), key=lambda item: item[1]):
        text += ["", f"timm {', '.join(names)}", *(f"  {line}" for line in found)]
    target.write_text("\n".join(text) + "\n")
    print(sum(map(len, groups.values())), "architectures,", len(groups), "sizes,", target.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
