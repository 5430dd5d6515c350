#!/usr/bin/env python3
"""Writes the sizes of caches, measured on the cache objects of `transformers`.

    tests/oracles/memory.py [TABLE…]

A line has a configuration, context lengths in tokens, the elements that the cache holds after a forward pass of as many
tokens, and those that hf-mem computes with all defaults filled in, separated by tabs. Encoder-decoder models get an input of
the same length.

`fixtures/memory/transformers.tsv` has each architecture: with the defaults of its class on the meta device, and with a small
configuration on the CPU whose windows are shorter than the context. An architecture that fails in both ways is listed in a
comment. `fixtures/memory/configs.tsv` has chosen configurations, whose first two columns are kept: the layouts of well-known
repositories, and small configurations with other values, missing keys and `null`. `configs-earlier.tsv` has more of them,
which were measured before this script wrote whole tables.

Needs torch, transformers and hf-mem. `JOBS` is the number of processes. With TABLE, such as `configs.tsv`, only that file
is written.
"""

import json
import multiprocessing
import os
import pathlib
import signal
import sys
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")

from fixture import ROOT

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES as SEQ2SEQ,
)

from hf_mem.safetensors.kv_cache import compute_safetensors_kv_cache_size

transformers.logging.set_verbosity_error()
torch.set_num_threads(1)

# CPU time.
SECONDS = 15
LONG, SHORT = (100, 3000, 9001), (20, 60, 130)
CACHES = ("past_key_values", "cache_params")

HEADER = f"# Configuration, tokens, elements, elements in hf-mem 0.5.6. Written by tests/oracles/memory.py with transformers {transformers.__version__}"

# Values for small configurations, in the order in which they are given up if the class rejects them.
SMALL = [
    {"head_dim": 48},
    {"num_key_value_heads": 2, "num_kv_heads": 2},
    {"layer_types": None, "layers_block_type": None},
    {"kv_lora_rank": 24, "qk_rope_head_dim": 8, "index_head_dim": 8, "v_head_dim": 40},
    {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 24},
    {"mamba_n_heads": 16, "mamba_d_head": "auto", "mamba_d_state": 8, "mamba_d_ssm": 64, "state_size": 8, "conv_kernel": 3, "mamba_d_conv": 3},
    {"sliding_window": 33, "sliding_window_size": 33, "attention_chunk_size": 33, "attention_window_size": 33, "local_attention": 66},
    {"hidden_size": 128, "n_embd": 128, "d_model": 128, "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "attention_heads": 4,
     "decoder_attention_heads": 4, "encoder_attention_heads": 4},
    {"num_hidden_layers": 9, "n_layer": 9, "n_layers": 9, "num_layers": 9, "decoder_layers": 3, "encoder_layers": 2, "num_decoder_layers": 3},
]
# Sizes that the cache does not depend on.
CHEAP = {
    "vocab_size": 99, "intermediate_size": 64, "moe_intermediate_size": 16, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}
ENCODERS = "bert bert-generation big_bird camembert data2vec-text electra ernie megatron-bert rembert roberta roberta-prelayernorm roc_bert roformer xlm-roberta xlm-roberta-xl xmod".split()


class TooSlow(Exception):
    pass


def too_slow(*_):
    raise TooSlow(f"more than {SECONDS} s of CPU time")


def floats(value, seen):
    """Returns the number of elements of all tensors of floats in an object."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return value.numel() if value.is_floating_point() else 0
    if isinstance(value, dict):
        return sum(floats(item, seen) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(floats(item, seen) for item in value)
    if type(value).__name__.endswith("Config") or isinstance(value, torch.nn.Module):
        return 0
    return floats(vars(value), seen) if hasattr(value, "__dict__") else 0


def measure(kind, config, lengths, device):
    """Returns the elements of the cache at each length."""
    model = None
    for attention in ("eager", "sdpa"):
        try:
            with torch.device(device):
                model = kind.from_config(config, attn_implementation=attention, dtype=torch.bfloat16).eval()
            break
        except ValueError:
            continue
    elements = []
    for length in lengths:
        tokens = torch.full((1, length), 5, dtype=torch.long, device=device)
        inputs = {"input_ids": tokens, "use_cache": True}
        if kind is AutoModelForSeq2SeqLM:
            inputs["decoder_input_ids"] = tokens
        with torch.no_grad():
            output = model(**inputs)
        caches = [getattr(output, name) for name in CACHES if getattr(output, name, None) is not None]
        if not caches:
            raise ValueError("the output has no cache")
        elements.append(floats(caches[0], set()))
    return elements


def small_configs(name):
    """Returns small configurations with ever fewer changes, as the changed values."""
    keys = CONFIG_MAPPING[name]().to_dict()
    # Without the last groups, the model would be too large. `configs.tsv` has configurations for those that need others.
    for kept in range(3):
        yield {key: value for group in SMALL[kept:] for key, value in group.items() if key in keys and value is not None}


def hf_mem(config, lengths):
    """Returns the elements that hf-mem computes, or `-` if it fails."""
    try:
        values = {key: value for key, value in config.to_dict().items() if value is not None}
        return " ".join(str(compute_safetensors_kv_cache_size(values, "BF16", length) // 2) for length in lengths)
    except Exception:
        return "-"


def line(kind, stated, config, lengths, device):
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        elements = measure(kind, config, lengths, device)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    columns = [" ".join(map(str, lengths)), " ".join(map(str, elements)), hf_mem(config, lengths)]
    return "\t".join([json.dumps(stated, separators=(",", ":")), *columns])


def attempt(kind, name, changes, lengths, device):
    base = {"is_decoder": True} if name in ENCODERS and kind is AutoModelForCausalLM else {}
    keys = CONFIG_MAPPING[name]().to_dict() if device == "cpu" else {}
    # The state of Mamba depends on the intermediate size.
    cheap = {key: value for key, value in CHEAP.items() if key in keys and not (key == "intermediate_size" and "state_size" in keys)}
    config = CONFIG_MAPPING[name](**{**cheap, **base, **changes})
    return line(kind, {"model_type": name, **base, **changes}, config, lengths, device)


def lines(kind, name):
    """Returns the lines of an architecture."""
    found, reasons = [], []
    try:
        attempts = [({}, LONG, "meta"), *((changes, SHORT, "cpu") for changes in small_configs(name))]
    except Exception as error:
        # Some classes cannot be built with their own defaults.
        attempts, reasons = [], [error]
    for changes, lengths, device in attempts:
        if device == "cpu" and found and found[-1][1] == "cpu":
            break
        try:
            found.append((attempt(kind, name, changes, lengths, device), device))
        except Exception as error:
            reasons.append(error)
    if not found:
        return [f"# {name}: not measured: {type(reasons[-1]).__name__}: {' '.join(str(reasons[-1]).split())[:100]}"]
    return [text for text, _ in found]


def stated_line(stated, lengths):
    """Returns the line of a chosen configuration."""
    try:
        kind, config = text_config(stated)
        is_large = max(getattr(config, key, 0) or 0 for key in ("hidden_size", "d_model", "n_embd")) > 512
        return [line(kind, stated, config, lengths, "meta" if is_large else "cpu")]
    except Exception as error:
        return [f"# {json.dumps(stated, separators=(',', ':'))}: not measured: {type(error).__name__}: {' '.join(str(error).split())[:100]}"]


def text_config(stated):
    """Returns the class and the configuration of the text model."""
    config = CONFIG_MAPPING[stated["model_type"]].from_dict(dict(stated))
    config = getattr(config, "thinker_config", config)
    text = config if config.is_encoder_decoder else config.get_text_config(decoder=True)
    return AutoModelForSeq2SeqLM if text.model_type in SEQ2SEQ else AutoModelForCausalLM, text


def work(job):
    signal.signal(signal.SIGPROF, too_slow)
    return stated_line(*job) if isinstance(job, tuple) else lines(AutoModelForSeq2SeqLM if job in SEQ2SEQ else AutoModelForCausalLM, job)


def stated(path):
    """Returns the configurations and the context lengths in a table."""
    rows = [text.split("\t")[:2] for text in path.read_text().splitlines() if text[0] != "#"]
    return [(json.loads(config), tuple(map(int, lengths.split()))) for config, lengths in rows]


def main():
    chosen = sys.argv[1:] or ["transformers.tsv", "configs.tsv", "configs-earlier.tsv"]
    folder = ROOT / "fixtures/memory"
    names = sorted(set(CAUSAL) - set(SEQ2SEQ) - {"whisper", "trocr"}) + sorted(SEQ2SEQ)
    with multiprocessing.Pool(int(os.environ.get("JOBS", os.cpu_count())), maxtasksperchild=8) as pool:
        for name in chosen:
            jobs = names if name == "transformers.tsv" else stated(folder / name)
            with (folder / name).open("w") as file:
                print(HEADER, file=file)
                for measured in pool.imap(work, jobs):
                    for text in measured:
                        print(text, file=file, flush=True)


if __name__ == "__main__":
    main()
