#!/usr/bin/env python3
"""Writes fixtures of tiny models of transformers with settings that published models have, and that change the modules.

    tests/oracles/transformers_models.py [FOLDER: fixtures/transformers]

Models with old names are loaded by transformers, which must miss nothing. Needs transformers and torch.
"""

import json
import pathlib
import re
import struct
import sys
import tempfile

import safetensors.torch
import torch
import transformers

from fixture import ROOT, write

SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 64}
TOWER = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2}
DUAL = {"text_config": {**TOWER, "vocab_size": 96, "max_position_embeddings": 16}, "vision_config": {**TOWER, "image_size": 16, "patch_size": 8}}
SEQ2SEQ = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 96, "max_position_embeddings": 64, "pad_token_id": 1}
MLA = {**SMALL, "num_key_value_heads": 4, "num_hidden_layers": 2, "q_lora_rank": None, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}
MAMBA = {"mamba_d_state": 8, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1}
LINEAR = {"head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
BERT = {**TOWER, "vocab_size": 96, "max_position_embeddings": 64}
VIT = {**TOWER, "image_size": 16, "patch_size": 8}
CROSS = {"is_decoder": True, "add_cross_attention": True}
WHISPER = {**SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 32}

T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "num_layers": 2, "vocab_size": 96}
SPEECH = {**TOWER, "vocab_size": 32, "conv_dim": [8, 8], "conv_stride": [5, 2], "conv_kernel": [10, 3], "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "num_feat_extract_layers": 2}
WEIGHT_NORM = {r"parametrizations\.weight\.original0$": "weight_g", r"parametrizations\.weight\.original1$": "weight_v"}

INKLING = {**SMALL, "head_dim": 8, "swa_head_dim": 8, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "num_hidden_layers": 2, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "dense_intermediate_size": 48}
LLAMA = {**SMALL, "model_type": "llama", "num_hidden_layers": 2}

# The class and the settings of each fixture. Those with `-in-memory` have the names that training programs store.
MODELS = {
    "clip": ("CLIPModel", {**DUAL, "projection_dim": 24}),
    "siglip": ("SiglipModel", DUAL),
    "bart": ("BartForConditionalGeneration", SEQ2SEQ),
    "marian": ("MarianMTModel", {**SEQ2SEQ, "decoder_start_token_id": 1}),
    "pegasus": ("PegasusForConditionalGeneration", SEQ2SEQ),
    "deepseek-v2-lite": ("DeepseekV2ForCausalLM", {**MLA, "n_shared_experts": 1}),
    "moonlight": ("DeepseekV3ForCausalLM", {**MLA, "n_shared_experts": 1}),
    "bamba": ("BambaForCausalLM", {**SMALL, **MAMBA, "num_hidden_layers": 4, "attn_layer_indices": [1]}),
    "granite-4-h": ("GraniteMoeHybridForCausalLM", {**SMALL, **MAMBA, "num_hidden_layers": 4, "layer_types": ["mamba", "attention", "mamba", "mamba"], "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 24, "tie_word_embeddings": True}),
    "qwen3-next": ("Qwen3NextForCausalLM", {**SMALL, **LINEAR, "num_hidden_layers": 2, "layer_types": ["full_attention", "linear_attention"], "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}),
    "llama-4-maverick": ("Llama4ForCausalLM", {**SMALL, "head_dim": 8, "num_hidden_layers": 2, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 64, "num_local_experts": 4}),
    "mamba2-tied": ("Mamba2ForCausalLM", {"hidden_size": 32, "num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1, "num_hidden_layers": 2, "vocab_size": 96, "tie_word_embeddings": True}),
    "big-bird": ("BigBirdForQuestionAnswering", BERT),
    "bart-decoder": ("BartForCausalLM", SEQ2SEQ),
    "whisper": ("WhisperForConditionalGeneration", WHISPER),
    "whisper-labels": ("WhisperForAudioClassification", {**WHISPER, "num_labels": 3}),
    "roberta-decoder": ("RobertaForCausalLM", {**BERT, "is_decoder": True}),
    # Base models whose names lack the prefix that the class with a head has, and an encoder without its decoder.
    "led-base": ("LEDModel", {**SEQ2SEQ, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64, "attention_window": [4, 4]}),
    "levit-base": ("LevitModel", {"image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 3, 4], "depths": [1, 1, 1], "key_dim": [4, 4, 4]}),
    "t5gemma-encoder": ("T5GemmaEncoderModel", {"encoder": {**SMALL, "head_dim": 8, "num_hidden_layers": 2}, "decoder": {**SMALL, "head_dim": 8, "num_hidden_layers": 2}, "is_encoder_decoder": False}),
    # Classes that are a module of the model with the head, and a class without a row per label.
    "llama-4-text": ("Llama4TextModel", {**SMALL, "head_dim": 8, "num_hidden_layers": 2, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 64, "num_local_experts": 4}),
    "nemotron-h-base": ("NemotronHModel", {**SMALL, "head_dim": 8, "layers_block_type": ["mamba", "attention", "mlp"], "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 1, "ssm_state_size": 8}),
    "inkling-2-text": ("Inkling2TextModel", INKLING),
    "csm-backbone": ("CsmBackboneModel", {**SMALL, "num_hidden_layers": 2, "num_codebooks": 4, "depth_decoder_config": {**SMALL, "num_hidden_layers": 2, "num_codebooks": 4, "backbone_hidden_size": 32}}),
    "moshi-base": ("MoshiModel", {**SMALL, "ffn_dim": 48, "num_hidden_layers": 2}),
    "patchtst-labels": ("PatchTSTForClassification", {"num_input_channels": 2, "context_length": 16, "patch_length": 4, "patch_stride": 4, "d_model": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_targets": 5, "num_labels": 3}),
    "falcon-h1-bias": ("FalconH1ForCausalLM", {**SMALL, **MAMBA, "num_hidden_layers": 2, "head_dim": 8, "mamba_d_ssm": 64, "attention_bias": True}),
    "canine": ("CanineModel", {**BERT, "num_hash_functions": 4, "num_hash_buckets": 32}),
    "vit-labels": ("ViTForImageClassification", {**VIT, "num_labels": 3}),
    "bert-labels": ("BertForSequenceClassification", {**BERT, "num_labels": 3}),
    "vit-gpt2": ("VisionEncoderDecoderModel", {"encoder": {**VIT, "model_type": "vit"}, "decoder": {"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 96, "n_positions": 64, **CROSS}}),
    "donut": ("VisionEncoderDecoderModel", {"encoder": {"model_type": "donut-swin", "image_size": 64, "embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2], "window_size": 2}, "decoder": {**SEQ2SEQ, "model_type": "mbart", "is_encoder_decoder": False, **CROSS}}),
    "funnel-labels": ("FunnelForSequenceClassification", {"vocab_size": 96, "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48, "block_sizes": [1, 1], "num_labels": 3}),
    "convnext-backbone": ("ConvNextBackbone", {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "out_features": ["stage4"]}),
    "llava-in-memory": ("LlavaForConditionalGeneration", {"text_config": LLAMA, "vision_config": {**VIT, "model_type": "clip_vision_model"}}),
    "qwen2.5-vl-in-memory": ("Qwen2_5_VLForConditionalGeneration", {"text_config": {**SMALL, "num_hidden_layers": 2}, "vision_config": {"depth": 2, "hidden_size": 32, "num_heads": 4, "intermediate_size": 48, "out_hidden_size": 32}}),
    "dinov2-in-memory": ("Dinov2ForImageClassification", {**VIT, "num_labels": 3}),
    "t5-encoder": ("T5ForTokenClassification", {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "num_layers": 2, "vocab_size": 96}),
}

# The class and the settings of checkpoints as old versions and other programs stored them: the names that `save_pretrained`
# writes, with the stored ones in their place, and the keys that the configurations of their time lack.
OLD = {
    "bert-gamma": ("BertForMaskedLM", BERT, {r"LayerNorm\.weight$": "LayerNorm.gamma", r"LayerNorm\.bias$": "LayerNorm.beta"}, ()),
    "wav2vec2-weight-norm": ("Wav2Vec2ForCTC", SPEECH, WEIGHT_NORM, ()),
    "hubert-weight-norm": ("HubertModel", SPEECH, WEIGHT_NORM, ()),
    "llava-4": ("LlavaForConditionalGeneration", {"text_config": LLAMA, "vision_config": {**VIT, "model_type": "clip_vision_model"}}, {r"^vision_tower\.(?!vision_model)": "vision_tower.vision_model."}, ()),
    "t5-gated": ("T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu"}, {}, ("is_gated_act", "dense_act_fn")),
    "t5-without-decoder-layers": ("T5ForConditionalGeneration", {**T5, "num_layers": 3}, {}, ("num_decoder_layers", "is_gated_act", "dense_act_fn")),
    "longt5-global": ("LongT5ForConditionalGeneration", {**T5, "encoder_attention_type": "transient-global"}, {}, ("is_gated_act", "dense_act_fn")),
    "electra-equal-widths": ("ElectraForPreTraining", {**BERT, "embedding_size": 32}, {}, ()),
}


def save_old(model, scratch, names, lacks):
    """Saves a model as an old version did, and lets transformers load it."""
    model.save_pretrained(scratch)
    path = pathlib.Path(scratch) / "model.safetensors"
    tensors, renamed = safetensors.torch.load_file(path), {}
    for name, tensor in tensors.items():
        for pattern, text in names.items():
            name = re.sub(pattern, text, name)
        renamed[name] = tensor
    assert not names or renamed.keys() != tensors.keys(), "No name is an old one."
    safetensors.torch.save_file(renamed, path, {"format": "pt"})
    path = path.with_name("config.json")
    config = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in config.items() if key not in lacks}))
    _, info = type(model).from_pretrained(scratch, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"], info


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "fixtures" / "transformers")
    plain = {name: (kind, settings, None, None) for name, (kind, settings) in MODELS.items()}
    for name, (kind, settings, names, lacks) in {**plain, **OLD}.items():
        torch.manual_seed(0)
        model_class = getattr(transformers, kind)
        model = model_class(model_class.config_class(**settings))
        with tempfile.TemporaryDirectory() as scratch:
            if names is None:
                model.save_pretrained(scratch)
            else:
                save_old(model, scratch, names, lacks)
            if name.endswith("-in-memory"):
                safetensors.torch.save_model(model, f"{scratch}/model.safetensors")
            config = json.loads((pathlib.Path(scratch) / "config.json").read_text())
            with (pathlib.Path(scratch) / "model.safetensors").open("rb") as file:
                header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        header.pop("__metadata__", None)
        tensors = [{"name": tensor, "dtype": stored["dtype"], "shape": stored["shape"]} for tensor, stored in sorted(header.items())]
        write(folder, {"name": name, "written_by": f"transformers {transformers.__version__}", "config": config, "tensors": tensors})


main()
