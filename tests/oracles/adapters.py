#!/usr/bin/env python3
"""Writes fixtures of adapters of tiny models, in the formats of PEFT, diffusers, kohya and MLX.

    tests/oracles/adapters.py [FOLDER: fixtures/adapters]

Needs the packages of `real.txt`. An adapter that cannot be written is reported, and the exit code is 1. Besides the
fields of other fixtures, `config` is `adapter_config.json`, and `base` has the tensors of the adapted model.
"""

import importlib.metadata
import json
import os
import pathlib
import struct
import sys
import tempfile
import traceback
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")

import peft
import torch
import transformers
from safetensors.torch import save_file

from fixture import ROOT, write

CASES = {}


def case(name, package):
    """Registers the function that writes an adapter into a folder and returns its base model or state."""

    def register(function):
        CASES[name] = (package, function)
        return function

    return register


def header(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length))


def listed(tensors):
    return sorted(({"name": name, "dtype": tensor["dtype"], "shape": tensor["shape"]} for name, tensor in tensors.items()), key=lambda tensor: tensor["name"])


def model(kind, **rest):
    """Returns a tiny model of transformers with random weights."""
    sizes = dict(
        hidden_size=64, intermediate_size=112, num_attention_heads=4, num_key_value_heads=2, head_dim=20, vocab_size=96, num_hidden_layers=2, max_position_embeddings=32,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, n_embd=32, n_head=2, n_layer=2, n_positions=16, d_model=32, d_ff=48, d_kv=8, num_heads=4, num_layers=2,
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=40, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=40, decoder_ffn_dim=40, num_mel_bins=8, max_source_positions=16, max_target_positions=16, image_size=16, patch_size=8, embedding_size=8,
        hidden_sizes=[8, 16], depths=[1, 1], tie_word_embeddings=False, **rest)
    class_ = getattr(transformers, kind)
    config = class_.config_class()
    torch.manual_seed(0)
    return class_(class_.config_class(**{key: value for key, value in sizes.items() if hasattr(config, key) or key in rest}))


def shapes(state):
    kinds = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}
    return listed({name: {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape)} for name, tensor in state.items()})


def adapter(name, base, config, change=None):
    """Registers an adapter that PEFT writes."""

    @case(name, "peft")
    def _(folder):
        plain = base()
        known = shapes(plain.state_dict())
        plain.name_or_path = "example/base"
        adapted = peft.get_peft_model(plain, config())
        if change:
            change(adapted)
        adapted.save_pretrained(folder)
        return known


def llama():
    return model("LlamaForCausalLM")


QV = ["q_proj", "v_proj"]
LORA = {
    "lora": dict(target_modules=QV),
    "lora-rank-pattern": dict(target_modules=QV, rank_pattern={"layers.0.self_attn.q_proj": 4, r".*1.*v_proj": 2}, alpha_pattern={"layers.0.self_attn.q_proj": 32}),
    "lora-modules-to-save": dict(target_modules=["q_proj", "down_proj"], modules_to_save=["lm_head", "embed_tokens"]),
    "lora-all-linear": dict(target_modules="all-linear", use_rslora=True),
    "lora-expression": dict(target_modules=r".*\.(?:self_attn|mlp)\.(?:q|up)_proj", lora_alpha=5),
    "lora-dora": dict(target_modules=QV, use_dora=True),
    "lora-embedding": dict(target_modules=["embed_tokens", "lm_head", "k_proj"]),
    "lora-embedding-dora": dict(target_modules=["embed_tokens", "k_proj"], use_dora=True),
    "lora-layers": dict(target_modules=QV, layers_to_transform=[1]),
    "lora-layers-pattern": dict(target_modules=QV, layers_to_transform=[0], layers_pattern="layers"),
    "lora-excluded": dict(target_modules=["q_proj", "k_proj"], exclude_modules=["layers.0.self_attn.q_proj"]),
    "lora-bias": dict(target_modules=["o_proj"], lora_bias=True),
    "lora-tokens": dict(target_modules=QV, trainable_token_indices=[1, 5, 7]),
    "lora-tokens-by-module": dict(target_modules=QV, trainable_token_indices={"embed_tokens": [1, 5], "lm_head": [3]}),
    "lora-pissa": dict(target_modules=QV, init_lora_weights="pissa"),
    "lora-olora": dict(target_modules=QV, init_lora_weights="olora"),
    "lora-replicated-layers": dict(target_modules=QV, layer_replication=[[0, 2], [1, 2]]),
    "lora-rank-1": dict(target_modules=["o_proj"], r=1, lora_alpha=1),
    "lora-full-path": dict(target_modules=["model.layers.1.mlp.up_proj", "model.layers.0.mlp.down_proj"]),
    "lora-unused-target": dict(target_modules=["q_proj", "query_key_value", "c_attn"]),
    "lora-for-classes": dict(target_modules=QV, task_type="SEQ_CLS"),
}
for _name, _config in LORA.items():
    _base = (lambda: model("LlamaForSequenceClassification")) if "classes" in _name else llama
    adapter(_name, _base, lambda config=_config: peft.LoraConfig(**{"r": 8, "lora_alpha": 16, **config}))

for _name, _kind, _config in [
    ("lora-gpt2", "GPT2LMHeadModel", dict(target_modules=["c_attn", "c_proj", "wte"], fan_in_fan_out=True)),
    ("lora-bert", "BertForSequenceClassification", dict(target_modules=["query", "value"], task_type="SEQ_CLS")),
    ("lora-t5", "T5ForConditionalGeneration", dict(target_modules=["q", "v"], task_type="SEQ_2_SEQ_LM")),
    ("lora-whisper", "WhisperForConditionalGeneration", dict(target_modules=["q_proj", "v_proj", "conv1"])),
    ("lora-vit", "ViTForImageClassification", dict(target_modules=["q_proj", "query", "projection"], modules_to_save=["classifier"])),
    ("lora-resnet", "ResNetForImageClassification", dict(target_modules=["convolution"])),
    ("dora-resnet", "ResNetForImageClassification", dict(target_modules=["convolution"], use_dora=True)),
    ("lora-experts", "Qwen3MoeForCausalLM", dict(target_modules=QV, target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
    ("lora-experts-one", "Qwen3MoeForCausalLM", dict(target_parameters=["experts.gate_up_proj"], target_modules=[])),
    ("lora-router", "MixtralForCausalLM", dict(target_modules=["q_proj"], target_parameters=["gate.weight"])),
    ("lora-gpt-oss", "GptOssForCausalLM", dict(target_modules="all-linear", target_parameters=["0.mlp.experts.gate_up_proj"])),
]:
    adapter(_name, lambda kind=_kind: model(kind), lambda config=_config: peft.LoraConfig(**{"r": 4, "lora_alpha": 8, **config}))

for _name, _base, _config in [
    ("loha", llama, lambda: peft.LoHaConfig(r=4, target_modules=QV, rank_pattern={"v_proj": 2})),
    ("loha-conv", lambda: model("ResNetForImageClassification"), lambda: peft.LoHaConfig(r=4, target_modules=["convolution"], use_effective_conv2d=True)),
    ("loha-conv-flat", lambda: model("ResNetForImageClassification"), lambda: peft.LoHaConfig(r=4, target_modules=["convolution"])),
    ("lokr", llama, lambda: peft.LoKrConfig(r=4, target_modules=[*QV, "down_proj"])),
    ("lokr-both", llama, lambda: peft.LoKrConfig(r=2, target_modules=QV, decompose_both=True, decompose_factor=8)),
    ("lokr-full", llama, lambda: peft.LoKrConfig(r=64, target_modules=QV)),
    ("lokr-conv", lambda: model("ResNetForImageClassification"), lambda: peft.LoKrConfig(r=2, target_modules=["convolution"], use_effective_conv2d=True)),
    ("ia3", llama, lambda: peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"])),
    ("vera", llama, lambda: peft.VeraConfig(r=8, target_modules=QV)),
    ("vera-without-projection", llama, lambda: peft.VeraConfig(r=8, target_modules=QV, save_projection=False)),
    ("adalora", llama, lambda: peft.AdaLoraConfig(target_modules=QV, total_step=10, init_r=6, target_r=4)),
    ("oft", llama, lambda: peft.OFTConfig(target_modules=QV, oft_block_size=4)),
    ("boft", llama, lambda: peft.BOFTConfig(target_modules=QV, boft_block_size=4)),
    ("hra", llama, lambda: peft.HRAConfig(target_modules=QV, r=4)),
    ("fourierft", llama, lambda: peft.FourierFTConfig(target_modules=QV, n_frequency=10)),
    ("randlora", llama, lambda: peft.RandLoraConfig(target_modules=QV, r=4)),
    ("vblora", llama, lambda: peft.VBLoRAConfig(target_modules=QV, r=4, num_vectors=8, vector_length=4)),
    ("road", llama, lambda: peft.RoadConfig(target_modules=QV, group_size=4)),
    ("shira", llama, lambda: peft.ShiraConfig(target_modules=QV, r=4)),
    ("c3a", llama, lambda: peft.C3AConfig(target_modules=["o_proj"], block_size=4)),
    ("miss", llama, lambda: peft.MissConfig(target_modules=["o_proj"], r=4)),
    ("gralora", llama, lambda: peft.GraloraConfig(target_modules=["o_proj"], r=4, gralora_k=2)),
    ("delora", llama, lambda: peft.DeloraConfig(target_modules=QV, r=4)),
    ("ln-tuning", llama, lambda: peft.LNTuningConfig(target_modules=["input_layernorm"])),
    ("trainable-tokens", llama, lambda: peft.TrainableTokensConfig(token_indices=[1, 2], target_modules=["embed_tokens"])),
    ("prompt-tuning", llama, lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)),
    ("p-tuning", llama, lambda: peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=4, encoder_hidden_size=16)),
    ("prefix-tuning", llama, lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)),
    ("adaption-prompt", llama, lambda: peft.AdaptionPromptConfig(task_type="CAUSAL_LM", adapter_len=4, adapter_layers=1)),
]:
    adapter(_name, _base, _config)


@case("lora-of-other-names", "peft")
def _(folder):
    """Training programs dump names with the name of the adapter."""
    plain = llama()
    known = shapes(plain.state_dict())
    adapted = peft.get_peft_model(plain, peft.LoraConfig(r=8, lora_alpha=16, target_modules=QV))
    adapted.save_pretrained(folder)
    save_file({name: tensor.contiguous() for name, tensor in adapted.state_dict().items() if "lora" in name}, folder / "adapter_model.safetensors")
    return known


# diffusers and kohya


def unet():
    from diffusers import UNet2DConditionModel

    torch.manual_seed(0)
    return UNet2DConditionModel(
        sample_size=8, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=4, cross_attention_dim=24, attention_head_dim=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), mid_block_type=None, up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"))


def flux():
    from diffusers import FluxTransformer2DModel

    torch.manual_seed(0)
    return FluxTransformer2DModel(
        patch_size=1, in_channels=8, num_layers=1, num_single_layers=1, attention_head_dim=8, num_attention_heads=4, joint_attention_dim=24, pooled_projection_dim=16,
        guidance_embeds=True, axes_dims_rope=(2, 2, 4))


def adapted(base, config):
    plain = base()
    known = {name: tensor for name, tensor in plain.state_dict().items()}
    plain.add_adapter(config)
    return known, peft.get_peft_model_state_dict(plain)


TO = ["to_q", "to_k", "to_v", "to_out.0"]


def clip():
    return transformers.CLIPTextModel(transformers.CLIPTextConfig(hidden_size=32, intermediate_size=40, num_attention_heads=2, num_hidden_layers=1, vocab_size=64, max_position_embeddings=16))


def prefixed(prefix, state):
    return {f"{prefix}.{name}": tensor for name, tensor in state.items()}


def diffusion(name, config, text=None, metadata=False, change=None, base=unet, part="unet", pipeline="StableDiffusionPipeline"):
    """Registers an adapter that a pipeline writes."""

    @case(name, "diffusers")
    def _(folder):
        import diffusers

        known, state = adapted(base, config())
        known = prefixed(part, known)
        layers = {f"{part}_lora_layers": state}
        if text:
            # The model of the text encoder is inside of `text_model`.
            known_text, state_text = adapted(clip, text())
            known |= prefixed("text_encoder", known_text)
            layers["text_encoder_lora_layers"] = state_text
        if metadata:
            from diffusers.training_utils import _collate_lora_metadata

            modules = {part: base()}
            modules[part].add_adapter(config())
            layers |= _collate_lora_metadata(modules)
        if change:
            layers = {key: change(state) if key.endswith("layers") else state for key, state in layers.items()}
        getattr(diffusers, pipeline).save_lora_weights(folder, **layers)
        return shapes(known)


def old(state):
    from diffusers.utils import convert_state_dict_to_diffusers

    return convert_state_dict_to_diffusers(state)


diffusion("diffusers-unet", lambda: peft.LoraConfig(r=4, lora_alpha=8, target_modules=TO))
diffusion("diffusers-unet-text", lambda: peft.LoraConfig(r=4, lora_alpha=4, target_modules=TO), lambda: peft.LoraConfig(r=2, lora_alpha=2, target_modules=["q_proj", "v_proj"]), True)
diffusion("diffusers-conv", lambda: peft.LoraConfig(r=4, lora_alpha=8, target_modules=[*TO, "conv1", "conv_in"]), metadata=True)
diffusion("diffusers-dora", lambda: peft.LoraConfig(r=4, lora_alpha=8, target_modules=["to_q"], use_dora=True))
diffusion("diffusers-old-names", lambda: peft.LoraConfig(r=4, lora_alpha=8, target_modules=TO), lambda: peft.LoraConfig(r=2, lora_alpha=2, target_modules=["q_proj"]), change=old)
diffusion("diffusers-flux", lambda: peft.LoraConfig(r=4, lora_alpha=8, target_modules=TO), metadata=True, base=flux, part="transformer", pipeline="FluxPipeline")
diffusion("diffusers-flux-ranks", lambda: peft.LoraConfig(r=4, lora_alpha=8, target_modules=TO, rank_pattern={"to_q": 2}), metadata=True, base=flux, part="transformer", pipeline="FluxPipeline")


def kohya(name, config, base, prefix, metadata=None):
    """Registers an adapter in the names of kohya, as diffusers writes them."""

    @case(name, "diffusers")
    def _(folder):
        from diffusers.utils import convert_state_dict_to_kohya

        known, state = adapted(base, config())
        state = {f"{prefix}.{tensor}": value for tensor, value in state.items()}
        state = convert_state_dict_to_kohya(state)
        save_file({tensor: value.contiguous() for tensor, value in state.items()}, folder / "pytorch_lora_weights.safetensors", metadata=metadata)
        return shapes(prefixed(prefix, known))


kohya("kohya-unet", lambda: peft.LoraConfig(r=4, lora_alpha=8, target_modules=["to_q", "to_out.0"]), unet, "unet", {"ss_network_dim": "4", "ss_network_alpha": "8.0", "ss_base_model_version": "sd_v1", "ss_sd_model_name": "v1-5-pruned.safetensors", "ss_network_module": "networks.lora"})
kohya("kohya-conv", lambda: peft.LoraConfig(r=4, lora_alpha=8, target_modules=["to_q", "conv1"], rank_pattern={"conv1": 2}), unet, "unet")
kohya("kohya-text", lambda: peft.LoraConfig(r=2, lora_alpha=2, target_modules=["q_proj", "fc1"]), clip, "text_encoder")


@case("mlx", "mlx-lm")
def _(folder):
    return mlx(folder, "lora")


@case("mlx-dora", "mlx-lm")
def _(folder):
    return mlx(folder, "dora")


def mlx(folder, kind):
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.models.llama import Model, ModelArgs
    from mlx_lm.tuner.utils import linear_to_lora_layers

    plain = Model(ModelArgs(model_type="llama", hidden_size=64, num_hidden_layers=2, intermediate_size=112, num_attention_heads=4, rms_norm_eps=1e-5, vocab_size=96, head_dim=20, num_key_value_heads=2, tie_word_embeddings=False))
    known = [{"name": name, "dtype": "F32", "shape": list(tensor.shape)} for name, tensor in tree_flatten(plain.parameters())]
    plain.freeze()
    settings = {"rank": 8, "scale": 20.0, "dropout": 0.0}
    linear_to_lora_layers(plain, 2, settings, use_dora=kind == "dora")
    mx.save_safetensors(str(folder / "adapters.safetensors"), dict(tree_flatten(plain.trainable_parameters())))
    (folder / "adapter_config.json").write_text(json.dumps({"fine_tune_type": kind, "lora_parameters": settings, "model": "example/llama", "num_layers": 2}))
    return known


def lycoris(name, source, modules, metadata=None):
    """Registers an adapter whose parts follow from the code of its writer."""

    @case(name, f"definition: {source}")
    def _(folder):
        state = {f"{module}.{part}": torch.zeros(shape) for module, parts in modules.items() for part, shape in parts.items()}
        save_file(state, folder / "adapter.safetensors", metadata=metadata)
        return None


LYCORIS = "lycoris/modules/%s.py @ 3.4"
META = {"ss_network_dim": "4", "ss_network_alpha": "2.0", "ss_base_model_version": "sdxl_base_v1-0", "ss_network_module": "lycoris.kohya"}
lycoris("lycoris-locon", LYCORIS % "locon", {
    "lora_unet_a": {"lora_down.weight": (4, 32), "lora_up.weight": (48, 4), "alpha": ()},
    "lora_unet_conv": {"lora_down.weight": (4, 16, 3, 3), "lora_up.weight": (24, 4, 1, 1), "alpha": ()},
    "lora_unet_tucker": {"lora_down.weight": (4, 16, 1, 1), "lora_mid.weight": (4, 4, 3, 3), "lora_up.weight": (24, 4, 1, 1), "alpha": ()},
    "lora_unet_dora": {"lora_down.weight": (4, 32), "lora_up.weight": (48, 4), "alpha": (), "dora_scale": (1, 32)},
}, META)
lycoris("lycoris-loha", LYCORIS % "loha", {
    "lora_unet_a": {"hada_w1_a": (48, 4), "hada_w1_b": (4, 32), "hada_w2_a": (48, 4), "hada_w2_b": (4, 32), "alpha": ()},
    "lora_unet_conv": {"hada_w1_a": (24, 4), "hada_w1_b": (4, 16 * 9), "hada_w2_a": (24, 4), "hada_w2_b": (4, 16 * 9), "alpha": ()},
    "lora_unet_tucker": {"hada_t1": (4, 4, 3, 3), "hada_w1_a": (4, 24), "hada_w1_b": (4, 16), "hada_t2": (4, 4, 3, 3), "hada_w2_a": (4, 24), "hada_w2_b": (4, 16), "alpha": ()},
}, META)
lycoris("lycoris-lokr", LYCORIS % "lokr", {
    "lora_unet_a": {"lokr_w1": (4, 4), "lokr_w2_a": (12, 4), "lokr_w2_b": (4, 8), "alpha": ()},
    "lora_unet_full": {"lokr_w1": (4, 4), "lokr_w2": (12, 8), "alpha": ()},
    "lora_unet_both": {"lokr_w1_a": (4, 1), "lokr_w1_b": (1, 4), "lokr_w2_a": (12, 1), "lokr_w2_b": (1, 8), "alpha": ()},
    "lora_unet_tucker": {"lokr_w1": (4, 4), "lokr_t2": (4, 4, 3, 3), "lokr_w2_a": (4, 6), "lokr_w2_b": (4, 4), "alpha": ()},
}, META)
lycoris("lycoris-full", LYCORIS % "full", {"lora_unet_a": {"diff": (48, 32), "diff_b": (48,)}, "lora_unet_norm": {"w_norm": (32,), "b_norm": (32,)}}, META)
lycoris("lycoris-glora", LYCORIS % "glora", {"lora_unet_a": {"a1.weight": (4, 32), "a2.weight": (32, 4), "b1.weight": (4, 32), "b2.weight": (48, 4), "alpha": ()}}, META)
lycoris("comfy-model-only", "comfy/lora.py @ 0.3", {"diffusion_model.blocks.0.attn.q": {"lora_A.weight": (4, 32), "lora_B.weight": (48, 4)}, "diffusion_model.blocks.0.norm": {"diff": (32,)}})
lycoris("ai-toolkit", "toolkit/lora_special.py @ 2025", {"transformer.blocks.0.attn.q": {"lora_A.weight": (16, 32), "lora_B.weight": (48, 16)}, "transformer.blocks.0.ff": {"lora_A.weight": (16, 32), "lora_B.weight": (96, 16)}}, {"software": '{"name": "ai-toolkit"}'})


def stable(config):
    """Sorts the lists that are written from sets, whose order changes from run to run."""
    return {key: sorted(value) if "target_" in key and isinstance(value, list) else value for key, value in config.items()}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "fixtures" / "adapters")
    only, failed = sys.argv[2:], 0
    for name, (package, function) in CASES.items():
        if only and name not in only:
            continue
        try:
            with tempfile.TemporaryDirectory() as written:
                written = pathlib.Path(written)
                base = function(written)
                (weights,) = written.glob("*.safetensors")
                tensors = header(weights)
                metadata = tensors.pop("__metadata__", None)
                config = written / "adapter_config.json"
                known = {"name": name, "written_by": package if package.startswith("definition") else f"{package} {importlib.metadata.version(package)}"}
                if config.exists():
                    known["config"] = stable(json.loads(config.read_text()))
                    known["config"].pop("auto_mapping", None)
                if metadata and metadata != {"format": "pt"}:
                    if text := metadata.get("lora_adapter_metadata"):
                        metadata["lora_adapter_metadata"] = json.dumps(stable(json.loads(text)))
                    known["metadata"] = dict(sorted(metadata.items()))
                if base:
                    known["base"] = {tensor["name"]: tensor["shape"] for tensor in base}
                write(folder, {**known, "tensors": listed(tensors)})
        except Exception:
            failed += 1
            print(name, *traceback.format_exc().strip().splitlines()[-3:], sep="\n", file=sys.stderr)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
