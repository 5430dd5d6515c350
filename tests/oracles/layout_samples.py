#!/usr/bin/env python3
"""Samples configurations of the architectures of `transformers`, with the tensors that `save_pretrained` writes for each.

    tests/oracles/layout_samples.py FOLDER [MODEL_TYPE ...]

Writes `FOLDER/MODEL_TYPE.json` unless it exists: the models of the default size, with other numbers (`small`), with yet
other numbers and inverted settings (`other`), and `small` with each of its keys changed alone, also in nested models. They
are built on the meta device, so no weights exist. A sample without an influence on the tensors has only its configuration.
`layouts.py` derives the table of layouts from the samples; `broken_checkpoints.py` breaks them.
"""

import json
import os
import pathlib
import re
import sys
import time
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

from architectures import PURPOSES
from moe import ARCHITECTURES

def numbers(hidden, heads, groups, intermediate, experts, layers, vocabulary, rest):
    names = {
        hidden: ("hidden_size", "n_embd", "d_model"),
        heads: ("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads", "decoder_attention_heads"),
        intermediate: ("intermediate_size", "ffn_dim", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff"),
        experts: ("num_experts", "num_local_experts", "n_routed_experts"),
        layers: ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers", "depth"),
    }
    sizes = {key: value for value, keys in names.items() for key in keys}
    return {**sizes, "num_key_value_heads": groups, "vocab_size": vocabulary, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **rest}

LATENT = {"q_lora_rank": 48, "kv_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 20}
A = numbers(192, 6, 2, 320, 5, 3, 151, dict(moe_intermediate_size=56, first_k_dense_replace=1, shared_expert_intermediate_size=72))
B = numbers(256, 4, 2, 448, 6, 4, 173, dict(moe_intermediate_size=88, first_k_dense_replace=2, shared_expert_intermediate_size=104, n_shared_experts=2, num_shared_experts=2, type_vocab_size=3,
            q_lora_rank=56, kv_lora_rank=36, qk_rope_head_dim=12, qk_nope_head_dim=20, v_head_dim=28))
# What classes need that have no experts.
OTHERS = {"reformer": {"is_decoder": True, "axial_pos_embds_dim": [64, 128]}}
KEPT = ("return_dict", "use_cache", "torchscript", "output_", "use_bfloat16", "tie_encoder_decoder", "chunk", "gradient", "norm_topk", "problem_type", "dtype", "_")
LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "depth", "encoder_layers", "decoder_layers", "num_decoder_layers")

def change(defaults, sizes, inverts=False, states=False):
    changed = {}
    for key, value in defaults.items():
        if isinstance(value, dict):
            if "model_type" in value or key.endswith("_config") or key in ("encoder", "decoder"):
                part = change(value, sizes, inverts, states)
                if part:
                    changed[key] = {**part, **({"model_type": value["model_type"]} if "model_type" in value else {})}
        elif isinstance(value, bool):
            if inverts and not key.startswith(KEPT):
                changed[key] = not value
        elif key in sizes and isinstance(value, int):
            changed[key] = sizes[key]
    if states and {"num_attention_heads", "n_head", "num_heads"} & set(defaults) and "vision" not in str(defaults.get("model_type")):
        changed = {"num_key_value_heads": sizes["num_key_value_heads"], **changed, "head_dim": sizes.get("head_dim", 72)}
    return changed

def merged(base, extra):
    base = dict(base)
    for key, value in (extra or {}).items():
        base[key] = merged(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
    return base

def small_attempts(defaults):
    yield change(defaults, {**A, **LATENT, "head_dim": 40})
    yield change(defaults, A)
    yield change(defaults, {**A, "num_key_value_heads": 6})
    yield change(defaults, {key: value for key, value in A.items() if re.search("layers|intermediate|experts", key)})
    yield change(defaults, {**A, "head_dim": 40}, states=True)
    yield change(defaults, {**{key: 3 for key in LAYERS}, "intermediate_size": 320})
    yield change(defaults, {key: 3 for key in LAYERS})
    yield {}

def other_attempts(defaults):
    for states in (True, False):
        for inverts in (True, False):
            yield change(defaults, {**B, **({"head_dim": 72} if states else {})}, inverts, states)

def classes(model_type):
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto as auto
    kind = CONFIG_MAPPING[model_type]
    mappings = [getattr(auto, f"MODEL_FOR_{purpose}_MAPPING") for purpose in PURPOSES] + [auto.MODEL_MAPPING]
    found = next((mapping[kind] for mapping in mappings if kind in mapping), None)
    return kind, found[0] if isinstance(found, (list, tuple)) else found

def sample(kind, model_class, settings):
    import torch
    from transformers.core_model_loading import revert_weight_conversion
    config = kind(**json.loads(json.dumps(settings)))
    with torch.device("meta"):
        model = model_class(config)
    model.config.architectures = [type(model).__name__]
    persistent = set(model.state_dict())
    parameters = {name: tensor for name, tensor in model.named_parameters() if name in persistent}
    buffers = {name: tensor for name, tensor in model.named_buffers() if name in persistent}
    prefix = f"{model.base_model_prefix}."
    has_base = any(name.startswith(prefix) for name in parameters)
    saved = revert_weight_conversion(model, dict({**parameters, **buffers}))
    inner = revert_weight_conversion(model, {name: tensor for name, tensor in parameters.items() if not has_base or name.startswith(prefix)})
    whole = revert_weight_conversion(model, dict(parameters))
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    return {
        "class": type(model).__name__,
        "config": json.loads(model.config.to_json_string(use_diff=False)),
        "tensors": {name: list(tensor.shape) for name, tensor in saved.items()},
        "head": sorted(set(whole) - set(inner)),
        "buffers": sorted(set(saved) - set(whole)),
        "tied": dict(tied),
        "spare": list(getattr(model, "_keys_to_ignore_on_load_missing", None) or []),
        "prefix": model.base_model_prefix,
    }

def other_values(key, value):
    if key.startswith(KEPT) or key.endswith(("_token_id", "_index", "_idx", "dtype", "_token")) or isinstance(value, (str, float)):
        return ()
    if value is None:
        return (52, 2) if re.search("inner|size|dim|heads|rank|layers|experts|inter", key) else ()
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        if abs(value) > 100_000:
            return (value // 2,)
        return (2 * value, value + 1, value - 1) if value > 1 else (value + 1,)
    if isinstance(value, list):
        if value and all(isinstance(item, int) and not isinstance(item, bool) for item in value):
            return ([2 * value[0], *value[1:]], [value[0] + 1, *value[1:]], [*value[1:], value[0]])
        if len(set(map(str, value))) > 1:
            return ([*value[1:], value[0]],)
    return ([1],) if value == [] else ()

def paths(config, at=()):
    for key, value in config.items():
        if isinstance(value, dict):
            if len(at) < 3 and ("model_type" in value or key.endswith("_config")) and key != "quantization_config":
                yield from paths(value, (*at, key))
        else:
            yield (*at, key), value

def with_value(config, path, value):
    config = dict(config)
    # The lists with the kinds of layers follow their number.
    if path[0] in LAYERS:
        config = {key: None if key in ("layer_types", "mlp_layer_types", "layers_block_type", "hybrid_override_pattern", "indexer_types") else item for key, item in config.items()}
    config[path[0]] = with_value(config[path[0]], path[1:], value) if len(path) > 1 else value
    return config

DROPPED = ("architectures", "transformers_version", "_name_or_path", "id2label", "label2id", "dtype", "torch_dtype")

def run(job):
    folder, name = job
    target = pathlib.Path(folder) / f"{name}.json"
    if target.exists():
        return name, None
    started = time.time()
    samples, reasons, tried = [], [], 0
    try:
        kind, model_class = classes(name)
        if model_class is None:
            target.write_text(json.dumps({"samples": [], "reason": "part of other architectures"}))
            return name, "part"
        defaults = kind().to_dict()
    except Exception as error:
        target.write_text(json.dumps({"samples": [], "reason": f"{type(error).__name__}: {error}"[:300]}))
        return name, f"{error}"[:100]
    seen = set()
    def attempt(tag, settings):
        try:
            found = sample(kind, model_class, settings)
        except Exception as error:
            reasons.append(f"{tag}: {type(error).__name__}: {error}"[:200].split("\n")[0])
            return None
        samples.append({"tag": tag, **found})
        return found
    extra = {**ARCHITECTURES, **OTHERS}.get(name)
    first = attempt("default", {}) or (extra and attempt("default", extra))
    base = None
    for settings in small_attempts(defaults):
        base = attempt("small", settings) or (extra and attempt("small", merged(settings, extra)))
        if base:
            break
    for settings in other_attempts(defaults):
        if attempt("other", settings) or (extra and attempt("other", merged(settings, extra))):
            break
    if base:
        config = {key: value for key, value in base["config"].items() if key not in DROPPED}
        shapes = base["tensors"]
        for path, value in list(paths(config)):
            for other in other_values(path[-1], value):
                found = attempt(".".join(path), with_value(config, path, other))
                if found:
                    if found["tensors"] == shapes:
                        samples[-1] = {"tag": samples[-1]["tag"], "config": samples[-1]["config"], "same": True}
                    break
    target.write_text(json.dumps({"samples": samples, "reasons": reasons, "seconds": round(time.time() - started, 1)}))
    return name, f"{len(samples)} samples, {time.time() - started:.0f} s"

def main():
    folder, *names = sys.argv[1:]
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    from transformers import CONFIG_MAPPING
    import multiprocessing
    names = names or sorted(CONFIG_MAPPING.keys())
    print(len(names))
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=30) as pool:
        for name, note in pool.imap_unordered(run, [(folder, name) for name in names]):
            print(name, note, flush=True)

if __name__ == "__main__":
    main()
