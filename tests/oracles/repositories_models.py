#!/usr/bin/env python3
"""Writes sound repositories of transformers (heads, encoders, detection; towers and audio) and of mlx-lm, as `repositories.py`.

    tests/oracles/repositories_models.py FOLDER [KIND ...]

A kind is `heads`, `multimodal`, `mlx` or `options`: the models that most people use, with several options changed at once. The models of transformers have one configuration per class, which states only what differs
from the defaults, as `save_pretrained` does. mlx-lm runs without a GPU: `pip install mlx-lm mlx[cpu]`.
"""

import json
import os
import pathlib
import random
import re
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
    """Returns the files of a small model."""
    for settings in settings_of(config_class):
        try:
            return of_settings(config_class, model_class, settings)
        except Exception as error:
            last = error
    raise last


def of_settings(config_class, model_class, settings):
    """Returns the files that `save_pretrained` writes for a model."""
    from transformers.core_model_loading import revert_weight_conversion

    with torch.device("meta"):
        model = model_class(config_class(**json.loads(json.dumps(settings))))
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


# Models with options

POPULAR = """llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 gpt2 gpt_neo gptj gpt_neox opt bloom falcon mpt stablelm cohere olmo olmo2 starcoder2 granite mixtral qwen2_moe qwen3_moe deepseek_v2 deepseek_v3
glm4 gpt_oss codegen xglm biogpt persimmon mamba mamba2 jamba nemotron smollm3 lfm2 bamba falcon_mamba falcon_h1 qwen3_next granitemoe granitemoehybrid zamba2 olmoe recurrent_gemma rwkv t5gemma t5gemma2 gemma3n_text
bert roberta xlm-roberta distilbert albert electra deberta deberta-v2 mpnet modernbert camembert longformer big_bird funnel xlnet convbert squeezebert nystromformer roformer ernie esm rembert ibert mobilebert xlm flaubert canine luke mra megatron-bert xmod data2vec-text
t5 mt5 umt5 bart mbart pegasus pegasus_x marian m2m_100 blenderbot led longt5 prophetnet switch_transformers plbart bigbird_pegasus nllb-moe
whisper wav2vec2 hubert wavlm unispeech sew wav2vec2-conformer wav2vec2-bert speech_to_text audio-spectrogram-transformer clap vits speecht5 encodec dac musicgen bark seamless_m4t
clip siglip siglip2 blip vit deit beit swin swinv2 convnext convnextv2 resnet dinov2 dinov3_vit mobilevit mobilenet_v2 efficientnet regnet vit_mae vit_msn pvt poolformer levit cvt bit focalnet segformer detr deformable_detr conditional_detr table-transformer yolos rt_detr maskformer mask2former oneformer dpt depth_anything zoedepth glpn upernet sam owlvit owlv2 grounding-dino
layoutlm layoutlmv2 layoutlmv3 lilt markuplm vilt flava bridgetower donut-swin videomae timesformer vivit time_series_transformer patchtst informer autoformer
llava llava_next llava_onevision qwen2_vl qwen2_5_vl qwen3_vl paligemma idefics idefics2 idefics3 smolvlm internvl mllama gemma3 kosmos-2 blip-2 instructblip git align altclip pix2struct aria fuyu video_llava vipllava mistral3 pixtral colpali florence2 got_ocr2""".split()


def changed_settings(defaults, rng, count):
    """Returns settings with several options of a configuration changed."""
    fixed = re.compile(r"_id$|_ids$|_token|dtype|return_|output_|chunk_size|use_cache|is_decoder|torchscript|problem_type|initializer|_std$|dropout|epsilon|_eps|transformers_version|_index$|max_length|num_beams|^layer_types$|^architectures$")
    found = {}

    def options(values, path):
        for key, value in values.items():
            if fixed.search(key):
                continue
            if isinstance(value, dict) and key.endswith("_config"):
                yield from options(value, (*path, key))
            elif isinstance(value, bool):
                yield (*path, key), [not value]
            elif isinstance(value, int) and value > 0:
                # Another width than a multiple of the heads is an error of the author.
                odd = [value + 1, 1] if re.search("layers|depth|experts|groups|labels|queries|blocks", key) else []
                yield (*path, key), [value * 2, max(value // 2, 1), *odd]
            elif value is None and re.search(r"size|dim|rank|num|n_", key):
                yield (*path, key), [8, 16]

    every = sorted(options(defaults, ()))
    for path, values in rng.sample(every, min(count, len(every))):
        place = found
        for key in path[:-1]:
            place = place.setdefault(key, {})
        place[path[-1]] = rng.choice(values)
    return found


def with_options(config_class, model_class, number):
    """Returns the files of a small model of which one to five options are changed, so that it still can be built."""
    rng = random.Random(f"{model_class.__name__} {number}")
    for settings in settings_of(config_class):
        try:
            defaults = config_class(**json.loads(json.dumps(settings))).to_dict()
            break
        except Exception:
            continue
    for attempt in range(40):
        changes = changed_settings(defaults, rng, 1 + attempt % 5)
        try:
            return of_settings(config_class, model_class, merged(settings, changes)) | {"changes": changes}
        except Exception as error:
            last = error
    raise last


@kind
def options(folder):
    from transformers.models.auto import configuration_auto, modeling_auto as auto

    without_initialization()
    purposes = ["", "_FOR_CAUSAL_LM", "_FOR_MASKED_LM", "_FOR_SEQ_TO_SEQ_CAUSAL_LM", "_FOR_SEQUENCE_CLASSIFICATION", "_FOR_TOKEN_CLASSIFICATION", "_FOR_QUESTION_ANSWERING", "_FOR_IMAGE_CLASSIFICATION", "_FOR_IMAGE_TEXT_TO_TEXT", "_FOR_SPEECH_SEQ_2_SEQ", "_FOR_CTC", "_FOR_AUDIO_CLASSIFICATION",
                "_FOR_OBJECT_DETECTION", "_FOR_SEMANTIC_SEGMENTATION", "_FOR_DEPTH_ESTIMATION", "_FOR_TEXT_ENCODING", "_FOR_PRETRAINING"]
    for model_type in POPULAR:
        try:
            config_class = configuration_auto.CONFIG_MAPPING[model_type]
        except KeyError:
            print("unknown", model_type)
            continue
        seen = set()
        for purpose in purposes:
            mapping = getattr(auto, f"MODEL{purpose or ''}_MAPPING", None)
            try:
                found = mapping[config_class] if mapping is not None else None
            except KeyError:
                continue
            for model_class in found if isinstance(found, (list, tuple)) else [found]:
                if model_class is None or model_class.__name__ in seen:
                    continue
                seen.add(model_class.__name__)
                for number in range(int(os.environ.get("OPTIONS", 3))):
                    yield f"{model_class.__name__}-{number}", lambda config_class=config_class, model_class=model_class, number=number: with_options(config_class, model_class, number)


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
