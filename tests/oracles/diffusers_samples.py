#!/usr/bin/env python3
"""Samples configurations of the model classes of `diffusers`, with the tensors that `save_pretrained` writes for each.

    tests/oracles/diffusers_samples.py FOLDER [CLASS ...]

Writes `FOLDER/diffusers:CLASS.json` unless it exists, in the form of `layout_samples.py`: the default configuration, one with
few layers (`small`), one with other numbers (`other`), `small` with each of its keys changed alone, with lists of another
length (`lists`), and with several keys changed (`several`). The texts that a key can have are those with which the code
compares it. The models are built on the meta device, so no weights exist.
"""

import collections
import inspect
import json
import multiprocessing
import os
import pathlib
import random
import re
import sys
import time
import warnings

from timm_models import without_initialization

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DIFFUSERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")

# The time for one class. A class that takes longer has a note in its file, and another run could have other samples. The slowest
# one takes a minute.
SECONDS = 1800
# The most samples with several changed keys.
SEVERAL = 6

LAYERS = re.compile(r"(^|_)(num_layers|num_single_layers|num_\w*layers|n_layers|depth|num_blocks|num_refiner_layers|layers)$")
SIZES = re.compile(r"(dim|channels|size|heads|hidden|features|width|length|embeds|rank)")


def classes():
    import diffusers
    from diffusers.models.modeling_utils import ModelMixin

    found = {}
    for name in dir(diffusers):
        kind = getattr(diffusers, name, None)
        if inspect.isclass(kind) and issubclass(kind, ModelMixin) and kind is not ModelMixin:
            found[kind.__name__] = kind
    return found


def defaults(kind):
    """Returns the keys of a class with their defaults."""
    found = {}
    for key, parameter in list(inspect.signature(kind.__init__).parameters.items())[1:]:
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            found[key] = None if parameter.default is parameter.empty else parameter.default
    return found


def texts(kind, key, value):
    """Returns the texts with which the code compares a key."""
    source = inspect.getsource(sys.modules[kind.__module__])
    found = set()
    for match in re.finditer(rf"\b{key}\b\s*(?:==|!=|in|not in)\s*(\"[^\"]+\"|'[^']+'|[\[(][^\])]*[\])])", source):
        found.update(re.findall(r"[\"']([^\"']+)[\"']", match[1]))
    found.update(re.findall(rf"\b{key}\s*:\s*(?:Optional\[)?(?:Literal)\[([^\]]*)\]", source) and re.findall(r"[\"']([^\"']+)[\"']", re.search(rf"\b{key}\s*:\s*(?:Optional\[)?(?:Literal)\[([^\]]*)\]", source)[1]))
    if "norm" in key:
        found |= {"rms_norm_across_heads", "rms_norm", "layer_norm"}
    return sorted(found - {value})[:6]


def other_values(kind, key, value):
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (value * 2, value + 1, value - 1) if value > 1 else (value + 1, 2)
    if isinstance(value, str):
        return (*texts(kind, key, value), None)
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, int) and not isinstance(item, bool) for item in value):
            single = [(*value[:at], 2 * value[at], *value[at + 1 :]) for at in range(min(len(value), 6))]
            return (tuple(2 * item for item in value), *single, tuple(value[1:]), tuple(value[:-1]), (*value, value[-1]), None)
        if value and all(isinstance(item, bool) for item in value):
            return (tuple(not item for item in value), (not value[0], *value[1:]), (*value[:-1], not value[-1]))
        if value and all(isinstance(item, str) for item in value):
            return (tuple(reversed(value)), tuple(value[1:]), tuple(value[:-1]))
        return ()
    if value is None:
        numbers = (64, 32, 2, 8) if SIZES.search(key) or LAYERS.search(key) else (2, 64)
        return (*texts(kind, key, value), *numbers, True)
    return ()


def required(kind):
    """Yields settings for the keys without a default."""
    yield {}
    parameters = list(inspect.signature(kind.__init__).parameters.items())[1:]
    is_missing = lambda parameter: parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    for is_chosen in (is_missing, lambda parameter: parameter.default is None or is_missing(parameter)):
        for number in (64, 8, 4):
            chosen = {}
            for key, parameter in parameters:
                note = str(parameter.annotation)
                if not is_chosen(parameter):
                    continue
                if re.search(r"tuple|list", note, re.I) and not re.match(r"(typing\.|Optional\[|Union\[)*int\b|<class 'int", note):
                    chosen[key] = (64, 128)
                elif "bool" in note:
                    chosen[key] = False
                elif "str" not in note and "float" not in note:
                    chosen[key] = 4 if re.search(r"head|layers", key) else number
            yield chosen


def other_lengths(found):
    """Yields the lists of about the same length with one entry less, at the start or at the end, and with one more."""
    lists = {key: value for key, value in found.items() if isinstance(value, (list, tuple)) and len(value) > 1}
    for length in sorted({len(value) for value in lists.values()}):
        for span in (0, 1):
            chosen = {key: tuple(value) for key, value in lists.items() if abs(len(value) - length) <= span}
            if span and all(len(value) == length for value in chosen.values()):
                continue
            yield {key: value[1:] for key, value in chosen.items()}
            yield {key: value[:-1] for key, value in chosen.items()}
            yield {key: (*value, value[-1]) for key, value in chosen.items()}


def small(kind, found):
    changed = {}
    for key, value in found.items():
        if isinstance(value, int) and not isinstance(value, bool) and LAYERS.search(key) and value > 3:
            changed[key] = 3
        if isinstance(value, (list, tuple)) and LAYERS.search(key) and all(isinstance(item, int) for item in value):
            changed[key] = tuple(min(item, 2) for item in value)
    return changed


def other(found, factor):
    changed = {}
    for key, value in found.items():
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if LAYERS.search(key):
            changed[key] = 4
        elif re.search(r"heads?$|num_attention_heads|joint_attention_dim|text_dim|ffn_dim|cross_attention_dim|caption|pooled|in_channels|latent", key) and value > 1:
            changed[key] = value * factor
    return changed


def plain(value):
    return json.loads(json.dumps(value, default=str))


def sample(kind, settings):
    import torch

    with torch.device("meta"):
        model = kind(**settings)
    config = {key: value for key, value in dict(model.config).items() if not key.startswith("_") and key != "quantization_config"}
    config = plain({**config, "_class_name": kind.__name__})
    tensors = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    buffers = sorted({name for name, _ in model.named_buffers()} & set(tensors))
    del model
    spare = list(getattr(kind, "_keys_to_ignore_on_load_unexpected", None) or [])
    return {"class": kind.__name__, "config": config, "tensors": tensors, "head": [], "buffers": buffers, "tied": {}, "spare": spare, "prefix": ""}


def run(job):
    folder, name = job
    target = pathlib.Path(folder) / f"diffusers:{name}.json"
    if target.exists():
        return name, None
    without_initialization()
    started, samples, reasons = time.time(), [], []
    kind = classes()[name]
    found = defaults(kind)

    def attempt(tag, settings):
        # Some classes add a list to their default.
        settings = {key: list(value) if isinstance(value, tuple) and isinstance(found.get(key), list) else value for key, value in settings.items()}
        try:
            made = sample(kind, settings)
        except Exception as error:
            reasons.append(f"{tag}: {type(error).__name__}: {error}"[:200].split("\n")[0])
            return None
        samples.append({"tag": tag, **made})
        return made

    default, given = None, {}
    for given in required(kind):
        default = attempt("default", given)
        if default:
            break
    found = {**found, **given}
    small_settings = {**given, **small(kind, found)}
    base = attempt("small", small_settings) if small_settings != given and default else None
    if base is None:
        base, small_settings = default, given
    works = collections.defaultdict(list)

    def change(tag, settings):
        done = attempt(tag, {**small_settings, **settings})
        if done and done["tensors"] == base["tensors"]:
            samples[-1] = {"tag": tag, "config": done["config"], "same": True}
        return done

    if base:
        for factor in (2, 3):
            if attempt("other", {**given, **other(found, factor)}):
                break
        for key, value in found.items():
            if time.time() - started > SECONDS:
                reasons.append("out of time")
                break
            if key.startswith("_"):
                continue
            value, made = small_settings.get(key, value), 0
            is_list = isinstance(value, (list, tuple))
            for changed in other_values(kind, key, value):
                if change(key, {key: changed}):
                    works[key].append(changed)
                    made += 1
                    if not is_list and made >= (1 if isinstance(changed, (bool, int)) and value is not None else 3):
                        break
        for lengths in other_lengths({**found, **small_settings}):
            if change("lists", lengths):
                works[json.dumps(lengths)].append(lengths)
        rng, made = random.Random(name), 0
        for _ in range(3 * SEVERAL):
            if made == SEVERAL or len(works) < 3 or time.time() - started > SECONDS:
                break
            settings = {}
            for key in rng.sample(sorted(works), min(len(works), rng.choice((2, 3, 3, 4)))):
                value = rng.choice(works[key])
                settings.update(value if isinstance(value, dict) else {key: value})
            made += change("several", settings) is not None
    target.write_text(json.dumps({"samples": samples, "reasons": reasons}))
    return name, f"{len(samples)} samples, {time.time() - started:.0f} s"


def main():
    folder, *names = sys.argv[1:]
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    names = names or sorted(classes())
    print(len(names), "classes", flush=True)
    with multiprocessing.get_context("spawn").Pool(int(os.environ.get("JOBS", 1)), maxtasksperchild=80) as pool:
        for name, note in pool.imap_unordered(run, [(folder, name) for name in names]):
            print(name, note, flush=True)


if __name__ == "__main__":
    main()
