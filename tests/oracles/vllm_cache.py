#!/usr/bin/env python3
"""Writes the bytes that vLLM reserves for one request, for many small configurations and options.

    tests/oracles/vllm_cache.py GPU [--first N] [--count N] [--output FILE] [MODEL-TYPE…]

A line of `fixtures/memory/vllm-GPU.tsv` is one of `vllm.tsv`, with several options joined by `+`, and `ppN` for stages, of
which the one that needs most is listed. The model class on the meta device states the layers, and vLLM's planner divides
them. Configurations are drawn by their model type, so that a second run writes the same bytes.

Needs what `vllm_ranks.py` needs, Triton, flashinfer-python and a C compiler. The GPU is a stub.
"""

import argparse
import ctypes
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import types
from unittest.mock import MagicMock

os.environ.update(
    VLLM_TARGET_DEVICE="cuda", CUDA_VISIBLE_DEVICES="0,1,2,3,4,5,6,7", VLLM_ALLOW_LONG_MAX_MODEL_LEN="1", VLLM_HAS_FLASHINFER_CUBIN="1",
    VLLM_DISABLED_KERNELS="",
)


# The functions of the driver that the extensions of vLLM are linked with. None is called.
DRIVER = """
    cuCtxGetCurrent cuCtxSetCurrent cuDeviceGetAttribute cuDevicePrimaryCtxRetain cuDriverGetVersion cuGetErrorString cuGetProcAddress_v2
    cuMemAddressFree cuMemAddressReserve cuMemCreate cuMemGetAllocationGranularity cuMemMap cuMemRelease cuMemSetAccess cuMemUnmap
    cuPointerGetAttribute cuTensorMapEncodeTiled
"""


def load_driver():
    """Loads a library with the name of the driver, which the extensions need."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = pathlib.Path(folder, "cuda.c"), pathlib.Path(folder, "libcuda.so.1")
        source.write_text("".join(f"int {name}(void) {{ return 999; }}\n" for name in DRIVER.split()))
        subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source], check=True)
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


# The name, the compute capability and the memory in GiB.
GPUS = {
    "h100": ("NVIDIA H100 80GB HBM3", (9, 0), 79.6), "l4": ("NVIDIA L4", (8, 9), 22.5), "a100": ("NVIDIA A100-SXM4-80GB", (8, 0), 79.3),
    "b200": ("NVIDIA B200", (10, 0), 179), "t4": ("Tesla T4", (7, 5), 15),
    "rtx5090": ("NVIDIA GeForce RTX 5090", (12, 0), 31.8),
}
GPU = sys.argv[1] if __name__ == "__main__" else "h100"
NAME, CAPABILITY, MEMORY = GPUS[GPU][0], GPUS[GPU][1], int(GPUS[GPU][2] * 2**30)

load_driver()

from triton.backends import backends

backends["nvidia"].driver.is_active = staticmethod(lambda: True)
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

driver.set_active(MagicMock(get_current_target=lambda: GPUTarget("cuda", CAPABILITY[0] * 10 + CAPABILITY[1], 32)))

import vllm.third_party.pynvml as nvml

# The answers of the driver, for eight GPUs.
ANSWERS = {
    "nvmlDeviceGetCount": 8, "nvmlDeviceGetCudaComputeCapability": CAPABILITY, "nvmlDeviceGetName": NAME,
    "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=MEMORY, free=MEMORY, used=0), "nvmlDeviceGetUUID": "GPU-0",
    "nvmlDeviceGetP2PStatus": 0, "nvmlSystemGetCudaDriverVersion": 13020,
}
sys.modules["pynvml"] = nvml
for name in [name for name in vars(nvml) if name.startswith("nvml")]:
    setattr(nvml, name, lambda *_, answer=ANSWERS.get(name, 0): answer)

from fixture import ROOT
from vllm_ranks import Group, parallel_state

import torch

# Layers create streams and ask for properties of the GPU, but compute nothing.
PROPERTIES = types.SimpleNamespace(major=CAPABILITY[0], minor=CAPABILITY[1], multi_processor_count=132, total_memory=MEMORY, name=NAME, warp_size=32)
for name, answer in {
    "_lazy_init": None, "get_device_properties": PROPERTIES, "current_device": 0, "get_device_capability": CAPABILITY, "device_count": 8, "is_available": True,
    "get_device_name": NAME, "current_stream": MagicMock(), "set_device": None,
}.items():
    setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)
torch.cuda.Stream = torch.cuda.Event = MagicMock

from torch.overrides import TorchFunctionMode
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto import modeling_auto
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models import registry
from vllm.multimodal.processing import InputProcessingContext
from vllm.platforms import current_platform
from vllm.usage.usage_lib import UsageContext
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts, resolve_kv_cache_layout
from vllm.v1.core import kv_cache_planning as planning
from vllm.v1.core.kv_cache_config_builder import get_kv_cache_config_builder
from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec
from vllm.v1.worker.workspace import init_workspace_manager

init_workspace_manager(torch.device("meta"))

# No image is processed, and configurations have no files next to them.
InputProcessingContext.get_hf_processor = lambda *_, **__: types.SimpleNamespace(image_processor=types.SimpleNamespace())
# Another process would have neither the stubs nor the GPU.
registry._run_in_subprocess = lambda inspect: inspect()


class OnMeta(TorchFunctionMode):
    """Puts tensors on the meta device that a layer puts on the GPU."""

    def __torch_function__(self, function, kinds, values=(), named=None):
        named = named or {}
        # A number is the index of a GPU.
        if isinstance(named.get("device"), int) or str(named.get("device")).startswith("cuda"):
            named["device"] = "meta"
        values = ["meta" if isinstance(value, (str, torch.device)) and str(value).startswith("cuda") else value for value in values]
        return function(*values, **named)


def plan(folder, tokens, tp=1, pp=1, **options):
    """Returns the bytes that vLLM needs for one request on each stage, the bytes of a block, and the blocks."""
    arguments = EngineArgs(
        model=folder, skip_tokenizer_init=True, load_format="dummy", max_model_len=tokens, tensor_parallel_size=tp,
        pipeline_parallel_size=pp, distributed_executor_backend="mp" if tp * pp > 1 else None, **options,
    )
    config = arguments.create_engine_config(UsageContext.OPENAI_API_SERVER)
    specs = []
    for stage in range(pp):
        state = parallel_state
        state._TP = state._EP = state._ETP = Group(0, tp)
        state._PP, state._WORLD = Group(stage, pp), Group(stage * tp, tp * pp)
        state._DP = state._DCP = state._PCP = state._EPLB = Group(0, 1)
        config.compilation_config.static_forward_context.clear()
        device = "cpu" if "bloom" in config.model_config.hf_config.model_type else "meta"
        with set_default_torch_dtype(config.model_config.dtype), torch.device(device), set_current_vllm_config(config), OnMeta():
            initialize_model(config)
            current_platform.update_block_size_for_backend(config)
            specs.append(get_kv_cache_spec(config))
            layouts = [layout.name for layout in get_supported_kv_cache_layouts(current_platform._find_non_ssm_backends(config))]
    with set_current_vllm_config(config):
        resolve_kv_cache_layout(config, [layouts], [spec for stage in specs for spec in stage.values()])
        groups = planning.get_global_kv_cache_groups(config, specs)
        builder = get_kv_cache_config_builder(config)
        plans = []
        for spec in specs:
            own = planning._project_kv_cache_groups_to_worker(groups, spec)
            needed = planning._max_memory_usage_bytes_from_groups(builder, config, own)
            block = planning._pool_bytes_per_block_from_builder(builder, config, own)
            plans.append([needed, block, needed // block if block else 0, config.cache_config.block_size])
    return plans


OPTIONS = {
    "fp8": {"kv_cache_dtype": "fp8"}, "nohma": {"disable_hybrid_kv_cache_manager": True}, "nopc": {"enable_prefix_caching": False},
    "mbt2048": {"max_num_batched_tokens": 2048}, "nosync": {"async_scheduling": False}, "bs64": {"block_size": 64},
    "tp2": {"tp": 2}, "tp4": {"tp": 4}, "tp8": {"tp": 8}, "pp2": {"pp": 2}, "pp3": {"pp": 3}, "pp4": {"pp": 4}, "bs32": {"block_size": 32},
    "bs128": {"block_size": 128}, "mbt512": {"max_num_batched_tokens": 512, "max_num_seqs": 64}, "mbt32768": {"max_num_batched_tokens": 32768},
    "seqs4": {"max_num_seqs": 4},
}
# Keys that classes of vLLM need, and that configurations of transformers lack.
COMPLETED = {
    "hy_v3": {"first_k_dense_replace": 1, "expert_hidden_dim": 32, "route_norm": True}, "minimax_m2": {"rotary_dim": 64, "scoring_func": "sigmoid"},
    "afmoe": {"score_func": "sigmoid", "route_norm": True, "route_scale": 1.0, "n_group": 1, "topk_group": 1}, "dots1": {"n_shared_experts": 1},
    "hunyuan_v1_dense": {"num_experts": 1}, "cohere_compass_text": {"tie_word_embeddings": True}, "ernie4_5_vl_moe_text": {"moe_intermediate_size": [32, 32]},
}
# Sizes that the cache does not depend on.
CHEAP = {
    "vocab_size": 1000, "intermediate_size": 64, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "ffn_dim": 64,
    "max_position_embeddings": 262144, "moe_num_experts": 4, "moe_k": 2, "num_nextn_predict_layers": 0, "n_positions": 262144, "intermediate_size_mlp": 64,
}

# Draws from this number on have more options, and complete more configurations.
WIDE = 100
EXPERTS = dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"], 8)


def classes(*mappings):
    """Returns the classes by model type. The last mapping counts."""
    return {kind: name for mapping in mappings for kind, name in getattr(modeling_auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES").items()}


CLASSES = classes("CAUSAL_LM")
# The classes in which a model of text is nested.
NESTED = classes("CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "SEQ_TO_SEQ_CAUSAL_LM", "MULTIMODAL_LM", "IMAGE_TEXT_TO_TEXT")

# The number of options of draws before `WIDE`, which have neither the first nor the last of `TOKENS`.
OPTIONS_BEFORE = 11
TOKENS = [17, 100, 1000, 4096, 9001, 32768, 100_003, 131072, 1_000_000]


def is_drawn(kind):
    """Returns whether a type has a class, and defaults for the parts around its model of text."""
    try:
        has_text = kind in CONFIG_MAPPING and getattr(CONFIG_MAPPING[kind](), "text_config", None)
    except ValueError:
        return False
    return kind in CONFIG_MAPPING and kind in (NESTED if has_text else CLASSES)


def drawn(kind, number):
    """Returns a configuration, which depends on the type and the number only."""
    draw = random.Random(f"{kind} {number}")
    text = getattr(CONFIG_MAPPING[kind](), "text_config", None)
    config = drawn_text(text.model_type if text else kind, draw, number >= WIDE)
    if kind == "gemma4" and number % 2:
        config["use_bidirectional_attention"] = "vision"
    name = NESTED[kind] if text else CLASSES[kind]
    config = {"text_config": {"model_type": text.model_type, **config}} if text else config
    # As in the repositories.
    config |= {"vision_config": {"model_type": "gemma4_vision", "default_output_length": 280}} if kind == "gemma4" else {}
    return {"model_type": kind, "architectures": [name], "dtype": "bfloat16", **config}, draw


def drawn_text(kind, draw, is_wide):
    """Returns the keys of a model of text."""
    known = vars(CONFIG_MAPPING[kind]())
    heads = draw.choice([8, 8, 16, 24, 32])
    head = draw.choice([64, 64, 128, 128, 80, 96, 256])
    layers = draw.randint(3, 17)
    linear = draw.choice([4, 8, 16])
    values = {
        "num_hidden_layers": layers, "n_layer": layers, "n_layers": layers, "num_layers": layers,
        "num_attention_heads": heads, "n_head": heads, "n_heads": heads, "num_heads": heads,
        "hidden_size": heads * draw.choice([64, head]), "num_key_value_heads": draw.choice([1, 2, 4, 8, heads]), "head_dim": head,
        "num_kv_heads": draw.choice([1, 2, 8]), "new_decoder_architecture": draw.choice([True, False]), "multi_query": draw.choice([True, False]),
        "sliding_window": draw.choice([None, 17, 128, 1000, 4096]), "use_sliding_window": False, "attention_chunk_size": draw.choice([128, 1000, 8192]),
        "linear_num_key_heads": linear, "linear_num_value_heads": linear * draw.choice([1, 2]), "linear_key_head_dim": draw.choice([64, 128]),
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": draw.choice([3, 4]), "mamba_d_state": draw.choice([16, 64, 128]),
        "mamba_n_groups": draw.choice([1, 2, 8]), "n_groups": draw.choice([1, 2, 8]), "mamba_d_conv": draw.choice([3, 4]), "conv_kernel": draw.choice([3, 4]),
        "state_size": draw.choice([8, 16, 64]), "conv_L_cache": draw.choice([3, 4]), "index_head_dim": 128, "kv_lora_rank": draw.choice([512, 512, 256]),
        "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "num_kv_shared_layers": draw.choice([0, 2]), "global_head_dim": draw.choice([256, 512]),
        "num_global_key_value_heads": draw.choice([None, 1, 4]), "attention_k_eq_v": draw.choice([True, False]), "swa_num_key_value_heads": draw.choice([2, 8]),
    }
    values["n_embd"] = values["d_model"] = values["hidden_size"]
    if kinds := sorted(set(known.get("layer_types") or known.get("layers_block_type") or [])):
        values["layer_types"] = [draw.choice(kinds) for _ in range(layers)]
    values["mamba_n_heads"] = values["n_mamba_heads"] = values["mamba_num_heads"] = draw.choice([8, 16])
    values["mamba_d_head"] = values["mamba_head_dim"] = "auto" if "mamba_expand" in known else 64
    values["mamba_d_ssm"] = values["mamba_n_heads"] * 64
    if kind in ("mamba2", "mamba", "falcon_mamba"):
        values["num_heads"] = values["mamba_n_heads"] * 2
        values["hidden_size"] = values["num_heads"] * 32
        values |= {"head_dim": 64, "expand": 2, "intermediate_size": values["hidden_size"] * 2}
    given = {key: value for key, value in {**CHEAP, **values, **(EXPERTS if is_wide else {})}.items() if key in known}
    # The classes in vLLM read keys that the ones in transformers do not have.
    if kind.startswith("lfm2"):
        given |= {"block_dim": values["hidden_size"], "conv_dim": values["hidden_size"], "block_ff_dim": 64}
    given |= {"glm4_moe_lite": {"first_k_dense_replace": 1}, "longcat_flash": {"mla_scale_q_lora": True, "mla_scale_kv_lora": True}}.get(kind, {})
    given |= COMPLETED.get(kind, {}) if is_wide else {}
    for key in ("num_key_value_heads", "head_dim", "layer_types", "sliding_window"):
        if draw.random() < 0.25:
            given.pop(key, None)
    # Classes with strict types have a window always.
    if isinstance(known.get("sliding_window"), int) and given.get("sliding_window", 0) is None:
        del given["sliding_window"]
    return given


def lines(kind, numbers):
    for number in numbers:
        config, draw = drawn(kind, number)
        plans, reason = [], None
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text(json.dumps(config))
            known = list(OPTIONS)[: None if number >= WIDE else OPTIONS_BEFORE]
            cases = [[], *([name] for name in known), *(draw.sample(known, 2) for _ in range(6))]
            for names in draw.sample(cases, 9):
                options = {key: value for name in names for key, value in OPTIONS[name].items()}
                tokens = draw.choice(TOKENS if number >= WIDE else TOKENS[1:-1])
                try:
                    needed, page, blocks, block = max(plan(folder, tokens, **options))
                except Exception as error:
                    reason = f"{'+'.join(names)}: {type(error).__name__}: {error}".replace("\n", " ")[:200]
                    continue
                plans.append(f"{'+'.join(names) or 'base'},{tokens},{needed},{block},{page},{blocks}")
        if plans:
            yield f"{json.dumps(config, separators=(',', ':'))}\t{kind}\t{' '.join(plans)}"
        print(kind, number, len(plans), reason or "", file=sys.stderr, flush=True)


def default_numbers(kind):
    """Returns the numbers of the configurations in the fixture."""
    if kind not in CLASSES or hasattr(CONFIG_MAPPING[kind](), "text_config"):
        return [WIDE, WIDE + 1] if kind == "gemma4" else [WIDE]
    return [0, 1, WIDE, WIDE + 1] if kind in WRONG else [0, 1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gpu", choices=GPUS)
    parser.add_argument("--first", type=int)
    parser.add_argument("--count", type=int, default=2)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / f"fixtures/memory/vllm-{GPU}.tsv")
    parser.add_argument("kinds", nargs="*")
    arguments = parser.parse_intermixed_args()
    names = [word for line in (ROOT / "crates/hf-meta-count/src/architectures/vllm.txt").read_text().splitlines() if line.startswith("vllm ") for word in line.split()[1].split(",")]
    # Some types show the differences between GPUs.
    kinds = arguments.kinds or [name for name in names if GPU == "h100" or name in OTHERS]
    with arguments.output.open("w") as output:
        print(HEADER, file=output)
        for kind in filter(is_drawn, kinds):
            numbers = default_numbers(kind) if arguments.first is None else range(arguments.first, arguments.first + arguments.count)
            for line in lines(kind, numbers):
                print(line, file=output, flush=True)


# Types about which other draws than the first ones found an error.
WRONG = {"cohere2", "cohere2_moe", "gemma3n_text"}
OTHERS = """
    deepseek_v2 deepseek_v3 glm4_moe_lite glm_moe_dsa youtu qwen3_next qwen3_5_text olmo_hybrid gemma4_text gpt_oss gemma3_text gemma2 falcon_h1 llama
    lfm2 falcon mamba2 jamba llava qwen2_5_vl qwen3_vl gemma3 gemma4 llama4 kimi_k25 qwen3_5 lfm2_vl nemotron_h_omni
""".split()
HEADER = f"# The bytes that vLLM 0.33.0 reserves for one request on {NAME}. Written by tests/oracles/vllm_cache.py."

if __name__ == "__main__":
    main()
