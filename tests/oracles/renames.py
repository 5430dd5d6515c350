#!/usr/bin/env python3
"""Writes `architectures/renames.txt`: what the loader of transformers does to the names of a checkpoint before it compares them.

    tests/oracles/renames.py TABLE [MODEL_TYPE ...]

Each architecture is built on the meta device, and the rules of `conversion_mapping.py` for it and for its nested models are
written in their order, with the keys that its class does not miss. Converters that merge or split tensors change no names
of modules that are compared as they are stored, so they are left out. A look-around, which the matcher does not know,
becomes a guard. The program fails if it cannot translate one.
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

from layout_samples import classes, merged, small_attempts
from moe import ARCHITECTURES

# Architectures whose names in memory the comparison does not find by the rules.
RENAMED = ("inkling2", "kimi_k25", "mask2former", "maskformer", "mistral_large4", "oneformer", "videomae")

HEADER = """\
# What the loader of transformers {version} does to the names of tensors before it compares them with the model, in this order.
# Written by tests/oracles/renames.py from `conversion_mapping.py` and the model classes.
#
#   loader NAMES                 the rules for types of models, or for classes. `loader legacy` is applied last, to all
#   TEXT -> TEXT                 the first text becomes the second one. `^` is the start of a name
#   /REGEX/ -> TEXT              the same for a regular expression, with `\\1` for its first group
#   ... not after, not before    regular expressions that must not match before and after the place
#   ... in PATH                  only below this path, or this path without its first segment or after the base prefix
#   nested PATH KEY              the rules for the type of the nested model `KEY`, below a path
#   spare REGEX                  a tensor that may be missing
#   memory PATH                  the end of a name, with `#` for numbers, that only a model in memory has. Training programs
#                                store such names, and the loader takes them as they are
#
# Names that end with a letter or digit match whole words: `weight` does not match `weight_scale`."""


def plain(pattern):
    """Returns the text of a pattern without special characters; `None` if it has some."""
    text = re.sub(r"\\([.\-_])", r"\1", pattern)
    return text if re.fullmatch(r"\^?[\w.\-]+", text) and not re.search(r"\\", text) else None


def balanced(text, start):
    """Returns the end of the group that begins at a position."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if not depth:
            return at + 1
    raise ValueError(text)


def without_look_around(pattern, target):
    """Returns a pattern and a target without look-arounds, and what must not precede and follow a match."""
    after, before = [], []
    while pattern.startswith("(?<!"):
        end = balanced(pattern, 0)
        after.append(pattern[4 : end - 1])
        pattern = pattern[end:]
    # What an addition of a prefix adds: the whole name is the group.
    added = re.fullmatch(r"(\^.*?)\(\?:(\(\?!.*?\))\)\(\.\+\)", pattern)
    if added and target.endswith("\\1"):
        pattern, target = added[1] + added[2], target.removesuffix("\\1")
    at = pattern.find("(?!")
    if at >= 0:
        end = balanced(pattern, at)
        if end != len(pattern):
            raise ValueError(f"a look-around in {pattern}")
        before.append(pattern[at + 3 : end - 1])
        pattern = pattern[:at]
    if "(?" in pattern.replace("(?:", ""):
        raise ValueError(f"a look-around in {pattern}")
    return pattern, target, after, before


def rule(source, target):
    pattern, target, after, before = without_look_around(source.replace("*.", r".*\."), target)
    text = plain(pattern)
    if text is None:
        if re.search(r"[a-zA-Z0-9]$", source):
            pattern += r"\b"
        text = f"/{pattern}/"
    elif before and re.search(r"[a-zA-Z0-9]$", text):
        text = f"/{pattern}/"
    line = f"{text} -> {target or 'none'}"
    line += "".join(f" not after {text}" for text in after) + "".join(f" not before {text}" for text in before)
    assert " " not in source + target, source
    return line


def scope(transform):
    if transform.scope_prefix is None:
        return ""
    return f" in {transform.base_model_prefix}:{transform.scope_prefix}"


def lines(model, key_of):
    """Returns the rules for a model, in the order of the loader."""
    from transformers import conversion_mapping
    from transformers.core_model_loading import PrefixChange, WeightConverter, WeightRenaming

    found, nested = [], []
    for transform in conversion_mapping.get_model_conversion_mapping(model, add_legacy=False):
        path = transform.scope_prefix
        key = key_of.get(path) if path else None
        if key:
            line = f"nested {transform.base_model_prefix}:{path} {key}"
            if line not in nested:
                nested.append(line)
                found.append(line)
            continue
        if isinstance(transform, WeightConverter):
            if len(transform.source_patterns) == len(transform.target_patterns) == 1:
                found.append(rule(transform.source_patterns[0], transform.target_patterns[0]) + scope(transform))
            continue
        if type(transform) not in (WeightRenaming, PrefixChange):
            return None
        for source in sorted(transform.source_patterns, key=lambda source: -len(source)):
            found.append(rule(source, transform.target_patterns[0]) + scope(transform))
    for path, key in key_of.items():
        line = f"nested {model.base_model_prefix}:{path} {key}"
        if line not in found:
            found.append(line)
    return found


def paths_of(model):
    """Returns the paths of nested models whose configuration is a nested one, with its key."""
    from transformers import PreTrainedModel, PreTrainedConfig

    configs = {id(value): key for key, value in vars(model.config).items() if isinstance(value, PreTrainedConfig)}
    found = {}
    for name, module in model.named_modules():
        if name and isinstance(module, PreTrainedModel) and id(module.config) in configs:
            path = name.removeprefix(model.base_model_prefix).removeprefix(".")
            if path and not any(path.startswith(other + ".") and found[other] == configs[id(module.config)] for other in found):
                found[path] = configs[id(module.config)]
    return found


def memory(model, name):
    """Returns the shortest ends of two names in memory that no saved tensor has: of the matrices that the loader makes of
    several ones, or the other way around. Experts have names in memory that the comparison knows."""
    from transformers import conversion_mapping
    from transformers.core_model_loading import MergeModulelist, WeightConverter, revert_weight_conversion

    targets = [re.sub(r"\\(\W)", r"\1", target).strip("^$") for transform in conversion_mapping.get_model_conversion_mapping(model, add_legacy=False)
               if isinstance(transform, WeightConverter) and len(transform.source_patterns) != len(transform.target_patterns) and not isinstance(transform.operations[0], MergeModulelist) for target in transform.target_patterns]
    if not targets and name not in RENAMED:
        return []
    state = dict(model.state_dict())
    fold = lambda names: {re.sub(r"(?<![^.])\d+(?![^.])", "#", name) for name in names}
    saved = fold(revert_weight_conversion(model, dict(state)))
    ends = {".".join(name.split(".")[-length:]) for name in saved for length in range(1, name.count(".") + 2)}

    def shortest(name):
        parts = name.split(".")
        tails = (".".join(parts[at:]) for at in reversed(range(len(parts))))
        return next((tail for tail in tails if tail not in ends), None)

    names = (found for found in fold(state) - saved if name in RENAMED or any(target in found for target in targets))
    found = set(map(shortest, names)) - {None}
    return [f"memory {end}" for end in sorted(found, key=lambda end: (end.count("."), end))[:2]]


def build(kind, model_class, name):
    import torch

    defaults = kind().to_dict()
    extra = ARCHITECTURES.get(name)
    for settings in small_attempts(defaults):
        for chosen in (settings, merged(settings, extra)) if extra else (settings,):
            try:
                config = kind(**json.loads(json.dumps(chosen)))
                with torch.device("meta"):
                    return model_class(config)
            except Exception as error:
                last = error
    raise last


def block(kind, model_class, name):
    model = build(kind, model_class, name)
    found = lines(model, paths_of(model))
    if found is None:
        return tuple(memory(model, name)) or None
    spare = [f"spare {plain(text) or f'/{text}/'}" for text in getattr(model, "_keys_to_ignore_on_load_missing", None) or []]
    return tuple([*found, *sorted(spare), *memory(model, name)])


def main():
    import transformers
    from transformers import CONFIG_MAPPING, conversion_mapping

    target, *names = sys.argv[1:]
    blocks, failed = collections.defaultdict(list), []
    known = set()
    for name in names or sorted(CONFIG_MAPPING.keys()):
        try:
            kind, model_class = classes(name)
            if model_class is None:
                continue
            found = block(kind, model_class, name)
            known.add(model_class.__name__)
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}"[:200])
            print(failed[-1], flush=True)
            continue
        if found:
            blocks[found].append(name)
    # Rules of other classes than those of the layouts.
    mapping = conversion_mapping._build_checkpoint_conversion_mapping()
    for name in sorted(mapping):
        model_class = getattr(transformers, name, None)
        if not name[0].isupper() or model_class is None or names:
            continue
        try:
            kind = model_class.config_class
            found = block(kind, model_class, kind.model_type)
        except Exception as error:
            print(name, f"{type(error).__name__}: {error}"[:200], flush=True)
            continue
        if found:
            blocks[found].append(name)
    text = HEADER.format(version=transformers.__version__).splitlines()
    legacy = [rule(source, transform.target_patterns[0]) for transform in mapping["legacy"] for source in sorted(transform.source_patterns, key=lambda source: -len(source))]
    for found, of in sorted([*((found, sorted(of)) for found, of in blocks.items()), (legacy, ["legacy"])], key=lambda item: item[1]):
        text += ["", f"loader {', '.join(of)}", *(f"  {line}" for line in found)]
    pathlib.Path(target).write_text("\n".join(text) + "\n")
    print(len(blocks), "blocks", len(text), "lines", len(failed), "failed")


if __name__ == "__main__":
    main()
