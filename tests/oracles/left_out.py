#!/usr/bin/env python3
"""Writes `architectures/left_out.txt`: the parts of an architecture that its other model classes do not have.

    tests/oracles/left_out.py FOLDER TABLE

The layout of an architecture is that of one class, such as `BlipForConditionalGeneration`. Every other class with weights is built
with the same small configuration, and the outermost paths that it lacks are written. `FOLDER` keeps the result of each architecture
and is read if it has it. A class that cannot be built has no line, and nothing is known about it.
"""

import collections
import json
import os
import pathlib
import re
import sys
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

import torch

from classes import automatic, own
from layout_samples import classes, merged, small_attempts
from moe import ARCHITECTURES
from timm_models import without_initialization

HEADER = """\
# The parts of an architecture that a model class lacks, although the layout has them. Written by tests/oracles/left_out.py from the
# classes of transformers {version}. Parts of a class without a line are required.
#
#   lacks CLASSES PATH|PATH ...
#
# `EncoderModel` stands for the encoder alone, which sentence-transformers loads."""

# Classes with weights that a program loads, and not their parts.
LOADED = re.compile(r"(For[A-Z]\w*|Model|Backbone|WithProjection|LMHeadModel|EncoderModel)$")


# The vision tower alone. It is the first class of its architecture, so that no other class shows what it lacks.
TOWERS = ("CLIPForImageClassification", "MetaClip2ForImageClassification", "Siglip2ForImageClassification", "SiglipForImageClassification")


def build(model_class, config_class, settings):
    with torch.device("meta"):
        return model_class(config_class(**json.loads(json.dumps(settings))))


def stored(model):
    from transformers.core_model_loading import revert_weight_conversion

    return set(revert_weight_conversion(model, {**dict(model.named_parameters(remove_duplicate=False))}))


def names_in(model):
    """Returns the names of the base model in the files of a class, with those of its heads as they are."""
    prefix = f"{model.base_model_prefix}."
    return {name.removeprefix(prefix) for name in stored(model)}


def lacking(whole, names):
    """Returns the shortest paths of at most two segments that some names have and others do not."""
    has = lambda names, path: any(name == path or name.startswith(path + ".") for name in names)
    found = []
    for depth in (1, 2):
        for path in sorted({".".join(name.split(".")[:depth]) for name in whole if name.count(".") >= depth}):
            is_inside = any(path.startswith(outer + ".") for outer in found)
            if not is_inside and not re.search(r"\.\d+$", path) and not has(names, path):
                found.append(path)
    return found


def of_architecture(name, model_classes):
    """Returns the paths that each class of an architecture lacks."""
    config_class, first = classes(name)
    if first is None:
        return {}
    extra = ARCHITECTURES.get(name)
    settings_of = [merged(settings, more) if more else settings for settings in small_attempts(config_class().to_dict()) for more in ({}, extra) if more is not None]
    for settings in settings_of:
        try:
            layout = build(first, config_class, settings)
            break
        except Exception:
            continue
    else:
        return {}
    prefix = f"{layout.base_model_prefix}."
    names = stored(layout)
    inner = {name for name in names if name.startswith(prefix)}
    # Names outside of the base model are heads, which the layout knows as such.
    whole = {name.removeprefix(prefix) for name in inner or names}
    found = {}
    for model_class in model_classes:
        if model_class is first:
            continue
        try:
            names = names_in(build(model_class, config_class, settings))
        except Exception as error:
            print("  left out:", model_class.__name__, f"{type(error).__name__}: {error}"[:120].split("\n")[0], flush=True)
            continue
        paths = lacking(whole, names)
        # A class with other names lacks all parts, and nothing can be said about it.
        if len(paths) < len({name.split(".")[0] for name in whole}) or len(paths) == 1:
            found[model_class.__name__] = paths
    return found


def main():
    folder, target = map(pathlib.Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    without_initialization()
    import transformers

    by_architecture = collections.defaultdict(list)
    for name, architecture in sorted((automatic() | own()).items()):
        model_class = getattr(transformers, name, None)
        if model_class is not None and LOADED.search(name):
            by_architecture[architecture].append(model_class)
    by_paths = collections.defaultdict(list, {"decoder": ["EncoderModel"], "text_model": [*TOWERS]})
    for architecture, model_classes in sorted(by_architecture.items()):
        path = folder / f"{architecture.replace('/', '_')}.json"
        if not path.exists():
            try:
                found = of_architecture(architecture, model_classes)
            except Exception as error:
                print("failed:", architecture, f"{type(error).__name__}: {error}"[:160].split("\n")[0], flush=True)
                found = {}
            path.write_text(json.dumps(found))
        for name, paths in json.loads(path.read_text()).items():
            if paths:
                by_paths["|".join(paths)].append(name)
    lines = [f"lacks {','.join(sorted(names))} {paths}" for paths, names in sorted(by_paths.items())]
    target.write_text("\n".join([*HEADER.format(version=transformers.__version__).splitlines(), *lines]) + "\n")
    print(sum(map(len, by_paths.values())), "classes,", len(lines), "lines")


if __name__ == "__main__":
    main()
