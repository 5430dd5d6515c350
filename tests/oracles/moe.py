#!/usr/bin/env python3
"""Writes fixtures of mixtures of experts: total and active parameters, counted on the modules of `transformers`.

    tests/oracles/moe.py [FOLDER: fixtures/moe]

Each architecture is built on the meta device from its default configuration, with few layers and experts. It is written
twice: with the names in memory, and as `save_pretrained` names them (`-original`), if these differ. A fixture has the
fields `name`, `written_by`, `config`, `tensors` and

    total                            elements of all tensors, without constants of rank 0
    active                           the elements that one token uses
    active_without_lookup_tables     the same without tables of which a token reads a few rows: per-layer and n-gram
                                     embeddings, and the input embedding unless it is the output embedding as well
    draft                            elements of draft layers, which `total` and `active` do not include
    active_is_upper_bound            true if a token may use fewer elements

Published models, in full size, have `patterns` in place of `tensors`: a pattern stands for one tensor per combination
of `ranges`, whose numbers replace `{}` in the name from left to right; a range is a list of numbers or a pair
`{"from": first, "to": last + 1}`. Draft layers are added to them by hand, since `transformers` does not load them.

The fixtures of names outside of `transformers` come from `moe_names.py`.
"""

import importlib.metadata
import json
import math
import os
import pathlib
import re
import sys
import traceback
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")

from fixture import ROOT

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_k", "moe_top_k")
LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "depth", "encoder_layers", "decoder_layers", "num_decoder_layers", "encoder_layer_count")
ONE = ("n_group", "topk_group", "num_expert_group", "first_k_dense_replace", "moe_layer_start_index")
DTYPES = {"bfloat16": "BF16", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "uint8": "U8"}


def write(folder, case):
    """Writes one fixture, a tensor per line."""
    order = ("name", "written_by", "total", "active", "active_without_lookup_tables", "draft", "active_is_upper_bound", "config", "files")
    listed = "tensors" if "tensors" in case else "patterns"
    assert not set(case) - set(order) - {listed}, set(case) - set(order)
    lines = [f" {json.dumps(key)}: {json.dumps(case[key])}" for key in order if key in case]
    lines.append(f' "{listed}": [\n  ' + ",\n  ".join(json.dumps(tensor) for tensor in case[listed]) + "\n ]")
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    json.loads(text)
    path = pathlib.Path(folder) / f"{case['name']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return len(text)


def shrink(defaults, layers, experts, top_k):
    """Returns the arguments that make a default configuration small, also in its parts."""
    small = {}
    for key, value in defaults.items():
        if key == "per_layer_config":
            continue
        if isinstance(value, dict):
            if part := shrink(value, layers, experts, top_k):
                small[key] = part
                if "model_type" in value:
                    part["model_type"] = value["model_type"]
        elif key in LAYERS and isinstance(value, int) and value > layers:
            small[key] = layers
        elif key in EXPERTS and (value is None or value > 1):
            small[key] = experts
        elif key in TOP_K:
            small[key] = top_k
        elif key in ONE and isinstance(value, int):
            small[key] = 1
    return small


def routed(model):
    """Yields (module name, module, whether it is a list) of the modules that hold routed experts."""
    for name, module in model.named_modules():
        kind, last = type(module).__name__, name.rpartition(".")[2]
        is_list = kind in ("ModuleList", "ModuleDict") or last == "experts" and hasattr(module, "expert_0")
        if is_list and last == "experts":
            yield name, module, True
        elif "Expert" in kind and "shared" not in name and any(tensor.dim() >= 3 or part in ("w1", "v1", "w2") for part, tensor in module.named_parameters(recurse=False)):
            yield name, module, False


def experts_of(module):
    """Returns the number of experts that a module stacks."""
    known = next((getattr(module, key) for key in ("num_experts", "moe_num_experts") if getattr(module, key, None)), None)
    return known or next(tensor.shape[0] for tensor in module.parameters() if tensor.dim() == 3)


def count(model, top_ks):
    """Returns the tensors that a checkpoint stores by name, their total, and the active parameters."""
    persistent = set(model.state_dict())
    tensors = {name: tensor for name, tensor in [*model.named_parameters(), *model.named_buffers()] if name in persistent}
    total = sum(tensor.numel() for tensor in tensors.values() if tensor.dim())
    active, routed_names, counted = total, [], set()
    for name, module, is_list in routed(model):
        experts = sum(any(True for _ in child.parameters()) for child in module.children()) if is_list else experts_of(module)
        top_k = min(top_ks(name), experts)
        for part, tensor in module.named_parameters():
            belongs = is_list or tensor.dim() > 1 and (tensor.shape[0] == experts or part in ("w1", "v1", "w2") and tensor.shape[0] % experts == 0)
            if belongs and id(tensor) not in counted:
                counted.add(id(tensor))  # an encoder and a decoder may share their experts
                routed_names.append(f"{name}.{part}")
                assert tensor.numel() * top_k % experts == 0
                active -= tensor.numel() - tensor.numel() * top_k // experts
    assert routed_names, "no routed experts"
    return tensors, total, active


def build(model_type, overrides=None, layers=2, experts=4, top_k=2):
    """Returns a small model of an architecture on the meta device."""
    import torch
    import transformers
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto as auto

    kind = CONFIG_MAPPING[model_type]
    small = shrink(kind().to_dict(), layers, experts, top_k)

    def merge(into, other):
        for key, value in other.items():
            if isinstance(value, dict) and isinstance(into.get(key), dict):
                merge(into[key], value)
            else:
                into[key] = value

    merge(small, overrides or {})
    config = kind(**small)
    class_name = CLASSES.get(model_type)
    if class_name:
        model_class = getattr(transformers, class_name)
    else:
        mappings = [auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, auto.MODEL_FOR_CAUSAL_LM_MAPPING, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING, auto.MODEL_MAPPING]
        model_class = next(mapping[kind] for mapping in mappings if kind in mapping)
    with torch.device("meta"):
        model = model_class(config)
    config.architectures = [model_class.__name__]
    return model.to(torch.bfloat16)


def plain(config):
    """Returns `config.json` without what says nothing about the shapes."""
    noise = re.compile(r"(?:(?<!per)_token|_token_id|_token_index|_id)$|^(?:id2label|label2id|transformers_version|_name_or_path|rope_parameters|return_dict|output_|is_encoder|chunk_size_feed|initializer|problem_type|"
                       r"attention_dropout|use_cache|dtype|_experts|router_aux|router_z|layer_norm_eps|rms_norm_eps|norm_eps|output_router|moe_token|moe_eval|expert_capacity)")

    def strip(value):
        if isinstance(value, dict):
            return {str(key): strip(part) for key, part in value.items() if not noise.search(str(key))}
        return value

    return strip(json.loads(config.to_json_string(use_diff=False)))


def lookup_tables(model):
    """Returns the elements of the embeddings besides the input embedding that a token reads by rows."""
    modules = model.named_modules()
    return sum(module.weight.numel() for name, module in modules if name.endswith(("embed_tokens_per_layer", "ngram_embedding")))


def cases(model_type, overrides):
    """Yields the fixtures of an architecture."""
    from transformers.core_model_loading import revert_weight_conversion

    model = build(model_type, overrides)
    config = model.config
    top_k = TOP_KS.get(model_type) or next((value for key in TOP_K if isinstance(value := find(config.to_dict(), key), int)), None)
    tensors, total, active = count(model, lambda name: top_k)
    text = getattr(model, "thinker", model)
    embedding, output = text.get_input_embeddings().weight, text.get_output_embeddings()
    if output is None and hasattr(text, "language_model"):
        output = text.language_model.get_output_embeddings()
    has_own = output is not None and getattr(output, "weight", None) is not None and output.weight is not embedding
    by = f"transformers {importlib.metadata.version('transformers')}"
    known = {"name": model_type.replace("_", "-"), "written_by": by, "total": total, "active": active, "active_without_lookup_tables": active - embedding.numel() * has_own - lookup_tables(model), "draft": 0, "config": plain(config)}

    def listed(state):
        return [{"name": name, "dtype": DTYPES[str(tensor.dtype).removeprefix("torch.")], "shape": list(tensor.shape)} for name, tensor in sorted(state.items())]

    if model_type not in ONLY_ORIGINAL:
        yield {**known, "tensors": listed(tensors)}
    original = revert_weight_conversion(model, dict(tensors))
    if set(original) != set(tensors):
        elements = sum(tensor.numel() for tensor in original.values() if tensor.dim())
        assert elements == total, f"{model_type}: {elements} elements in the original format, {total} in memory"
        yield {**known, "name": f"{known['name']}-original", "written_by": f"{by}, original format", "tensors": listed(original)}


def find(config, key):
    """Returns the first integer of a key, also in the parts of a configuration."""
    if isinstance(config.get(key), int):
        return config[key]
    for value in config.values():
        if isinstance(value, dict) and (found := find(value, key)) is not None:
            return found
    return None


# Architectures by `model_type`, with the settings that the default configuration lacks or that make it small.
SPARSE = {"mlp_layer_types": ["dense", "sparse"]}
GEMMA = {"enable_moe_block": True, "moe_intermediate_size": 704}
ARCHITECTURES = {
    "afmoe": {}, "aria": {}, "axk1": {}, "axk2": {}, "bailing_hybrid": {}, "beam": SPARSE, "cohere2_moe": {},
    "dbrx": {"attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000.0}, "n_heads": 16},
    "deepseek_ocr2": {"text_config": SPARSE}, "deepseek_v2": {}, "deepseek_v3": {}, "deepseek_v32": {}, "deepseek_v4": {},
    "diffusion_gemma": {"text_config": GEMMA}, "dots1": {"n_shared_experts": 2, **SPARSE},
    "dots3_note": {"vision_config": {"per_layer_config": {1: {"num_local_experts": 8}}}},
    "ernie4_5_moe": {}, "ernie4_5_vl_moe": {}, "exaone_moe": {}, "flex_olmo": {}, "flint": {"mlp_only_layers": [0]},
    "gemma4": {"text_config": GEMMA}, "glm4_moe": {}, "glm4_moe_lite": {}, "glm4v_moe": {}, "glm5_next": {"text_config": SPARSE}, "glm_moe_dsa": {},
    "gpt_oss": {}, "granitemoe": {}, "granitemoe_swa": {}, "granitemoehybrid": {"shared_intermediate_size": 1024}, "granitemoeshared": {"shared_intermediate_size": 1024},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 4, "moe_topk": [2, 2]}, "hy_v3": {}, "hy_v4": {}, "inkling2": {}, "inkling_mm_model": {}, "jamba": {}, "jetmoe": {}, "kimi_k25": {}, "kimi_linear": {}, "kolibri1": {}, "laguna": {},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1}, "llama4": {"text_config": {"pad_token_id": 0}}, "llama4_text": {}, "mellum": {}, "mimo_v2_flash": {}, "minimax": {}, "minimax_m2": {},
    "minimax_m3_vl": {}, "mistral4": {}, "mistral_large4": {}, "mixtral": {}, "muse_spark": {"audio_config": {"num_hidden_layers": 4}}, "nemo_speechlm": {}, "nemotron_h": {}, "nemotron_h_omni": {"vision_config": {"video_temporal_patch_size": 2}},
    "nllb-moe": {"encoder_sparse_step": 2, "decoder_sparse_step": 2}, "olmoe": {}, "openai_privacy_filter": {}, "phimoe": {}, "qwen2_moe": {}, "qwen3_5_moe": {}, "qwen3_5_moe_text": {}, "qwen3_moe": {}, "qwen3_next": {},
    "qwen3_omni_moe": {"talker_config": {"spatial_merge_size": 2, "text_config": {"shared_expert_intermediate_size": 256}}}, "qwen3_omni_moe_thinker": {}, "qwen3_vl_moe": {}, "solar_open": {}, "step3p7": {"text_config": SPARSE},
    "qwen4_exp": {"text_config": {"eos_token_id": 1, "ple_layer_ids": [1], "ngram_vocab_size_base": 1000, "split_ngram_parts": 4}},
    "switch_transformers": {"num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}, "unlimited_ocr": {}, "zaya": {"num_experts_per_tok": 1},
}
CLASSES = {"qwen3_omni_moe": "Qwen3OmniMoeForConditionalGeneration"}
ONLY_ORIGINAL = {"qwen3_omni_moe"}
TOP_KS = {"hunyuan_v1_moe": 2, "switch_transformers": 1, "nllb-moe": 2}


def patterns(tensors):
    """Folds tensors whose names differ in numbers only. Each number takes all its values in each combination."""
    groups = {}
    for tensor in tensors:
        numbers = tuple(int(number) for number in re.findall(r"(?<=\.)\d+(?=\.)", tensor["name"]))
        name = re.sub(r"(?<=\.)\d+(?=\.)", "{}", tensor["name"])
        groups.setdefault((name, tensor["dtype"], tuple(tensor["shape"])), set()).add(numbers)
    folded = []
    for (name, dtype, shape), numbers in groups.items():
        values = [sorted(set(part)) for part in zip(*numbers)]
        assert math.prod(len(part) for part in values) == len(numbers), name
        ranges = [{"from": part[0], "to": part[-1] + 1} if len(part) == part[-1] + 1 - part[0] and len(part) > 1 else part for part in values]
        folded.append({"name": name, "dtype": dtype, "shape": list(shape), **({"ranges": ranges} if ranges else {})})
    return folded


# Models as their developers published them: arguments of the configuration, and the published total and active
# parameters in billions, which the count must round to.
PUBLISHED = {
    "mixtral-8x7b": ("mixtral", {}, (46.7, 12.9)),
    "qwen3-30b-a3b": ("qwen3_moe", dict(hidden_size=2048, intermediate_size=6144, num_hidden_layers=48, num_attention_heads=32, num_key_value_heads=4, head_dim=128, moe_intermediate_size=768,
                                       num_local_experts=128, num_experts_per_tok=8, vocab_size=151936), (30.5, 3.3)),
    "deepseek-v3": ("deepseek_v3", dict(num_nextn_predict_layers=1), (671, 37)),
    "gpt-oss-20b": ("gpt_oss", dict(num_hidden_layers=24, num_local_experts=32), (20.9, 3.6)),
    "llama-4-scout": ("llama4", dict(text_config=dict(pad_token_id=0, num_hidden_layers=48, num_local_experts=16, num_experts_per_tok=1),
                                     vision_config=dict(hidden_size=1408, num_hidden_layers=34, num_attention_heads=16, intermediate_size=5632, vision_output_dim=4096, projector_input_dim=4096,
                                                        projector_output_dim=4096, image_size=336, patch_size=14)), (109, 17)),
    "glm-4.5-air": ("glm4_moe", dict(num_nextn_predict_layers=1, attention_bias=True, num_attention_heads=96, head_dim=128, num_hidden_layers=46), (106, 12)),
    "qwen3-next-80b-a3b": ("qwen3_next", {}, (80, 3)),
    "kimi-k2": ("deepseek_v3", dict(num_attention_heads=64, num_key_value_heads=64, n_routed_experts=384, first_k_dense_replace=1, vocab_size=163840, n_group=1, topk_group=1), (1000, 32)),
    "dbrx-132b": ("dbrx", dict(d_model=6144, n_heads=48, n_layers=40, vocab_size=100352, attn_config=dict(kv_n_heads=8, clip_qkv=8, rope_theta=500000.0),
                          ffn_config=dict(ffn_hidden_size=10752, moe_num_experts=16, moe_top_k=4)), (132, 36)),
    "jamba-1.5-mini": ("jamba", dict(tie_word_embeddings=False, mamba_dt_rank=256), (52, 12)),
}


def draft_layers(name, tensors, config):
    """Returns the draft layers of a published model."""
    config = config.get_text_config()
    h, vocabulary, layers = config.hidden_size, config.vocab_size, config.num_hidden_layers
    last = f"model.layers.{layers - 1}."
    if name == "qwen3-next-80b-a3b":
        block = [{**tensor, "name": tensor["name"].replace(last, "mtp.layers.0.")} for tensor in tensors if tensor["name"].startswith(last)]
        return block + [{"name": f"mtp.{part}.weight", "dtype": "BF16", "shape": shape} for part, shape in (("fc", [h, 2 * h]), ("norm", [h]), ("pre_fc_norm_embedding", [h]), ("pre_fc_norm_hidden", [h]))]
    if name in ("deepseek-v3", "glm-4.5-air"):
        prefix = f"model.layers.{layers}."
        block = [{**tensor, "name": tensor["name"].replace(last, prefix)} for tensor in tensors if tensor["name"].startswith(last)]
        extra = (("eh_proj", [h, 2 * h]), ("enorm", [h]), ("hnorm", [h]), ("embed_tokens", [vocabulary, h]), ("shared_head.head", [vocabulary, h]), ("shared_head.norm", [h]))
        return block + [{"name": f"{prefix}{part}.weight", "dtype": "BF16", "shape": shape} for part, shape in extra]
    return []


def mxfp4(tensors):
    """Returns gpt-oss as it is published: experts packed in blocks of 32 inputs."""
    packed = []
    for tensor in tensors:
        if tensor["name"].endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, i, o = tensor["shape"]
            packed.append({"name": tensor["name"] + "_blocks", "dtype": "U8", "shape": [experts, o, i // 32, 16]})
            packed.append({"name": tensor["name"] + "_scales", "dtype": "U8", "shape": [experts, o, i // 32]})
        else:
            packed.append(tensor)
    return packed


def block_fp8(tensors):
    """Returns DeepSeek V3 as it is published: linear layers in FP8 with a scale per block."""
    packed = []
    for tensor in tensors:
        name, shape = tensor["name"], tensor["shape"]
        if len(shape) == 2 and re.search(r"(?:self_attn|mlp)\..*_proj", name) or "kv_a_proj_with_mqa" in name or "kv_b_proj" in name:
            packed.append({"name": name, "dtype": "F8_E4M3", "shape": shape})
            packed.append({"name": f"{name}_scale_inv", "dtype": "F32", "shape": [-(-size // 128) for size in shape]})
        else:
            packed.append(tensor)
    return packed


def published(name):
    """Yields the fixtures of a published model in full size."""
    import torch
    import transformers
    from transformers.core_model_loading import revert_weight_conversion

    model_type, arguments, (billions, active_billions) = PUBLISHED[name]
    config = transformers.CONFIG_MAPPING[model_type](**arguments)
    model_class = {"llama4": "Llama4ForConditionalGeneration", "gpt_oss": "GptOssForCausalLM"}.get(model_type)
    with torch.device("meta"):
        model = getattr(transformers, model_class)(config) if model_class else transformers.AutoModelForCausalLM.from_config(config)
    model.to(torch.bfloat16)
    config.architectures = [type(model).__name__]
    top_k = next(value for key in TOP_K if isinstance(value := find(config.to_dict(), key), int))
    tensors, total, active = count(model, lambda _: top_k)
    has_own = model.get_output_embeddings().weight is not model.get_input_embeddings().weight
    original = revert_weight_conversion(model, dict(tensors))
    listed = [{"name": key, "dtype": DTYPES[str(tensor.dtype).removeprefix("torch.")], "shape": list(tensor.shape)} for key, tensor in sorted(original.items())]
    drafts = draft_layers(name, listed, config)
    case = {"name": f"published-{name}", "written_by": f"transformers {importlib.metadata.version('transformers')}, original format; draft layers as published",
            "total": total, "active": active, "active_without_lookup_tables": active - model.get_input_embeddings().weight.numel() * has_own,
            "draft": sum(math.prod(tensor["shape"]) for tensor in drafts), "config": plain(config)}
    case["config"]["num_nextn_predict_layers"] = 1 if "num_nextn_predict_layers" in arguments else 0
    figures = (case["total"], case["active"], case["active_without_lookup_tables"])
    print(f"   {name}: {figures[0] / 1e9:.2f}B of {billions}B, active {figures[1] / 1e9:.2f}B or {figures[2] / 1e9:.2f}B of {active_billions}B, draft {case['draft'] / 1e9:.2f}B")
    if name == "gpt-oss-20b":
        listed = mxfp4(listed)
        case["config"]["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    yield {**case, "patterns": patterns([*listed, *drafts])}
    if name == "deepseek-v3":
        case["config"]["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}
        yield {**case, "name": f"published-{name}-fp8", "patterns": patterns(block_fp8([*listed, *drafts]))}


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "fixtures" / "moe"
    chosen = sys.argv[2:] or [*ARCHITECTURES, *PUBLISHED]
    import transformers

    transformers.logging.set_verbosity_error()
    failed, written, largest = [], 0, 0
    for model_type in chosen:
        try:
            for case in published(model_type) if model_type in PUBLISHED else cases(model_type, ARCHITECTURES[model_type]):
                largest = max(largest, write(folder, case))
                written += 1
                print(f"{case['name']}: {case['active']} of {case['total']}")
        except Exception as error:
            if len(chosen) == 1:
                traceback.print_exc()
            print(f"!! {model_type}: {type(error).__name__} {error}".replace("\n", " ")[:400])
            failed.append(model_type)
    print(f"{written} fixtures in {folder}, the largest has {largest} bytes")
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
