#!/usr/bin/env python3
"""Writes `architectures/left_out.txt`: the parts of an architecture that its other model classes do not have.

    tests/oracles/left_out.py FOLDER TABLE

The layout of an architecture is that of one class, such as `BlipForConditionalGeneration`. Every other class with weights is built
with the same small configuration, and the outermost paths that it lacks are written, or the path of the module that it is, as
`BartDecoder` is `decoder`. `FOLDER` keeps the result of each architecture and is read if it has it. A class that cannot be built has
no line, and nothing is known about it.
"""

import collections
import fnmatch
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

from classes import OTHERS, automatic, own, own_classes
from layout_blocks import parse
from layout_samples import classes, merged, sample, small_attempts
from layouts import Layout, corrections
from moe import ARCHITECTURES
from timm_models import without_initialization

HEADER = """\
# The parts of an architecture that a model class lacks, although the layout has them. Written by tests/oracles/left_out.py from the
# classes of transformers {version}. Parts of a class without a line are required.
#
#   lacks CLASSES PATH|PATH ...
#   inside CLASSES PATH          classes that are a module of the model, and store its names without the path
#   inside CLASSES *             classes with other names than the layout
#
# `EncoderModel` stands for the encoder alone, which sentence-transformers loads."""


# The vision tower alone. It is the first class of its architecture, so that no other class shows what it lacks.
TOWERS = ("CLIPForImageClassification", "MetaClip2ForImageClassification", "Siglip2ForImageClassification", "SiglipForImageClassification")


def build(model_class, config_class, settings):
    with torch.device("meta"):
        return model_class(config_class(**json.loads(json.dumps(settings))))


def tensors_of(model):
    """Returns the shapes of the tensors in the files of a class."""
    from transformers.core_model_loading import revert_weight_conversion

    saved = revert_weight_conversion(model, {**dict(model.named_parameters(remove_duplicate=False))})
    return {name: tuple(tensor.shape) for name, tensor in saved.items()}


def stored(model):
    return set(tensors_of(model))


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


def modules_in(names):
    """Returns the modules of tensors, with `#` in place of numbers."""
    return {re.sub(r"(?<=\.)\d+(?=\.|$)", "#", re.sub(r"\.(weight|bias)$", "", name)) for name in names}


def layout_of(name, config_class, first, settings):
    """Returns the modules of the layout, which the corrections change, with true for the required ones, and their shapes."""
    data = sample(config_class, first, settings)
    derived = Layout(name, {"samples": [{"tag": "small", **data}]})
    [(modules, _, optional)] = derived.found
    stripped = {derived.strip(module) for module in modules.keys() - optional}
    layout = {path: True for path in modules_in(stripped) if not path.startswith("^")}
    for path, text in corrections(name):
        if text == "none":
            layout = {other: is_required for other, is_required in layout.items() if not fnmatch.fnmatchcase(other, path)}
        elif re.fullmatch(r"[\w.#-]*[\w-]", path) and not text.startswith("?"):
            flags, group, *_ = parse(text)
            layout[path] = "-" not in flags and not group
    return layout, shapes_of({derived.strip(name): shape for name, shape in data["tensors"].items()})


def shapes_of(tensors):
    """Returns the shapes of modules in the layers of a list, without biases."""
    found = collections.defaultdict(set)
    for name, shape in tensors.items():
        if not name.endswith(".bias"):
            found[modules_in([name]).pop()].add(tuple(shape))
    return found


def has_kinds(model, model_class):
    """Returns whether a model has modules of a class with other names than each other, as an encoder and a decoder."""
    kinds = {frozenset(name for name, _ in module.named_parameters()) for module in model.modules() if type(module) is model_class}
    return len({frozenset(modules_in(kind)) for kind in kinds}) > 1


def part_of(layout, shapes, own):
    """Returns the path of the module that has the names and shapes of a class, or a star."""
    modules = own.keys()
    paths = collections.Counter(path[: dot.start()] for path in layout for dot in re.finditer(r"\.", path) if path[dot.end() :] in modules)
    for path, count in sorted(paths.items(), key=lambda item: (-item[1], item[0])):
        needed = {other.removeprefix(path + ".") for other, is_required in layout.items() if is_required and other.startswith(path + ".")}
        others = {module for module in modules if f"{path}.{module}" in shapes and shapes[f"{path}.{module}"] != own[module]}
        if needed <= modules and not others and 2 * count > len(modules) and not re.search(r"(^|\.)(\d+|#)(\.|$)", path):
            return path
    return "*"


def of_architecture(name, model_classes):
    """Returns the paths that each class of an architecture lacks, and the paths of the classes that are a part of it."""
    config_class, first = classes(name)
    if first is None:
        return {}
    extra = ARCHITECTURES.get(name)
    settings_of = [merged(settings, more) if more else settings for settings in small_attempts(config_class().to_dict()) for more in ({}, extra) if more is not None]
    for settings in settings_of:
        try:
            first_model = build(first, config_class, settings)
            names = stored(first_model)
            break
        except Exception:
            continue
    else:
        return {}
    prefix = f"{first_model.base_model_prefix}."
    inner = {name for name in names if name.startswith(prefix)}
    # Names outside of the base model are heads, which the layout knows as such.
    whole = {name.removeprefix(prefix) for name in inner or names}
    layout, shapes = layout_of(name, config_class, first, settings)
    found = {}
    roots = {path.split(".")[0] for path in layout.keys() | whole}
    for model_class in model_classes:
        if model_class is first:
            continue
        for other in [settings, *settings_of]:
            try:
                model = build(model_class, config_class, other)
                names = names_in(model)
                break
            except Exception as caught:
                error = caught
        else:
            print("  left out:", model_class.__name__, f"{type(error).__name__}: {error}"[:120].split("\n")[0], flush=True)
            continue
        paths = lacking(whole, names)
        # The corrections add the encoder to layouts of decoders.
        paths += sorted(roots - {path.split(".")[0] for path in whole | names | stored(model)})
        own = shapes_of(tensors_of(model))
        modules = own.keys() | modules_in(names)
        # One module may have a usual name, such as `norm`.
        is_moved = sum(path.partition(".")[2] in modules for path in layout if path.split(".")[0] in paths) > 1
        if len(paths) >= len(roots) and len(paths) > 1 or is_moved or not modules & layout.keys():
            found[model_class.__name__] = f"inside {'*' if has_kinds(first_model, model_class) else part_of(layout, shapes, own)}"
        else:
            found[model_class.__name__] = f"lacks {'|'.join(paths)}" if paths else ""
    return found


def main():
    folder, target = map(pathlib.Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    without_initialization()
    import transformers

    by_architecture, every = collections.defaultdict(list), own_classes()
    for name, architecture in sorted((automatic() | own()).items()):
        if name in every and name not in OTHERS:
            by_architecture[architecture].append(every[name])
    by_paths = collections.defaultdict(list, {"lacks decoder": ["EncoderModel"], "lacks text_model": [*TOWERS]})
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
                by_paths[paths].append(name)
    lines = [f"{kind} {','.join(sorted(names))} {path}" for (kind, path), names in sorted((paths.split(" ", 1), names) for paths, names in by_paths.items())]
    target.write_text("\n".join([*HEADER.format(version=transformers.__version__).splitlines(), *lines]) + "\n")
    print(sum(map(len, by_paths.values())), "classes,", len(lines), "lines")


if __name__ == "__main__":
    main()
