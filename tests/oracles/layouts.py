#!/usr/bin/env python3
"""Derives the modules in `tables/architectures.txt` from `transformers`, and checks that `hf-meta verify` finds nothing in sound checkpoints.

    tests/oracles/layouts.py build FOLDER [MODEL_TYPE ...]
    tests/oracles/layouts.py derive FOLDER TABLE
    tests/oracles/layouts.py check FOLDER HF_META

`build` writes three checkpoints of each architecture without weights, as `architectures.py` does: of the default size
(`default`), with other numbers (`small`), and with yet other numbers, a stated `head_dim` and inverted settings
(`other`). Of several sets of numbers, it takes the first one with which the model can be built. Then it changes each
key of `small` alone, and writes the checkpoints whose tensors differ (`keys`).

`derive` looks for a formula of each dimension of each module that holds in all checkpoints, with at least two
different values. A dimension without a formula is `_`. Architectures with fewer checkpoints, or without a single input
embedding, are left out.

`check` runs `HF_META verify` on all checkpoints that were written, and fails on an error or warning, or without any.
"""

import collections
import functools
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")

from architectures import PART, build, write
from fixture import ROOT
from moe import ARCHITECTURES

SAMPLES = ("default", "small", "other")


def numbers(hidden, heads, groups, intermediate, experts, layers, vocabulary, rest):
    """Returns the keys of sizes, by all names that architectures give to them."""
    names = {
        hidden: ("hidden_size", "n_embd", "d_model"),
        heads: ("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads", "decoder_attention_heads"),
        intermediate: ("intermediate_size", "ffn_dim", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff"),
        experts: ("num_experts", "num_local_experts", "n_routed_experts"),
        layers: ("num_hidden_layers", "n_layer", "num_layers"),
    }
    sizes = {key: value for value, keys in names.items() for key in keys}
    return {**sizes, "num_key_value_heads": groups, "vocab_size": vocabulary, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **rest}


LATENT = {"q_lora_rank": 48, "kv_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 20}
A = numbers(192, 6, 2, 320, 5, 3, 151, dict(moe_intermediate_size=56, first_k_dense_replace=1, shared_expert_intermediate_size=72))
B = numbers(256, 4, 2, 448, 6, 4, 173, dict(moe_intermediate_size=88, first_k_dense_replace=2, shared_expert_intermediate_size=104, n_shared_experts=2, num_shared_experts=2, type_vocab_size=3,
                                           q_lora_rank=56, kv_lora_rank=36, qk_rope_head_dim=12, qk_nope_head_dim=20, v_head_dim=28))
# Settings that have nothing to do with the modules of a language model.
KEPT = ("is_encoder_decoder", "is_decoder", "add_cross_attention", "return_dict", "use_cache", "torchscript", "output_", "cross_attention", "use_bfloat16", "tie_encoder_decoder", "chunk", "gradient", "norm_topk",
        "vision_use_head")


def change(defaults, sizes, inverts, states):
    """Returns the arguments that change the numbers of a configuration, also in its parts."""
    changed = {}
    for key, value in defaults.items():
        if isinstance(value, dict):
            if (key.endswith("_config") or key in ("encoder", "decoder")) and (part := change(value, sizes, inverts, states)):
                changed[key] = {**part, **({"model_type": value["model_type"]} if "model_type" in value else {})}
        elif isinstance(value, bool):
            if inverts and not key.startswith(KEPT):
                changed[key] = not value
        elif key in sizes and isinstance(value, int):
            changed[key] = sizes[key]
    # Some model classes read these keys although their configurations do not define them.
    if states and {"num_attention_heads", "n_head", "num_heads"} & set(defaults) and "vision" not in str(defaults.get("model_type")):
        changed = {"num_key_value_heads": sizes["num_key_value_heads"], **changed, "head_dim": sizes["head_dim"]}
    return changed


def attempts(sample):
    """Yields the numbers to try, whether to invert settings, and whether to state keys that are not defined."""
    if sample == "default":
        yield {}, False, False
    elif sample == "small":
        yield {**A, **LATENT, "head_dim": 40}, False, False
        yield A, False, False
        yield {**A, "num_key_value_heads": 6}, False, False
        yield {key: value for key, value in A.items() if re.search("layers|intermediate|experts", key)}, False, False
        yield {"num_hidden_layers": 3, "intermediate_size": 320}, False, False
    else:
        for states in (True, False):
            for inverts in (True, False):
                yield {**B, **({"head_dim": 72} if states else {})}, inverts, states


def prepare(folder):
    """Writes a checkpoint unless it exists."""
    from transformers import CONFIG_MAPPING

    if (folder / "total").exists() or (folder / "not-built").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    reasons = []
    for attempt in attempts(folder.parent.name):
        for extra in filter(lambda extra: extra is not None, ({}, ARCHITECTURES.get(folder.name))):
            try:
                settings = change(CONFIG_MAPPING[folder.name]().to_dict(), *attempt)
                for key, value in extra.items():
                    is_part = isinstance(value, dict) and isinstance(settings.get(key), dict)
                    settings[key] = {**settings[key], **value} if is_part else value
                if (model := build(folder.name, settings)) is not None:
                    write(folder, model)
                    return
                reasons.append(PART)
            except Exception as error:
                reasons.append(f"{type(error).__name__}: {error}"[:200].split("\n")[0])
    (folder / "not-built").write_text("\n".join(reasons))


def other_values(key, value):
    """Returns the values to try in place of a value of `small`."""
    if key.startswith(KEPT) or key.endswith(("_token_id", "_index", "_idx", "dtype")) or isinstance(value, (str, float)):
        return ()
    if value is None:
        return (52, 2) if re.search("inner|size|dim|heads|rank|layers|experts|inter", key) else ()
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (2 * value, value + 1, value - 1) if value > 1 else (value + 1,)
    if isinstance(value, list) and len(set(map(str, value))) > 1:
        return ([*value[1:], value[0]],)
    return ([1],) if value == [] else ()


def prepare_keys(folder):
    """Writes the checkpoints in which one key of `small` differs."""
    from transformers import CONFIG_MAPPING

    small = folder.parent.parent / "small" / folder.name
    if folder.exists() or not (small / "total").exists():
        return
    folder.mkdir(parents=True)
    config = json.loads((small / "config.json").read_text())
    known = set(CONFIG_MAPPING[folder.name]().to_dict()) - {"architectures", "model_type", "transformers_version"}
    _, _, stored = load(small)
    part = next((key for key in TEXT_MODELS if isinstance(config.get(key), dict)), None)
    keys = [*((None, key, value) for key, value in config.items() if key in known), *((part, key, value) for key, value in config.get(part, {}).items())]
    for inside, key, value in keys:
        for other in other_values(key, value):
            settings = {key: value for key, value in config.items() if key in known}
            settings.update({inside: {**config[inside], key: other}} if inside else {key: other})
            try:
                target = folder / key
                write(target, build(folder.name, settings))
                if load(target)[2] == stored:
                    shutil.rmtree(target)
                break
            except Exception:
                shutil.rmtree(target, ignore_errors=True)


# The keys of nested language models, as in `base/model_config.rs`, and the alternatives of names in `architectures.txt`.
TEXT_MODELS = ("text_config", "llm_config", "language_config", "thinker_config", "decoder")
NAMES = {"$layers": ("decoder_layers", "num_decoder_layers", "num_hidden_layers", "n_layer", "n_layers", "num_layers"), "$heads": ("decoder_attention_heads", "num_decoder_attention_heads", "num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
         "$hidden": ("hidden_size", "n_embd", "d_model", "n_embed", "emb_dim", "embed_dim")}
EMBEDDINGS = ("embed_tokens", "wte", "embeddings.word_embeddings", "word_embeddings", "embed_in", "tok_embeddings", "shared", "embeddings")
QUERIES, KEYS, BOTH = "$heads*head_dim", "num_key_value_heads*head_dim", "($heads+2*num_key_value_heads)*head_dim"
LINEAR_KEYS, LINEAR_VALUES = "linear_num_key_heads*linear_key_head_dim", "linear_num_value_heads*linear_value_head_dim"
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
# The first formula that holds wins.
FORMULAS = [
    ">vocab_size", *EXPERTS, "$hidden", "3*$hidden", "4*$hidden", "2*$hidden", QUERIES, f"2*{QUERIES}", KEYS, f"2*{KEYS}", BOTH, "head_dim", "intermediate_size", "2*intermediate_size", "ffn_dim", "n_inner",
    "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "ffn_hidden_size", "2*ffn_hidden_size", "moe_intermediate_size", "2*moe_intermediate_size", "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size", "n_shared_experts*moe_intermediate_size", "num_shared_experts*moe_intermediate_size", "moe_num_shared_experts*moe_intermediate_size",
    "moe_num_shared_experts*intermediate_size", "shared_intermediate_size", "2*shared_intermediate_size",
    "num_experts*moe_intermediate_size", "q_lora_rank", "kv_lora_rank", "kv_lora_rank+qk_rope_head_dim", "$heads*(qk_nope_head_dim+qk_rope_head_dim)", "$heads*(qk_nope_head_dim+v_head_dim)", "$heads*v_head_dim",
    "num_key_value_heads*v_head_dim", LINEAR_VALUES, LINEAR_KEYS, f"2*{LINEAR_KEYS}+{LINEAR_VALUES}", f"2*({LINEAR_KEYS}+{LINEAR_VALUES})", "linear_value_head_dim", "linear_num_value_heads",
    "2*linear_num_value_heads", "$heads", "d_kv*$heads", "word_embed_proj_dim", "embedding_size", "max_position_embeddings", "n_positions", "type_vocab_size", "mamba_expand*hidden_size", "2*mamba_expand*hidden_size",
    "index_n_heads*index_head_dim", "index_head_dim", "index_n_heads", "o_lora_rank",
]


class Missing(Exception):
    pass


def value(config, layer, name):
    """Returns the number that a name in a formula stands for, as `tables/architecture.rs` does."""
    if name in NAMES:
        key = next((key for key in NAMES[name] if config.get(key) is not None), None)
        return value(config, layer, key or "")
    found = config.get(name)
    if found is None and name == "num_key_value_heads":
        return value(config, layer, "$heads")
    if found is None and name == "head_dim":
        return value(config, layer, "$hidden") // value(config, layer, "$heads")
    if isinstance(found, list):
        found = found[layer] if layer is not None and layer < len(found) else None
    if isinstance(found, bool) or not isinstance(found, int):
        raise Missing(name)
    return found


@functools.cache
def code_of(formula):
    return compile(re.sub(r"[A-Za-z_$][\w$]*", lambda name: f"get({name[0]!r})", formula), formula, "eval")


def evaluate(formula, config, layer):
    try:
        return eval(code_of(formula), {"get": lambda name: value(config, layer, name)})
    except (Missing, ZeroDivisionError):
        return None


def pattern(name):
    """Returns a name with `#` in place of numbers, and the numbers."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "#", name), [int(part) for part in name.split(".") if part.isdigit()]


def load(folder):
    """Returns the architecture, the configuration of the language model, and the modules below it with their shapes."""
    model = json.loads((folder / "config.json").read_text())
    architecture = model.get("model_type")
    while (inner := next((model[key] for key in TEXT_MODELS if isinstance(model.get(key), dict)), None)) is not None:
        architecture, model = inner.get("model_type") or architecture, inner
    with open(folder / "model.safetensors", "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        tensors = json.loads(file.read(length))
    for embedding in EMBEDDINGS:
        prefixes = [name.removesuffix(f"{embedding}.weight") for name in tensors if f".{name}".endswith(f".{embedding}.weight")]
        if prefixes:
            break
    if len(prefixes) != 1:
        return architecture, model, {}
    modules = {}
    for name, tensor in tensors.items():
        module = name.removesuffix(".weight")
        is_head = module == "lm_head" or module.endswith(".lm_head")
        if name.endswith("bias") or not (is_head or name.startswith(prefixes[0])):
            continue
        modules["lm_head" if is_head else module.removeprefix(prefixes[0])] = tensor["shape"]
    return architecture, model, modules


def layout(samples):
    """Returns the modules of an architecture with the formulas that hold in all samples."""
    shapes, lists, found = collections.defaultdict(list), collections.defaultdict(list), {}
    for config, modules in samples:
        elements = collections.defaultdict(lambda: collections.defaultdict(set))
        for name, shape in modules.items():
            key, places = pattern(name)
            if key.count("#") > 2 or key.endswith("#"):
                continue
            shapes[key].append((config, places, shape))
            parts, ends = name.split("."), key.split(".")
            for at in (at for at, end in enumerate(ends) if end == "#"):
                elements[".".join(ends[: at + 1]), ".".join(parts[:at])][int(parts[at])].add(key)
        for (key, path), stored in elements.items():
            lists[key].append((config, pattern(path)[1], stored))
    for key, instances in lists.items():
        for formula in (*(("$layers", "encoder_layers", "num_layers") if key.count("#") == 1 else ()), *EXPERTS):
            lengths = [evaluate(formula, config, next(iter(places), None)) for config, places, _ in instances]
            fits = all(length is not None and set(stored) == set(range(length)) for length, (_, _, stored) in zip(lengths, instances))
            if fits and len(set(lengths)) > 1:
                found[key] = formula
                break
    for key, tensors in shapes.items():
        if len({len(shape) for _, _, shape in tensors}) != 1 or not tensors[0][2]:
            continue
        dimensions = []
        for at in range(len(tensors[0][2])):
            def holds(formula):
                values = set()
                for config, places, shape in tensors:
                    if evaluate(formula.lstrip(">"), config, next(iter(places), None)) != shape[at]:
                        return False
                    values.add(shape[at])
                return len(values) > 1

            dimensions.append(next(filter(holds, FORMULAS), "_"))
        if set(dimensions) != {"_"}:
            parent = key[: key.rfind("#") + 1]
            is_everywhere = len({id(config) for config, _, _ in lists[parent]}) == len(samples)
            is_required = parent in found and is_everywhere and all(key in modules for _, _, stored in lists[parent] for modules in stored.values())
            found[key] = "!" * is_required + ",".join(dimensions)
    embedding = next((name for name in EMBEDDINGS if ">vocab_size" in found.get(name, "")), None)
    has_list = any(key.endswith("#") for key in found)
    return {**found, "@": embedding} if embedding and has_list else None


def derive(folder, table):
    samples = collections.defaultdict(list)
    for sample in SAMPLES:
        for path in sorted(path for path in (folder / sample).iterdir() if (path / "total").exists()):
            architecture, config, modules = load(path)
            samples[architecture].append((config, modules))
    samples = {name: found for name, found in samples.items() if len(found) >= len(SAMPLES)}
    for path in sorted((folder / "keys").glob("*/*/total")):
        architecture, config, modules = load(path.parent)
        samples.get(architecture, []).append((config, modules))
    layouts = {name: layout(found) for name, found in samples.items() if all(modules for _, modules in found)}
    groups = collections.defaultdict(list)
    for name, found in sorted(layouts.items()):
        if found:
            groups[tuple(sorted(found.items()))].append(name)
    counts = collections.Counter(entry for entries, names in groups.items() for entry in entries for _ in names)
    # Two lines that others are based on, with the most frequent modules.
    bases = [(name, {key: text for (key, text), count in counts.most_common() if count >= least * sum(map(len, groups.values()))}) for name, least in (("decoder", 0.4), ("llama_like", 0.25))]
    lines, known = [], []
    for names, entries in [*bases, *((",".join(names), dict(entries)) for entries, names in sorted(groups.items(), key=lambda group: (len(group[0]), group[1])))]:
        fitting = [(name, base) for name, base in known if not set(base) - set(entries)]
        name, base = max(fitting, key=lambda known: len(known[1].items() & entries.items()), default=("", {}))
        own = [f"{key}={text}" for key, text in sorted(entries.items()) if base.get(key) != text]
        lines.append(" ".join(["modules", names, *([f"<{name}"] if base else []), *own]))
        known.append((names.split(",")[0], entries))
    pathlib.Path(table).write_text("\n".join(lines) + "\n")
    print(f"{sum(map(len, groups.values()))} architectures")


def check(folder, program):
    checkpoints = sorted(path.parent for path in folder.glob("**/total"))
    wrong = 0
    for path in checkpoints:
        done = subprocess.run([program, "verify", "--json", f"{path}/"], capture_output=True, text=True)
        assert done.stdout, f"{path}: {done.stderr}"
        for finding in json.loads(done.stdout)["findings"]:
            if finding["severity"] != "note":
                wrong += 1
                print(f"{path.relative_to(folder)}: {finding['message']}")
    print(f"{len(checkpoints)} checkpoints, {wrong} errors and warnings")
    sys.exit(wrong > 0 or not checkpoints)


def main():
    command, folder, *rest = sys.argv[1:]
    folder = pathlib.Path(folder)
    if command == "build":
        import multiprocessing

        from transformers import CONFIG_MAPPING

        names = rest or sorted(CONFIG_MAPPING.keys())
        with multiprocessing.get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=40) as pool:
            pool.map(prepare, [folder / sample / name for sample in SAMPLES for name in names], chunksize=1)
            pool.map(prepare_keys, [folder / "keys" / name for name in names], chunksize=1)
    else:
        {"derive": derive, "check": check}[command](folder, *rest)


if __name__ == "__main__":
    main()
