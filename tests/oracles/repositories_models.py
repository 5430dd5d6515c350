#!/usr/bin/env python3
"""Writes sound repositories of transformers (heads, encoders, detection; towers and audio) and of mlx-lm, as `repositories.py`.

    tests/oracles/repositories_models.py FOLDER [KIND ...]

A kind is `heads`, `multimodal` or `mlx`. The models of transformers have one configuration per class, which states only what differs
from the defaults, as `save_pretrained` does. mlx-lm runs without a GPU: `pip install mlx-lm mlx[cpu]`.
"""

import json
import pathlib
import sys
import tempfile

import torch

import repositories
from layout_samples import merged, small_attempts
from moe import ARCHITECTURES
from repositories import kind, read_folder, stored
from timm_models import without_initialization

HEADS = """SEQUENCE_CLASSIFICATION TOKEN_CLASSIFICATION QUESTION_ANSWERING MULTIPLE_CHOICE MASKED_LM NEXT_SENTENCE_PREDICTION IMAGE_CLASSIFICATION
OBJECT_DETECTION SEMANTIC_SEGMENTATION UNIVERSAL_SEGMENTATION INSTANCE_SEGMENTATION DEPTH_ESTIMATION KEYPOINT_DETECTION ZERO_SHOT_OBJECT_DETECTION VIDEO_CLASSIFICATION
TIME_SERIES_PREDICTION""".split()
MULTIMODAL = """IMAGE_TEXT_TO_TEXT VISUAL_QUESTION_ANSWERING ZERO_SHOT_IMAGE_CLASSIFICATION MULTIMODAL_LM SPEECH_SEQ_2_SEQ CTC AUDIO_CLASSIFICATION AUDIO_FRAME_CLASSIFICATION
AUDIO_XVECTOR TEXT_TO_SPECTROGRAM TEXT_TO_WAVEFORM AUDIO_TOKENIZATION DOCUMENT_QUESTION_ANSWERING""".split()


def settings_of(config_class):
    """Yields small settings of an architecture, the preferred ones first."""
    extra = ARCHITECTURES.get(config_class.model_type)
    for settings in small_attempts(config_class().to_dict()):
        yield settings
        if extra:
            yield merged(settings, extra)


def of_transformers(config_class, model_class):
    """Returns the files that `save_pretrained` writes for a model."""
    from transformers.core_model_loading import revert_weight_conversion

    for settings in settings_of(config_class):
        try:
            with torch.device("meta"):
                model = model_class(config_class(**json.loads(json.dumps(settings))))
            break
        except Exception as error:
            last = error
    else:
        raise last
    model.config.architectures = [type(model).__name__]
    tied = set(getattr(model, "all_tied_weights_keys", None) or {})
    state = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
    state = revert_weight_conversion(model, state)
    return {"files": {"config.json": json.loads(model.config.to_json_string()), "model.safetensors": stored(state)}}


def of_purposes(purposes):
    from transformers.models.auto import modeling_auto as auto

    without_initialization()
    seen = set()
    for purpose in purposes:
        mapping = getattr(auto, f"MODEL_FOR_{purpose}_MAPPING", None) or {}
        for config_class, found in mapping.items():
            for model_class in found if isinstance(found, (list, tuple)) else [found]:
                if model_class.__name__ not in seen:
                    seen.add(model_class.__name__)
                    yield model_class.__name__, lambda config_class=config_class, model_class=model_class: of_transformers(config_class, model_class)


@kind
def heads(folder):
    yield from of_purposes(HEADS)


@kind
def multimodal(folder):
    yield from of_purposes(MULTIMODAL)


# mlx-lm

TINY = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=128, max_position_embeddings=64)
EXPERTS = dict(moe_intermediate_size=64, num_experts=4, num_experts_per_tok=2, num_local_experts=4, n_routed_experts=4)
LATENT = dict(kv_lora_rank=32, q_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=32, n_group=1, topk_group=1, first_k_dense_replace=1, n_shared_experts=1)
MLX = {
    **{name: {} for name in "llama mistral qwen3 gemma gemma2 gemma3_text phi3 phi olmo2 olmo3 starcoder2 cohere cohere2 gpt_neox glm4 granite stablelm smollm3 helium nemotron ernie4_5 exaone4 hunyuan_v1_dense seed_oss lfm2 bitnet apertus mistral3 recurrent_gemma falcon_h1".split()},
    **{name: EXPERTS for name in "mixtral qwen3_moe olmoe gpt_oss granitemoe minimax jamba bailing_moe".split()},
    "qwen2": {"use_sliding_window": False},
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 64},
    "qwen3_next": {**EXPERTS, "shared_expert_intermediate_size": 64},
    "deepseek_v2": {**EXPERTS, **LATENT},
    "deepseek_v3": {**EXPERTS, **LATENT},
    "glm4_moe": {**EXPERTS, "first_k_dense_replace": 1, "n_shared_experts": 1},
    "dots1": {**EXPERTS, "first_k_dense_replace": 1, "n_shared_experts": 1, "n_group": 1, "topk_group": 1},
    "gpt2": {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 64, "n_ctx": 64},
    "mamba": {"state_size": 8, "time_step_rank": 8},
    "mamba2": {"state_size": 8, "num_heads": 8, "head_dim": 16, "n_groups": 1},
    "granitemoehybrid": {**EXPERTS, "shared_intermediate_size": 64},
}


def of_mlx(name, extra, bits):
    """Returns the files that `mlx_lm.convert` writes for a small model."""
    from mlx_lm.utils import _get_classes, quantize_model, save_config, save_model
    from transformers.models.auto import configuration_auto, modeling_auto

    config_class = configuration_auto.CONFIG_MAPPING[name]
    # A configuration states a key that its class has, and a published one has no others.
    known = config_class().to_dict()
    made = config_class(**{key: value for key, value in {**TINY, **extra}.items() if key in known})
    made.architectures = [modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(name) or modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[name]]
    config = json.loads(made.to_json_string(use_diff=False))
    theta = config.get("rope_parameters")
    if isinstance(theta, dict):
        config.setdefault("rope_theta", theta.get("rope_theta", 10000.0))
    model_class, arguments = _get_classes(config)
    model = model_class(arguments.from_dict(config))
    if bits:
        model, config = quantize_model(model, config, 32, bits)
    with tempfile.TemporaryDirectory() as scratch:
        save_model(pathlib.Path(scratch), model, donate_model=False)
        save_config(config, pathlib.Path(scratch) / "config.json")
        return {"files": read_folder(scratch)}


@kind
def mlx(folder):
    for name, extra in MLX.items():
        for bits in (None, 4, 8):
            yield f"{name}-{bits}" if bits else name, lambda name=name, extra=extra, bits=bits: of_mlx(name, extra, bits)


if __name__ == "__main__":
    sys.argv[2:] = sys.argv[2:] or ["heads", "multimodal", "mlx"]
    repositories.main()
