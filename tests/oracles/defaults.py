#!/usr/bin/env python3
"""Writes `architectures/defaults.txt`: what the configuration classes of transformers make of a key that is missing.

    tests/oracles/defaults.py LAYOUTS TABLE [MODEL_TYPE ...]

For each key in the formulas of a layout (`LAYOUTS` is the text of `architectures/layouts.txt`), the class is built without the key,
and once with each other key changed. A key that follows another one has the formula that holds for all of them, or the
other name that the class has for it. A constant is written only for the length of a list and for keys that turn biases on: the
other ones would be many. No model is built.
"""

import collections
import itertools
import os
import pathlib
import re
import sys
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")

HEADER = """\
# What the configuration classes of transformers {version} make of missing keys. Written by tests/oracles/defaults.py.
#
#   defaults NAMES               the keys of architectures
#   KEY = FORMULA                the value of a key that is missing
#
# `architectures/architecture.rs` explains formulas."""

NAMES = {"$layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"), "$heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
         "$hidden": ("hidden_size", "n_embd", "d_model", "n_embed", "emb_dim", "embed_dim")}
FUNCTIONS = {"has", "len", "in", "layer", "min", "count", "is", "starts"}
# Texts that configurations choose by, besides those in the source of the class.
ACTIVATIONS = ("relu", "gelu", "silu", "gelu_new", "gated-gelu", "gated-silu", "gated-relu")


def blocks(text):
    """Yields each architecture with the formulas of its layout, its blocks and the layout it is like: all, and those of lengths."""
    bodies, names = {}, None
    for line in text.splitlines():
        if line.startswith(("block ", "architecture ", "exceptions ")):
            names = line.split(" ", 1)[1]
            bodies[names] = []
        elif line.startswith("  "):
            bodies[names].append(line)
    by_name = {name: body for names, body in bodies.items() for name in names.split(", ")}

    def formulas(name, seen=()):
        for line in by_name[name]:
            for sides, length, condition in re.findall(r"\[([^\]]*)\]|count (\S+)|if (\S+)", line):
                yield sides or length or condition, bool(length)
            for other in re.findall(r"\s(?:like|as) (\S+)$", line):
                if other not in seen:
                    yield from formulas(other, (*seen, other))

    for names in bodies:
        if names not in ("",):
            for name in names.split(", "):
                found = list(formulas(name))
                yield name, [formula for formula, _ in found], [formula for formula, is_length in found if is_length]


def keys_in(formula):
    """Returns the keys of a formula that are numbers."""
    found = set()
    for name in re.findall(r"[A-Za-z$_][\w$]*(?:\.[A-Za-z_]\w*)*", re.sub(r"len\([\w.]+\)", "", formula)):
        found |= set(NAMES.get(name, (name,))) if name not in FUNCTIONS and name != "_" else set()
    return {key for key in found if "." not in key and not key.startswith("$")}


def value_of(config, key):
    value = getattr(config, key, None)
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, int) and 0 <= value < 10**12 else None


def changes(default, texts):
    if isinstance(default, bool):
        return (not default,)
    if isinstance(default, int) and default > 0:
        return (2 * default, 3 * default)
    if isinstance(default, str):
        return (default + default, *(text for text in texts if text != default))
    if isinstance(default, (list, tuple)) and default:
        return ([*default, default[-1]], list(default[:-1]))
    return ()


def derive(kind, keys, lengths):
    """Returns the formulas of keys that are missing, with the constants of those in `lengths`."""
    default = kind()
    source = pathlib.Path(sys.modules[kind.__module__].__file__).read_text()
    texts = (*ACTIVATIONS, *sorted(set(re.findall(r"\"([a-z][\w-]{2,24})\"", source)))[:40])
    stated = {key: value for key, value in default.to_dict().items() if not isinstance(value, dict) and not key.startswith("_")}
    # The instances in which one key is changed, with the values of the keys that were not given.
    built = []
    for key, value in stated.items():
        for other in changes(value, texts):
            try:
                built.append((key, other, kind(**{key: other})))
            except Exception:
                continue
    found = {}
    # The other name of each key.
    alias = {name: key for key, name in (getattr(kind, "attribute_map", None) or {}).items()}
    for key in sorted(keys):
        usual = value_of(default, key)
                # Other names of keys need no value.
        if not hasattr(default, key) or key in alias.values():
            continue
        follows = collections.defaultdict(list)
        for other, value, config in built:
            if other not in (key, alias.get(key)) and value_of(config, key) != usual:
                follows[other].append((value, value_of(config, key)))
        formula = None
        if not follows and key in alias and alias[key] not in stated:
            formula = alias[key]
        elif 0 < len(follows) <= 2:
            formula = follow(default, built, key, usual, sorted(follows), stated)
        if not follows and key in lengths and key in stated and usual:
            formula = f"{formula}|{usual}" if formula else str(usual)
        if formula is None:
            continue
        found[key] = formula
    # Keys that turn biases on.
    found |= {key: str(int(value)) for key, value in stated.items() if "bias" in key and isinstance(value, bool) and key not in found}
    return found


def follow(default, built, key, usual, others, stated):
    """Returns the formula of a key that follows one or two other ones."""
    cases = [(default, usual), *((config, value_of(config, key)) for other, _, config in built if other in others)]
    if len(others) == 1 and isinstance(stated[others[0]], str):
        texts = {stated[others[0]]: usual, **{value: value_of(config, key) for other, value, config in built if other == others[0]}}
        if set(texts.values()) != {0, 1}:
            return None
        yes, no = [text for text, value in texts.items() if value], [text for text, value in texts.items() if not value]
        prefix = os.path.commonprefix(yes)
        text = None
        if len(yes) > 1 and prefix and not any(text.startswith(prefix) for text in no):
            text = f"starts({others[0]},{prefix})"
        elif len(yes) == 1:
            text = f"is({others[0]},{yes[0]})"
        return text and f"{text}|{usual}"
    if any(not isinstance(stated[other], int) for other in others):
        lists = [other for other in others if isinstance(stated[other], (list, tuple))]
        is_length = len(others) == len(lists) == 1 and all(len(getattr(config, lists[0]) or ()) == value for config, value in cases)
        return f"len({lists[0]})|{usual}" if is_length and usual is not None else None
    candidates = list(others)
    candidates += [f"{factor}*{other}" for other in others for factor in (2, 3, 4)] + [f"{other}/{factor}" for other in others for factor in (2, 4)] + [f"{other}==0" for other in others]
    candidates += [f"{one}{sign}{other}" for one, other in itertools.permutations(others, 2) for sign in "/*+-"]
    # Instances with another number of heads may be invalid, so that nothing shows that a width follows them.
    heads = [key for key in NAMES["$heads"] if key in stated and not any(other == key for other, _, _ in built)]
    candidates += [f"{others[0]}/{other}" for other in heads] if len(others) == 1 else []
    for text in candidates:
        names = set(re.findall(r"[A-Za-z_]\w*", text))
        try:
            if all(int(eval(text.replace("/", "//"), {name: int(getattr(config, name)) for name in names})) == value for config, value in cases if value is not None) and all(value is not None for _, value in cases):
                return text
        except (TypeError, ZeroDivisionError, ValueError):
            continue
    return None


def main():
    import transformers
    from transformers import CONFIG_MAPPING

    layouts, target, *names = sys.argv[1:]
    found = collections.defaultdict(list)
    for name, formulas, lengths in blocks(pathlib.Path(layouts).read_text()):
        if name not in CONFIG_MAPPING or names and name not in names:
            continue
        keys, lengths = (set().union(*map(keys_in, found)) for found in (formulas, lengths))
        try:
            derived = derive(CONFIG_MAPPING[name], keys, lengths)
        except Exception as error:
            print(name, f"{type(error).__name__}: {error}"[:160], flush=True)
            continue
        if derived:
            found[tuple(sorted(derived.items()))].append(name)
    text = HEADER.format(version=transformers.__version__).splitlines()
    for items, of in sorted(found.items(), key=lambda item: min(item[1])):
        text += ["", f"defaults {', '.join(sorted(of))}", *(f"  {key} = {formula}" for key, formula in items)]
    pathlib.Path(target).write_text("\n".join(text) + "\n")
    print(sum(map(len, found.values())), "architectures", len(text), "lines", sum(map(len, text)), "bytes")


if __name__ == "__main__":
    main()
