#!/usr/bin/env python3
"""Writes `architectures/classes.txt`: the model classes of transformers, with the architecture that each implements.

    tests/oracles/classes.py TABLE

An `AutoModel` may build the class of another architecture, as `AutoModelForMaskGeneration` builds `Sam2Model` for
`sam2_video`.
"""

import collections
import importlib
import pathlib
import pkgutil
import sys

import transformers
from transformers.models.auto import modeling_auto


# The classes whose files have other names than those of the architecture (`layout_corrections.txt`).
OTHERS = {"DPRReader": "dpr_reader"}


def automatic():
    """Returns the first architecture of each class that an `AutoModel` builds."""
    found = {}
    for name, mapping in vars(modeling_auto).items():
        if name.startswith("MODEL_") and name.endswith("_MAPPING_NAMES"):
            for architecture, classes in mapping.items():
                for model in [classes] if isinstance(classes, str) else classes:
                    found.setdefault(model, architecture)
    return found


def own_classes():
    """Returns the classes with weights by their names."""
    found = {}
    for package in pkgutil.iter_modules(transformers.models.__path__):
        folder = pathlib.Path(transformers.models.__path__[0], package.name)
        for path in sorted(folder.glob("modeling_*.py")):
            try:
                module = importlib.import_module(f"transformers.models.{package.name}.{path.stem}")
            except ImportError as error:
                print(f"left out, because a package is missing: {path.stem}: {error}", file=sys.stderr)
                continue
            for name, value in vars(module).items():
                is_model = isinstance(value, type) and issubclass(value, transformers.PreTrainedModel) and value.__module__ == module.__name__
                if is_model and not name.lower().endswith("pretrainedmodel") and getattr(value, "config_class", None) is not None:
                    if getattr(value.config_class, "model_type", ""):
                        found[name] = value
    return found


def own():
    """Returns the architecture of the configuration of each class with weights."""
    return {name: value.config_class.model_type for name, value in own_classes().items()}


def main(table):
    by_architecture = collections.defaultdict(list)
    for name, architecture in sorted((automatic() | own() | OTHERS).items()):
        by_architecture[architecture].append(name)
    lines = [f"class {','.join(names)} {architecture}" for architecture, names in sorted(by_architecture.items())]
    head = f"# Written by tests/oracles/classes.py from transformers {transformers.__version__}: classes, and the architecture that each implements.\n"
    pathlib.Path(table).write_text(head + "\n".join(lines) + "\n")
    print(sum(map(len, by_architecture.values())), "classes of", len(lines), "architectures")


if __name__ == "__main__":
    main(sys.argv[1])
