#!/usr/bin/env python3
"""Compares `verify --engine vllm` with the registry and the checks of configurations of vLLM.

    tests/oracles/vllm_answers.py HF_META

A configuration for which the answer is `no` must be rejected by `ModelConfig`, or have no class in the registry, and one for
which it is `yes` must be accepted. Needs what `vllm_ranks.py` needs. It has no GPU, so methods that need one are not decided.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from vllm_ranks import MODELS, SMALL, ParallelConfig, saved
from vllm.config import ModelConfig
from vllm.model_executor.models import registry

# Another process would lack the packages that are replaced in this one.
registry._run_in_subprocess = lambda inspect: inspect()

# The changes of the configuration of a Llama.
CHANGES = [
    {"model_type": "brand_new", "architectures": ["BrandNewForCausalLM"]},
    {"model_type": "brand_new"},
    {"model_type": "brand_new", "architectures": ["BloomForCausalLM"]},
    {"architectures": ["BrandNewForCausalLM"]},
    {"architectures": ["BaichuanForCausalLM"]},
    {"architectures": ["MPTForCausalLM"]},
    {"architectures": ["Grok1ForCausalLM"]},
    {"architectures": ["BartForConditionalGeneration"]},
    {"architectures": ["CanineModel"]},
    {"model_type": "canine", "architectures": ["CanineModel"]},
    {"architectures": ["LlamaForSequenceClassification"]},
    {"architectures": ["LlamaModel"]},
    {"architectures": None},
    {"quantization_config": {"quant_method": "unheard"}},
    {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
    {"quantization_config": {"quant_method": "hqq"}},
    {"quantization_config": {"quant_method": "quanto"}},
    {"quantization_config": {"quant_method": "qoq"}},
    {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}},
    {"num_attention_heads": 6, "hidden_size": 96},
]


def rejected(folder, tp):
    """Returns the reason why vLLM rejects a configuration."""
    try:
        model = ModelConfig(model=folder, tokenizer=folder, skip_tokenizer_init=True, enforce_eager=True, max_model_len=128)
        parallel = ParallelConfig()
        parallel.tensor_parallel_size = parallel.world_size = tp
        model.verify_with_parallel_config(parallel)
        model.registry.resolve_model_cls(model.architectures, model)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:90]
    return None


def main():
    command, wrong, counts = sys.argv[1], [], {}
    cases = [(kind, changes[0], {}) for kind, changes in MODELS.items()] + [("llama", {}, change) for change in CHANGES]
    for kind, changes, change in cases:
        small = {} if "n_embd" in changes or "n_layer" in changes else SMALL
        with tempfile.TemporaryDirectory() as folder:
            try:
                saved(CONFIG_MAPPING[kind](**{**small, **changes}), folder)
            except Exception as error:
                print(kind, "skipped", type(error).__name__)
                continue
            path = pathlib.Path(folder, "config.json")
            config = {**json.loads(path.read_text()), **change}
            path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
            found = subprocess.run([command, "verify", "--json", "--engine", "vllm", "--tp", "4", "--offline", folder], capture_output=True, text=True)
            answer = json.loads(found.stdout)["engine"]
            # Missing tensors are no question of the registry.
            reasons = [reason for reason in answer["reasons"] if reason["code"] != "files"]
            loads = False if any(reason["loads"] is False for reason in reasons) else None if reasons else True
            refused = rejected(folder, 4)
        counts[loads, refused is None] = counts.get((loads, refused is None), 0) + 1
        print(kind, change, loads, [reason["message"] for reason in reasons][:1], "| vLLM:", refused or "accepted", flush=True)
        if loads not in (None, refused is None):
            wrong.append((kind, change))
    print(f"{counts} by (answer, accepted)")
    sys.exit(f"wrong: {wrong}" if wrong else 0)


if __name__ == "__main__":
    main()
