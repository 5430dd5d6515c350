#!/usr/bin/env python3
"""Writes the bytes of weights that vLLM allocates on each GPU, measured on its model classes on the meta device.

    tests/oracles/vllm_ranks.py [MODEL-TYPE…]

A line of `fixtures/memory/vllm-ranks.jsonl` has a small configuration, the tensors of a checkpoint that transformers saves
for it, and the bytes of the parameters by `TP×PP`: of the first and the last GPU that share a layer, for each stage of the
pipeline. A class that fails has the reason instead. With MODEL-TYPE, the other lines are kept. Sizes are those before `process_weights_after_loading`, which depends on
the GPU.

Needs vLLM 0.33.0, torch and transformers. The compiled parts of vLLM, Triton and a GPU are not needed: no kernel runs, and
packages for grammars and servers are replaced. Run with `VLLM_TARGET_DEVICE=cpu`.
"""

import importlib.abc
import importlib.machinery
import json
import os
import pathlib
import sys
import tempfile
import warnings
from unittest.mock import MagicMock

os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
os.environ.update(HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="CRITICAL", VLLM_NO_USAGE_STATS="1", VLLM_PLUGINS="")
warnings.filterwarnings("ignore")

# Packages that layers do not use.
UNUSED = {
    "anthropic", "cv2", "llguidance", "lmformatenforcer", "mcp", "model_hosting_container_standards", "numba", "openai_harmony",
    "outlines_core", "prometheus_fastapi_instrumentator", "tvm_ffi", "xgrammar",
}


class Unused(MagicMock):
    __path__ = []

    def __getattr__(self, name):
        if name in ("__file__", "__spec__", "__loader__"):
            raise AttributeError(name)
        return super().__getattr__(name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        root = name.split(".")[0]
        is_missing = root in UNUSED and importlib.machinery.PathFinder.find_spec(root) is None
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_missing else None

    def create_module(self, spec):
        module = Unused(name=spec.name)
        module.__name__ = spec.name
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(Finder())

from fixture import ROOT

import torch
import transformers
from safetensors import safe_open
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from vllm import __version__ as VLLM
from vllm.config import ModelConfig, ParallelConfig, VllmConfig
from vllm.distributed import parallel_state
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.utils.torch_utils import set_default_torch_dtype

FIXTURE = ROOT / "fixtures/memory/vllm-ranks.jsonl"
DIVISIONS = [(1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (2, 2), (2, 3)]
SMALL = {
    "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000,
    "max_position_embeddings": 256, "tie_word_embeddings": False, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}
EXPERTS = {"num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "n_group": 1, "topk_group": 1}
OLD = {"n_embd": 128, "n_head": 8, "n_layer": 4, "n_positions": 256, "n_inner": 192, "vocab_size": 1000}
LATENT = {
    "kv_lora_rank": 48, "q_lora_rank": 40, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24, "num_key_value_heads": 8,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "head_dim": 8,
}
# As in the repositories. The classes of transformers do not write it.
CORRECTED = {"topk_method": "noaux_tc"}
# The changes of each model type. A type has several configurations if its tensors depend on keys.
MODELS = {
    "llama": [{}, {"num_key_value_heads": 2, "tie_word_embeddings": True, "vocab_size": 1003}, {"attention_bias": True, "mlp_bias": True, "num_hidden_layers": 5}],
    "mistral": [{}, {"num_key_value_heads": 1}],
    "ministral3": [{}],
    "qwen2": [{"use_sliding_window": False}, {"tie_word_embeddings": True, "num_key_value_heads": 2}],
    "qwen3": [{}, {"tie_word_embeddings": True, "num_key_value_heads": 2}],
    "qwen2_moe": [{**EXPERTS, "shared_expert_intermediate_size": 96}],
    "qwen3_moe": [EXPERTS, {**EXPERTS, "num_key_value_heads": 2, "mlp_only_layers": [0], "num_hidden_layers": 5}],
    "qwen3_next": [EXPERTS],
    "mixtral": [EXPERTS],
    "gemma": [{"tie_word_embeddings": True}],
    "gemma2": [{"tie_word_embeddings": True, "num_hidden_layers": 5}],
    "gemma3_text": [{"tie_word_embeddings": True, "num_key_value_heads": 2}],
    "phi": [{"num_key_value_heads": 8}],
    "phi3": [{}, {"num_key_value_heads": 2}],
    "phimoe": [EXPERTS],
    "bloom": [{**OLD, "hidden_size": 128, "tie_word_embeddings": True}],
    "gpt2": [{**OLD, "activation_function": "gelu"}, {**OLD, "activation_function": "gelu", "vocab_size": 1003}],
    "gptj": [{**OLD, "rotary_dim": 8, "activation_function": "gelu"}],
    "gpt_neox": [{"num_key_value_heads": 8}],
    "gpt_bigcode": [OLD, {**OLD, "multi_query": False}],
    "falcon": [{"n_layer": 4, "num_attention_heads": 8, "hidden_size": 128, "num_hidden_layers": 4, "new_decoder_architecture": True, "num_kv_heads": 2, "vocab_size": 1024}],
    "opt": [{"num_key_value_heads": 8, "ffn_dim": 192, "word_embed_proj_dim": 128}],
    "starcoder2": [{}],
    "stablelm": [{}],
    "cohere": [{"tie_word_embeddings": True}],
    "cohere2": [{"tie_word_embeddings": True}],
    "granite": [{}],
    "granitemoe": [EXPERTS],
    "olmo": [{}],
    "olmo2": [{}],
    "olmo3": [{}],
    "olmoe": [EXPERTS],
    "nemotron": [{}],
    "exaone4": [{}],
    "glm": [{}],
    "glm4": [{}],
    "glm4_moe": [{**EXPERTS, "n_shared_experts": 1, "first_k_dense_replace": 1}],
    "deepseek_v2": [{**EXPERTS, **LATENT}],
    "deepseek_v3": [{**EXPERTS, **LATENT, **CORRECTED}, {**EXPERTS, **LATENT, **CORRECTED, "q_lora_rank": None}],
    "gpt_oss": [EXPERTS],
    "llama4_text": [{**EXPERTS, "intermediate_size_mlp": 256, "interleave_moe_layer_step": 2}],
    "minimax_m2": [EXPERTS],
    "hunyuan_v1_dense": [{}],
    "ernie4_5": [{}],
    "ernie4_5_moe": [{**EXPERTS, "moe_num_experts": 8, "moe_k": 2, "moe_num_shared_experts": 1}],
    "seed_oss": [{}],
    "smollm3": [{}],
    "apertus": [{}],
    "arcee": [{}],
    "dots1": [{**EXPERTS, **CORRECTED, "n_shared_experts": 1}],
    "mamba": [{"state_size": 8}],
    "falcon_h1": [{"mamba_n_heads": 8, "mamba_d_head": 32, "mamba_d_ssm": 256}],
    "nemotron_h": [{}],
    "lfm2": [{}],
    "jamba": [EXPERTS],
}


class Group:
    """A group of GPUs, without any communication."""

    def __init__(self, rank, size):
        self.rank = self.local_rank = self.rank_in_group = rank
        self.world_size, self.ranks = size, list(range(size))
        self.first_rank, self.last_rank = 0, size - 1
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1
        self.next_rank, self.prev_rank = (rank + 1) % size, (rank - 1) % size
        self.device_group = self.cpu_group = MagicMock(rank=lambda: rank, size=lambda: size)
        self.device, self.unique_name = torch.device("meta"), "group"
        self.use_device_communicator, self.device_communicator, self.mq_broadcaster = False, None, None


def bytes_of(folder, tp, pp, rank, stage):
    """Returns the bytes of the parameters on one GPU."""
    state = parallel_state
    state._TP = state._EP = state._ETP = Group(rank, tp)
    state._PP, state._WORLD = Group(stage, pp), Group(stage * tp + rank, tp * pp)
    state._DP = state._DCP = state._PCP = state._EPLB = Group(0, 1)
    model = ModelConfig(model=folder, tokenizer=folder, skip_tokenizer_init=True, enforce_eager=True, max_model_len=128)
    config = VllmConfig(model_config=model, parallel_config=ParallelConfig())
    parallel = config.parallel_config
    parallel.tensor_parallel_size, parallel.pipeline_parallel_size, parallel.world_size = tp, pp, tp * pp
    model.verify_with_parallel_config(parallel)
    # Some classes compute the slopes of ALiBi.
    device = "cpu" if "bloom" in model.hf_config.model_type else "meta"
    with set_default_torch_dtype(model.dtype), torch.device(device):
        built = initialize_model(config)
    if os.environ.get("DUMP"):
        for name, value in built.named_parameters():
            print(name, tuple(value.shape), value.dtype)
    return sum(value.numel() * value.element_size() for value in built.parameters())


def saved(config, folder):
    """Saves a model, and returns the types and shapes of its tensors."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model = model.to_empty(device="cpu")
    model.tie_weights()
    model.save_pretrained(folder)
    found = {}
    for path in pathlib.Path(folder).glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in sorted(file.keys()):
                tensor = file.get_slice(name)
                found[name] = [tensor.get_dtype(), tensor.get_shape()]
    return found


def measured(kind, changes):
    small = SMALL if "n_embd" not in changes and "n_layer" not in changes else {}
    values = {**small, **changes}
    known = CONFIG_MAPPING[kind]
    config = known(**{key: value for key, value in values.items()})
    config.dtype = "bfloat16"
    with tempfile.TemporaryDirectory() as folder:
        tensors = saved(config, folder)
        path = pathlib.Path(folder, "config.json")
        json_config = json.loads(path.read_text())
        sizes = {}
        for tp, pp in DIVISIONS:
            try:
                sizes[f"{tp}x{pp}"] = [[bytes_of(folder, tp, pp, rank, stage) for rank in sorted({0, tp - 1})] for stage in range(pp)]
            except Exception as error:
                sizes[f"{tp}x{pp}"] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
                if os.environ.get("TRACE"):
                    import traceback
                    traceback.print_exc(limit=-5)
    return {"vllm": VLLM, "transformers": transformers.__version__, "config": json_config, "tensors": tensors, "ranks": sizes}


def main():
    wanted = sys.argv[1:] or list(MODELS)
    lines = []
    for kind in wanted:
        for changes in MODELS[kind]:
            try:
                line = measured(kind, changes)
            except Exception as error:
                if os.environ.get("TRACE"):
                    import traceback
                    traceback.print_exc(limit=-5)
                print(kind, "skipped:", f"{type(error).__name__}: {error}".splitlines()[0][:200], file=sys.stderr)
                continue
            print(kind, json.dumps(line["ranks"])[:300], file=sys.stderr)
            lines.append(json.dumps(line))
    if len(sys.argv) > 1:
        known = [line for line in FIXTURE.read_text().splitlines() if json.loads(line)["config"]["model_type"] not in wanted]
        lines = sorted([*known, *lines], key=lambda line: list(MODELS).index(json.loads(line)["config"]["model_type"]))
    FIXTURE.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
