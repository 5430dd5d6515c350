#!/usr/bin/env python3
"""Compares `verify --engine transformers` with transformers, for small models and changed configurations.

    tests/oracles/engine_loads.py HF_META

A model for which the answer is `no` must not be loaded by `from_pretrained`, and one for which it is `yes` must be loaded.
A model type or a method that no engine has must be `unknown`. Needs torch and the version of transformers in
`engines/engines.txt`.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="critical")
warnings.filterwarnings("ignore")

import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "max_position_embeddings": 64, "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 64, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_heads": 4,
    "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "ffn_dim": 96,
    "word_embed_proj_dim": 64, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
}
CAUSAL = "llama mistral qwen2 qwen3 qwen3_moe mixtral gemma gemma2 phi phi3 gpt2 gpt_neox opt bloom stablelm olmo olmo2 starcoder2 granite cohere".split()
OTHERS = [(AutoModel, "bert"), (AutoModel, "distilbert"), (AutoModel, "roberta"), (AutoModel, "electra"), (AutoModelForSeq2SeqLM, "t5"), (AutoModelForSeq2SeqLM, "bart"), (AutoModel, "canine")]
# The changes of the configuration of a Llama, and the answers that are required, if one is.
CHANGES = [
    ("made-up type", {"model_type": "brand_new", "architectures": ["BrandNewForCausalLM"]}, [None]),
    ("made-up type, known class", {"model_type": "brand_new"}, [None]),
    ("made-up type, class of vLLM", {"model_type": "brand_new", "architectures": ["AXK1ForCausalLM"]}, [None]),
    ("made-up class", {"architectures": ["BrandNewForCausalLM"]}, [True, None]),
    ("type of vLLM", {"model_type": "kimi_k2", "architectures": ["KimiK2ForCausalLM"]}, [False, None]),
    ("type of mlx-lm", {"model_type": "baichuan_m1", "architectures": ["BaichuanM1ForCausalLM"]}, [False, None]),
    ("code", {"model_type": "own", "auto_map": {"AutoModelForCausalLM": "modeling.Own"}}, [None]),
    ("made-up method", {"quantization_config": {"quant_method": "unheard"}}, [None]),
    ("method of vLLM", {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, [None]),
    ("method of SGLang", {"quantization_config": {"quant_method": "qoq"}}, [None]),
    ("no type", {"model_type": None}, [None]),
    ("no class", {"architectures": None}, [True, None]),
    ("upper case", {"model_type": "LLAMA"}, [None, False]),
]


def answer(command, folder):
    found = subprocess.run([command, "verify", "--json", "--engine", "transformers", "--offline", folder], capture_output=True, text=True)
    document = json.loads(found.stdout)
    return document["engine"]["loads"], [reason["message"] for reason in document["engine"]["reasons"] if "cache of architecture" not in reason["message"]]


def load(auto, folder):
    """Returns the reason why transformers does not load a model."""
    try:
        AutoConfig.from_pretrained(folder)
        auto.from_pretrained(folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:100]
    return None


def save(auto, kind, folder):
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](**SMALL)
    auto.from_config(config).save_pretrained(folder)


def main():
    command, failures, counts = os.path.abspath(sys.argv[1]), [], {}
    cases = [(kind, auto, kind, {}, [True]) for auto, kind in [*((AutoModelForCausalLM, kind) for kind in CAUSAL), *OTHERS]]
    cases += [(name, AutoModelForCausalLM, "llama", changes, answers) for name, changes, answers in CHANGES]
    for name, auto, kind, changes, answers in cases:
        with tempfile.TemporaryDirectory() as folder:
            save(auto, kind, folder)
            path = pathlib.Path(folder, "config.json")
            config = {**json.loads(path.read_text()), **changes}
            path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
            (loads, reasons), refused = answer(command, folder), load(auto, folder)
        counts[loads, refused is None] = counts.get((loads, refused is None), 0) + 1
        print(f"{name}: {loads} {reasons[:1]}; transformers: {refused or 'loaded'}")
        if loads is False and refused is None or loads is True and refused is not None or loads not in answers:
            failures.append(name)
    print(f"transformers {transformers.__version__}: {len(cases)} configurations, {counts} by (answer, loaded)")
    sys.exit(f"wrong: {failures}" if failures else 0)


if __name__ == "__main__":
    main()
