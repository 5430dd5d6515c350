#!/usr/bin/env python3
"""Writes sound repositories of diffusers, PEFT, sentence-transformers and timm, with these libraries.

    tests/oracles/repositories.py FOLDER [KIND ...]

A kind is `pipelines`, `models`, `adapters`, `encoders` or `timm`. A repository is the file `FOLDER/KIND/NAME.json`: `files`
has the content of each JSON file, or the tensors of each safetensors file; `base` has the files of the adapted model. There are
no weights. `broken_repositories.py` breaks the repositories and verifies them.
"""

import json
import os
import pathlib
import random
import struct
import sys
import tempfile
import traceback
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")

import torch

KINDS = {}
DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64", torch.int32: "I32", torch.bool: "BOOL", torch.uint8: "U8"}


def kind(function):
    KINDS[function.__name__] = function
    return function


def plain(value):
    return json.loads(json.dumps(value, default=str))


def stored(state):
    return {"tensors": {name: [DTYPES[tensor.dtype], list(tensor.shape)] for name, tensor in sorted(state.items())}}


def read(path):
    """Returns the content of a file that a library wrote."""
    if path.suffix == ".safetensors":
        with path.open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        metadata = header.pop("__metadata__", None)
        tensors = {name: [tensor["dtype"], tensor["shape"]] for name, tensor in header.items()}
        return {"tensors": tensors, **({"metadata": metadata} if metadata else {})}
    return json.loads(path.read_text())


def read_folder(folder):
    folder = pathlib.Path(folder)
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix in (".json", ".safetensors") and path.name != "tokenizer.json"]
    return {str(path.relative_to(folder)): read(path) for path in paths}


# diffusers


def diffusers_config(model):
    import diffusers

    config = {key: value for key, value in dict(model.config).items() if not key.startswith("_")}
    return plain({"_class_name": type(model).__name__, "_diffusers_version": diffusers.__version__, **config})


def component(make):
    """Returns the files of a component that is made on the meta device, and its library and class."""
    with torch.device("meta"):
        model = make()
    if hasattr(model, "register_to_config"):
        files = {"config.json": diffusers_config(model), "diffusion_pytorch_model.safetensors": stored(model.state_dict())}
        return files, ["diffusers", type(model).__name__]
    model.config.architectures = [type(model).__name__]
    config = json.loads(model.config.to_json_string())
    tied = set(getattr(model, "all_tied_weights_keys", None) or {})
    state = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
    return {"config.json": config, "model.safetensors": stored(state)}, ["transformers", type(model).__name__]


def pipeline(class_name, scheduler, components, optional=()):
    import diffusers

    index = {"_class_name": class_name, "_diffusers_version": diffusers.__version__}
    files = {"scheduler/scheduler_config.json": {"_class_name": scheduler, "_diffusers_version": diffusers.__version__, "num_train_timesteps": 1000}}
    index["scheduler"] = ["diffusers", scheduler]
    for name, make in components.items():
        if make is None:
            index[name] = [None, None]
            continue
        if isinstance(make, list):
            index[name] = make
            file = "preprocessor_config.json" if "feature" in name or "processor" in name else "tokenizer_config.json"
            files[f"{name}/{file}"] = {"tokenizer_class" if "token" in name else "feature_extractor_type": make[1]}
            continue
        found, index[name] = component(make)
        files |= {f"{name}/{file}": content for file, content in found.items()}
    return {"files": {"model_index.json": index, **files}}


def clip_text(hidden=32, layers=3, projection=None, **rest):
    import transformers

    config = transformers.CLIPTextConfig(hidden_size=hidden, intermediate_size=4 * hidden, num_attention_heads=4, num_hidden_layers=layers, vocab_size=100, max_position_embeddings=77, projection_dim=projection or hidden, **rest)
    return transformers.CLIPTextModelWithProjection(config) if projection else transformers.CLIPTextModel(config)


def t5(hidden=32, layers=3, kind="T5EncoderModel"):
    import transformers

    class_ = getattr(transformers, kind)
    return class_(class_.config_class(d_model=hidden, d_kv=8, d_ff=56, num_heads=4, num_layers=layers, vocab_size=120, feed_forward_proj="gated-gelu"))


def llm(kind, **rest):
    import transformers

    class_ = getattr(transformers, kind)
    return class_(class_.config_class(**{**dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8, vocab_size=120), **rest}))


def vision(projection=24, hidden=32):
    import transformers

    return transformers.CLIPVisionModelWithProjection(transformers.CLIPVisionConfig(hidden_size=hidden, intermediate_size=64, num_attention_heads=4, num_hidden_layers=3, image_size=16, patch_size=8, projection_dim=projection))


def model(name, **settings):
    import diffusers

    return lambda: getattr(diffusers, name)(**settings)


def unet(cross=32, **rest):
    return model("UNet2DConditionModel", **{**dict(block_out_channels=(32, 64), layers_per_block=1, cross_attention_dim=cross, attention_head_dim=8, norm_num_groups=8, sample_size=16,
                 down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D")), **rest})


def vae(latent=4, **rest):
    return model("AutoencoderKL", **{**dict(block_out_channels=(8, 16, 24), down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3, norm_num_groups=4, latent_channels=latent), **rest})


CLIP_TOKENIZER, T5_TOKENIZER, QWEN_TOKENIZER = ["transformers", "CLIPTokenizer"], ["transformers", "T5TokenizerFast"], ["transformers", "Qwen2Tokenizer"]
IMAGES = ["transformers", "CLIPImageProcessor"]
DIT = {"attention_head_dim": 8, "num_attention_heads": 4}
SDXL_UNET = dict(down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), transformer_layers_per_block=(1, 2), addition_embed_type="text_time",
                 addition_time_embed_dim=8, projection_class_embeddings_input_dim=6 * 8 + 40, use_linear_projection=True)
FLUX = dict(**DIT, in_channels=16, num_layers=3, num_single_layers=4, joint_attention_dim=32, pooled_projection_dim=40, axes_dims_rope=(2, 2, 4))
SD3 = dict(**DIT, in_channels=16, num_layers=4, joint_attention_dim=64, caption_projection_dim=32, pooled_projection_dim=72, patch_size=2, pos_embed_max_size=6, sample_size=8, out_channels=16)
FLUX_VAE = vae(4, use_quant_conv=False, use_post_quant_conv=False)
WAN = model("WanTransformer3DModel", **DIT, num_layers=3, text_dim=32, ffn_dim=40, in_channels=16, out_channels=16)
WAN_VAE = model("AutoencoderKLWan", base_dim=8, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1, temperal_downsample=[False, True, True])


@kind
def pipelines(folder):
    def safety():
        import transformers
        from diffusers.pipelines.stable_diffusion import StableDiffusionSafetyChecker

        return StableDiffusionSafetyChecker(transformers.CLIPConfig(vision_config=dict(hidden_size=32, intermediate_size=64, num_attention_heads=4, num_hidden_layers=3, image_size=16, patch_size=8), projection_dim=24))

    sd = dict(vae=vae(), text_encoder=lambda: clip_text(), tokenizer=CLIP_TOKENIZER, unet=unet())
    # StableDiffusion3 concatenates the two CLIP encoders and pads them to the width of T5.
    sd3 = dict(vae=vae(16, use_quant_conv=False, use_post_quant_conv=False), text_encoder=lambda: clip_text(32, projection=32), text_encoder_2=lambda: clip_text(40, projection=40),
               tokenizer=CLIP_TOKENIZER, tokenizer_2=CLIP_TOKENIZER)
    flux = dict(vae=FLUX_VAE, text_encoder=lambda: clip_text(40), text_encoder_2=lambda: t5(32), tokenizer=CLIP_TOKENIZER, tokenizer_2=T5_TOKENIZER)
    sdxl = dict(vae=vae(), text_encoder=lambda: clip_text(24), text_encoder_2=lambda: clip_text(40, projection=40), tokenizer=CLIP_TOKENIZER, tokenizer_2=CLIP_TOKENIZER)
    wan = dict(vae=WAN_VAE, text_encoder=lambda: t5(32, kind="UMT5EncoderModel"), tokenizer=T5_TOKENIZER, transformer=WAN)
    qwen_vl = lambda: llm("Qwen2_5_VLForConditionalGeneration", text_config=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=120), vision_config=dict(depth=2, hidden_size=32, num_heads=4, intermediate_size=48, out_hidden_size=32))
    pixart = dict(num_layers=3, **DIT, in_channels=4, cross_attention_dim=32, caption_channels=24, patch_size=2, sample_size=8, norm_type="ada_norm_single", out_channels=8)
    found = {
        "stable-diffusion": ("StableDiffusionPipeline", "PNDMScheduler", {**sd, "safety_checker": safety, "feature_extractor": IMAGES}),
        "stable-diffusion-no-checker": ("StableDiffusionPipeline", "DDIMScheduler", {**sd, "safety_checker": None, "feature_extractor": IMAGES, "image_encoder": None}),
        "stable-diffusion-inpaint": ("StableDiffusionInpaintPipeline", "PNDMScheduler", {**sd, "unet": unet(in_channels=9), "safety_checker": None, "feature_extractor": None}),
        "stable-diffusion-2": ("StableDiffusionPipeline", "DDIMScheduler", {**sd, "unet": unet(use_linear_projection=True, attention_head_dim=(4, 8))}),
        "controlnet": ("StableDiffusionControlNetPipeline", "DDIMScheduler", {**sd, "controlnet": model("ControlNetModel", block_out_channels=(32, 64), layers_per_block=1, cross_attention_dim=32, attention_head_dim=8, norm_num_groups=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), conditioning_embedding_out_channels=(16, 32))}),
        "sdxl": ("StableDiffusionXLPipeline", "EulerDiscreteScheduler", {**sdxl, "unet": unet(64, **SDXL_UNET)}),
        "sd3": ("StableDiffusion3Pipeline", "FlowMatchEulerDiscreteScheduler", {**sd3, "text_encoder_3": lambda: t5(64), "tokenizer_3": T5_TOKENIZER, "transformer": model("SD3Transformer2DModel", **{**SD3, "joint_attention_dim": 64})}),
        "sd3.5-medium": ("StableDiffusion3Pipeline", "FlowMatchEulerDiscreteScheduler", {**sd3, "text_encoder_3": lambda: t5(80), "tokenizer_3": T5_TOKENIZER, "transformer": model("SD3Transformer2DModel", **{**SD3, "joint_attention_dim": 80, "qk_norm": "rms_norm", "dual_attention_layers": (0, 1)})}),
        "flux-dev": ("FluxPipeline", "FlowMatchEulerDiscreteScheduler", {**flux, "transformer": model("FluxTransformer2DModel", **FLUX, guidance_embeds=True)}),
        "flux-schnell": ("FluxPipeline", "FlowMatchEulerDiscreteScheduler", {**flux, "transformer": model("FluxTransformer2DModel", **FLUX)}),
        "flux-kontext": ("FluxKontextPipeline", "FlowMatchEulerDiscreteScheduler", {**flux, "transformer": model("FluxTransformer2DModel", **FLUX, guidance_embeds=True), "image_encoder": None, "feature_extractor": None}),
        "chroma": ("ChromaPipeline", "FlowMatchEulerDiscreteScheduler", {"vae": FLUX_VAE, "text_encoder": lambda: t5(32), "tokenizer": T5_TOKENIZER, "transformer": model("ChromaTransformer2DModel", **DIT, in_channels=16, num_layers=2, num_single_layers=3, joint_attention_dim=32, axes_dims_rope=(2, 2, 4), approximator_hidden_dim=32, approximator_num_channels=8, approximator_layers=2)}),
        "wan": ("WanPipeline", "UniPCMultistepScheduler", wan),
        "wan-2.2": ("WanPipeline", "UniPCMultistepScheduler", {**wan, "transformer_2": WAN}),
        "pixart": ("PixArtAlphaPipeline", "DPMSolverMultistepScheduler", {"vae": vae(), "text_encoder": lambda: t5(24), "tokenizer": T5_TOKENIZER, "transformer": model("PixArtTransformer2DModel", **pixart)}),
        "sana": ("SanaPipeline", "DPMSolverMultistepScheduler", {"vae": model("AutoencoderDC", in_channels=3, latent_channels=4, attention_head_dim=2, encoder_block_types=("ResBlock", "EfficientViTBlock"), decoder_block_types=("ResBlock", "EfficientViTBlock"), encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8), encoder_qkv_multiscales=((), (5,)), decoder_qkv_multiscales=((), (5,)), encoder_layers_per_block=(1, 1), decoder_layers_per_block=(1, 1), downsample_block_type="conv", upsample_block_type="interpolate", decoder_norm_types="rms_norm", decoder_act_fns="silu", scaling_factor=0.41), "text_encoder": lambda: llm("Gemma2Model"), "tokenizer": ["transformers", "GemmaTokenizerFast"], "transformer": model("SanaTransformer2DModel", patch_size=1, in_channels=4, out_channels=4, num_layers=3, num_attention_heads=4, attention_head_dim=8, num_cross_attention_heads=4, cross_attention_head_dim=8, cross_attention_dim=32, caption_channels=32, sample_size=16)}),
        "ltx": ("LTXPipeline", "FlowMatchEulerDiscreteScheduler", {"vae": model("AutoencoderKLLTXVideo", latent_channels=8, block_out_channels=(8, 8, 8, 8), decoder_block_out_channels=(8, 8, 8, 8), layers_per_block=(1, 1, 1, 1, 1), decoder_layers_per_block=(1, 1, 1, 1, 1), spatio_temporal_scaling=(True, True, False, False), decoder_spatio_temporal_scaling=(True, True, False, False), decoder_inject_noise=(False,) * 5, upsample_residual=(False,) * 4, upsample_factor=(1,) * 4, timestep_conditioning=False, patch_size=1, patch_size_t=1), "text_encoder": lambda: t5(20), "tokenizer": T5_TOKENIZER, "transformer": model("LTXVideoTransformer3DModel", **DIT, in_channels=8, out_channels=8, num_layers=3, cross_attention_dim=32, caption_channels=20)}),
        "qwen-image": ("QwenImagePipeline", "FlowMatchEulerDiscreteScheduler", {"vae": model("AutoencoderKLQwenImage", base_dim=8, z_dim=4, dim_mult=[1, 2, 4], num_res_blocks=1, temperal_downsample=[False, True]), "text_encoder": qwen_vl, "tokenizer": QWEN_TOKENIZER, "transformer": model("QwenImageTransformer2DModel", **DIT, patch_size=2, in_channels=16, out_channels=4, num_layers=3, joint_attention_dim=32, axes_dims_rope=(2, 2, 4))}),
        "hunyuan-dit": ("HunyuanDiTPipeline", "DDPMScheduler", {"vae": vae(), "text_encoder": lambda: bert(), "text_encoder_2": lambda: t5(24, kind="T5EncoderModel"), "tokenizer": ["transformers", "BertTokenizer"], "tokenizer_2": T5_TOKENIZER, "transformer": model("HunyuanDiT2DModel", num_attention_heads=4, attention_head_dim=8, in_channels=4, patch_size=2, sample_size=16, num_layers=4, hidden_size=32, cross_attention_dim=32, cross_attention_dim_t5=24, pooled_projection_dim=16), "safety_checker": None}),
        "cogvideox": ("CogVideoXPipeline", "CogVideoXDDIMScheduler", {"vae": model("AutoencoderKLCogVideoX", in_channels=3, out_channels=3, down_block_types=("CogVideoXDownBlock3D",) * 4, up_block_types=("CogVideoXUpBlock3D",) * 4, block_out_channels=(8, 8, 8, 8), latent_channels=4, layers_per_block=1, norm_num_groups=2), "text_encoder": lambda: t5(32), "tokenizer": T5_TOKENIZER, "transformer": model("CogVideoXTransformer3DModel", **DIT, in_channels=4, out_channels=4, time_embed_dim=16, text_embed_dim=32, num_layers=3, sample_width=8, sample_height=8, sample_frames=5, patch_size=2, max_text_seq_length=16)}),
        "lumina-2": ("Lumina2Pipeline", "FlowMatchEulerDiscreteScheduler", {"vae": vae(4), "text_encoder": lambda: llm("Gemma2Model"), "tokenizer": ["transformers", "GemmaTokenizerFast"], "transformer": model("Lumina2Transformer2DModel", sample_size=16, patch_size=2, in_channels=4, hidden_size=32, num_layers=3, num_refiner_layers=2, num_attention_heads=4, num_kv_heads=2, multiple_of=16, axes_dim_rope=(4, 2, 2), axes_lens=(32, 16, 16), cap_feat_dim=32)}),
        "aura-flow": ("AuraFlowPipeline", "FlowMatchEulerDiscreteScheduler", {"vae": vae(4), "text_encoder": lambda: t5(32, kind="UMT5EncoderModel"), "tokenizer": T5_TOKENIZER, "transformer": model("AuraFlowTransformer2DModel", sample_size=16, patch_size=2, in_channels=4, out_channels=4, num_mmdit_layers=2, num_single_dit_layers=3, joint_attention_dim=32, caption_projection_dim=32, pos_embed_max_size=64, **DIT)}),
        "mochi": ("MochiPipeline", "FlowMatchEulerDiscreteScheduler", {"vae": model("AutoencoderKLMochi", latent_channels=4, out_channels=3, encoder_block_out_channels=(32, 32, 32, 32), decoder_block_out_channels=(32, 32, 32, 32), layers_per_block=(1, 1, 1, 1, 1)), "text_encoder": lambda: t5(32), "tokenizer": T5_TOKENIZER, "transformer": model("MochiTransformer3DModel", **DIT, patch_size=2, num_layers=3, pooled_projection_dim=16, in_channels=4, text_embed_dim=32, time_embed_dim=8, max_sequence_length=16)}),
        "ddpm": ("DDPMPipeline", "DDPMScheduler", {"unet": model("UNet2DModel", sample_size=16, block_out_channels=(32, 64), layers_per_block=2, down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), norm_num_groups=8)}),
        "kandinsky": ("KandinskyV22Pipeline", "DDPMScheduler", {"unet": unet(24, in_channels=4, out_channels=8, encoder_hid_dim=24, encoder_hid_dim_type="image_proj", addition_embed_type="image", down_block_types=("ResnetDownsampleBlock2D", "SimpleCrossAttnDownBlock2D"), up_block_types=("SimpleCrossAttnUpBlock2D", "ResnetUpsampleBlock2D"), mid_block_type="UNetMidBlock2DSimpleCrossAttn", resnet_time_scale_shift="scale_shift"), "movq": model("VQModel", block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D", "AttnDownEncoderBlock2D"), up_block_types=("AttnUpDecoderBlock2D", "UpDecoderBlock2D"), layers_per_block=1, latent_channels=4, norm_num_groups=8, num_vq_embeddings=12, vq_embed_dim=4, norm_type="spatial")}),
        "svd": ("StableVideoDiffusionPipeline", "EulerDiscreteScheduler", {"vae": model("AutoencoderKLTemporalDecoder", block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D",) * 2, latent_channels=4, layers_per_block=1), "image_encoder": lambda: vision(32), "feature_extractor": IMAGES, "unet": model("UNetSpatioTemporalConditionModel", block_out_channels=(32, 64), num_attention_heads=(4, 8), layers_per_block=1, cross_attention_dim=32, down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"), up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"), addition_time_embed_dim=8, projection_class_embeddings_input_dim=24)}),
    }
    for name, (class_name, scheduler, components) in found.items():
        yield name, lambda: pipeline(class_name, scheduler, components)


def bert(**rest):
    import transformers

    return transformers.BertModel(transformers.BertConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, vocab_size=100, max_position_embeddings=64, **rest))


@kind
def models(folder):
    """Every model class of diffusers with its defaults, or with a number for each required setting."""
    from diffusers_samples import classes, defaults
    from timm_models import without_initialization

    without_initialization()

    def make(class_):
        settings = {}
        if any(value is None for value in defaults(class_).values()):
            for attempt in ({}, {key: 64 for key, value in defaults(class_).items() if value is None}):
                try:
                    with torch.device("meta"):
                        class_(**attempt)
                    settings = attempt
                    break
                except Exception:
                    continue
        files, _ = component(lambda: class_(**settings))
        return {"files": files}

    for name, class_ in sorted(classes().items()):
        yield name, lambda class_=class_: make(class_)


@kind
def classes_with_options(folder):
    """Every model class of diffusers with one to four options changed at once, so that it still can be built."""
    import diffusers_samples as samples
    from timm_models import without_initialization

    without_initialization()

    def make(class_, number):
        rng = random.Random(f"{class_.__name__} {number}")
        found = samples.defaults(class_)
        for given in samples.required(class_):
            settings = {**given, **samples.small(class_, {**found, **given})}
            try:
                component(lambda: class_(**settings))
                break
            except Exception:
                continue
        values = {**found, **settings}
        for attempt in range(60):
            keys = rng.sample(sorted(values), min(len(values), 1 + attempt % 4))
            choices = {key: samples.other_values(class_, key, values[key]) for key in keys if not key.startswith("_")}
            changes = {key: rng.choice(choice) for key, choice in choices.items() if choice}
            if attempt % 4 == 3:
                changes |= rng.choice([*samples.other_lengths(values), {}])
            listed = {key: list(value) if isinstance(value, tuple) and isinstance(found.get(key), list) else value for key, value in {**settings, **changes}.items()}
            try:
                return {"files": component(lambda: class_(**listed))[0], "changes": plain(changes)}
            except Exception as error:
                last = error
        raise last

    for name, class_ in sorted(samples.classes().items()):
        for number in range(int(os.environ.get("OPTIONS", 4))):
            yield f"{name}-{number}", lambda class_=class_, number=number: make(class_, number)
    empty = {"down_block_types": (), "up_block_types": (), "block_out_channels": ()}
    yield "AutoencoderKL-empty", lambda: {"files": component(lambda: samples.classes()["AutoencoderKL"](**empty))[0]}
    for name in ("UNet2DConditionModel", "UNet2DModel", "UNetMotionModel", "UNet3DConditionModel"):
        yield f"{name}-no-middle", lambda name=name: {"files": component(lambda: samples.classes()[name](mid_block_type=None))[0]}


# PEFT


def bases():
    return {
        "llama": lambda: llm("LlamaForCausalLM"),
        "qwen3": lambda: llm("Qwen3ForCausalLM", tie_word_embeddings=True),
        "gpt2": lambda: __import__("transformers").GPT2LMHeadModel(__import__("transformers").GPT2Config(n_embd=32, n_head=4, n_layer=4, vocab_size=120, n_positions=32)),
        "bert": lambda: __import__("transformers").BertForSequenceClassification(__import__("transformers").BertConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, vocab_size=100, num_labels=3)),
        "t5": lambda: t5(kind="T5ForConditionalGeneration"),
        "whisper": lambda: __import__("transformers").WhisperForConditionalGeneration(__import__("transformers").WhisperConfig(d_model=32, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, vocab_size=96, num_mel_bins=8, max_source_positions=16, max_target_positions=32, pad_token_id=1, bos_token_id=1, eos_token_id=2)),
        "mixtral": lambda: llm("MixtralForCausalLM", num_local_experts=3, num_experts_per_tok=2),
    }


TARGETS = {"llama": ["q_proj", "v_proj"], "qwen3": ["q_proj", "down_proj"], "gpt2": ["c_attn"], "bert": ["query", "value"], "t5": ["q", "v"], "whisper": ["q_proj", "v_proj"], "mixtral": ["q_proj", "o_proj"]}


def adapter_configs(base, targets):
    import peft

    tasks = {"bert": "SEQ_CLS", "t5": "SEQ_2_SEQ_LM", "whisper": None}
    task = tasks.get(base, "CAUSAL_LM")
    lora = lambda **rest: peft.LoraConfig(**{"r": 4, "lora_alpha": 8, "target_modules": targets, "task_type": task, **({"fan_in_fan_out": True} if base == "gpt2" else {}), **rest})
    yield "lora", lora()
    yield "lora-all-linear", lora(target_modules="all-linear")
    yield "lora-dora", lora(use_dora=True)
    yield "lora-layers", lora(layers_to_transform=[0, 2])
    yield "lora-rank-pattern", lora(rank_pattern={targets[0]: 2})
    yield "lora-bias", lora(lora_bias=True)
    yield "lora-rslora", lora(use_rslora=True)
    yield "lora-bias-all", lora(bias="lora_only")
    if base == "llama":
        yield "lora-saved", lora(modules_to_save=["lm_head", "embed_tokens"])
        yield "lora-embedding", lora(target_modules=[*targets, "embed_tokens"])
        yield "lora-tokens", lora(trainable_token_indices=[1, 5])
        yield "lora-regex", lora(target_modules=r".*\.(self_attn|mlp)\.(q|up)_proj")
        yield "lora-full-path", lora(target_modules=["model.layers.1.mlp.up_proj", "model.layers.0.mlp.down_proj"])
        yield "lora-unused-target", lora(target_modules=["q_proj", "query_key_value"])
        yield "lora-excluded", lora(target_modules=["q_proj", "k_proj"], exclude_modules=["layers.0.self_attn.q_proj"])
        yield "lora-replicated", lora(layer_replication=[[0, 2], [1, 3]])
    if base == "mixtral":
        yield "lora-parameters", lora(target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])
    if base == "whisper":
        yield "lora-conv", lora(target_modules=[*targets, "conv1"])
    one = dict(target_modules=targets, task_type=task)
    yield "loha", peft.LoHaConfig(r=4, **one)
    yield "lokr", peft.LoKrConfig(r=4, **one)
    yield "ia3", peft.IA3Config(target_modules=targets, feedforward_modules=[], task_type=task, **({"fan_in_fan_out": True} if base == "gpt2" else {}))
    if base != "gpt2":
        yield "vera", peft.VeraConfig(r=8, **one)
        yield "adalora", peft.AdaLoraConfig(total_step=10, init_r=6, target_r=4, **one)
        yield "oft", peft.OFTConfig(oft_block_size=4, **one)
        yield "boft", peft.BOFTConfig(boft_block_size=4, **one)
        yield "hra", peft.HRAConfig(r=4, **one)
        yield "fourierft", peft.FourierFTConfig(n_frequency=10, **one)
        yield "randlora", peft.RandLoraConfig(r=4, **one)
        yield "vblora", peft.VBLoRAConfig(r=4, num_vectors=8, vector_length=4, **one)
        yield "road", peft.RoadConfig(group_size=4, **one)
        yield "shira", peft.ShiraConfig(r=4, **one)
        yield "delora", peft.DeloraConfig(r=4, **one)
    if base == "llama":
        yield "c3a", peft.C3AConfig(target_modules=["o_proj"], block_size=4)
        yield "miss", peft.MissConfig(target_modules=["o_proj"], r=4)
        yield "gralora", peft.GraloraConfig(target_modules=["o_proj"], r=4, gralora_k=2)
        yield "ln-tuning", peft.LNTuningConfig(target_modules=["input_layernorm"])
        yield "trainable-tokens", peft.TrainableTokensConfig(token_indices=[1, 2], target_modules=["embed_tokens"])
        yield "prompt-tuning", peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
        yield "p-tuning", peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=4, encoder_hidden_size=16)
        yield "prefix-tuning", peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
        yield "adaption-prompt", peft.AdaptionPromptConfig(task_type="CAUSAL_LM", adapter_len=4, adapter_layers=2)


@kind
def adapters(folder):
    import peft

    def make(base, config):
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as scratch:
            plain_model = bases()[base]()
            plain_model.save_pretrained(f"{scratch}/base")
            plain_model.name_or_path = "example/base"
            peft.get_peft_model(plain_model, config).save_pretrained(f"{scratch}/adapter")
            return {"files": read_folder(f"{scratch}/adapter"), "base": read_folder(f"{scratch}/base")}

    for base, targets in TARGETS.items():
        for name, config in adapter_configs(base, targets):
            yield f"{base}-{name}", lambda base=base, config=config: make(base, config)


# sentence-transformers


@kind
def encoders(folder):
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as st

    def base(scratch, make, name="base"):
        path = pathlib.Path(scratch) / name
        torch.manual_seed(0)
        make().save_pretrained(path)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
        (path / "vocab.txt").write_text("\n".join(words) + "\n")
        transformers.BertTokenizerFast(vocab={word: at for at, word in enumerate(words)}).save_pretrained(path)
        return st.Transformer(str(path), max_seq_length=32)

    def make(first, rest):
        with tempfile.TemporaryDirectory() as scratch:
            transformer = base(scratch, first)
            model = SentenceTransformer(modules=[transformer, *rest(scratch)], device="cpu")
            model.save(f"{scratch}/model", create_model_card=False)
            return {"files": read_folder(f"{scratch}/model")}

    mpnet = lambda: transformers.MPNetModel(transformers.MPNetConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, vocab_size=100))
    found = {
        "bert-mean": (bert, lambda _: [st.Pooling(32)]),
        "bert-normalize": (bert, lambda _: [st.Pooling(32), st.Normalize()]),
        "bert-cls": (bert, lambda _: [st.Pooling(32, pooling_mode="cls")]),
        "bert-two-modes": (bert, lambda _: [st.Pooling(32, pooling_mode=("cls", "mean")), st.Dense(64, 16)]),
        "bert-dense": (bert, lambda _: [st.Pooling(32), st.Dense(32, 48)]),
        "bert-dense-twice": (bert, lambda _: [st.Pooling(32), st.Dense(32, 48), st.Dense(48, 24, bias=False), st.Normalize()]),
        "bert-layer-norm": (bert, lambda _: [st.Pooling(32), st.LayerNorm(32)]),
        "mpnet": (mpnet, lambda _: [st.Pooling(32), st.Normalize()]),
        "mpnet-dense": (mpnet, lambda _: [st.Pooling(32), st.Dense(32, 32, bias=False)]),
        "roberta": (lambda: transformers.RobertaModel(transformers.RobertaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, vocab_size=100)), lambda _: [st.Pooling(32), st.Dense(32, 16), st.Normalize()]),
        "t5": (lambda: t5(32), lambda _: [st.Pooling(32), st.Dense(32, 16, bias=False), st.Normalize()]),
        "distilbert": (lambda: transformers.DistilBertModel(transformers.DistilBertConfig(dim=32, hidden_dim=48, n_layers=3, n_heads=4, vocab_size=100)), lambda _: [st.Pooling(32), st.Dense(32, 64)]),
        "qwen3": (lambda: llm("Qwen3Model"), lambda _: [st.Pooling(32, pooling_mode="lasttoken"), st.Normalize()]),
        "token-dense": (bert, lambda _: [st.Dense(32, 16, bias=False, module_input_name="token_embeddings", module_output_name="token_embeddings")]),
        "word-weights": (bert, lambda _: [st.WordWeights(vocab=[*"abc"], word_weights={"a": 1.0, "b": 2.0}), st.Pooling(32)]),
        "weighted": (bert, lambda _: [st.Pooling(32, pooling_mode="weightedmean"), st.Dropout(0.1), st.Dense(32, 32)]),
        "cnn": (bert, lambda _: [st.CNN(32, 16, [1, 3]), st.Pooling(48)]),
        "lstm": (bert, lambda _: [st.LSTM(32, 16), st.Pooling(32)]),
    }
    for name, (first, rest) in found.items():
        yield name, lambda first=first, rest=rest: make(first, rest)


# timm

TIMM = """vit_tiny_patch16_224 vit_small_patch14_dinov2 vit_base_patch16_clip_224 deit3_small_patch16_224 beit_base_patch16_224 eva02_tiny_patch14_224 resnet18 resnet50 resnext50_32x4d seresnet50 wide_resnet50_2
resnetv2_50 convnext_tiny convnextv2_nano efficientnet_b0 tf_efficientnetv2_s mobilenetv3_large_100 mobilenetv2_100 mobilenetv4_conv_small regnety_016 regnetx_008 densenet121 vgg11_bn swin_tiny_patch4_window7_224
swinv2_tiny_window8_256 mixer_s16_224 gmlp_s16_224 cait_xxs24_224 xcit_nano_12_p16_224 levit_128s coat_tiny crossvit_tiny_240 pit_ti_224 tnt_s_patch16_224 twins_svt_small volo_d1_224 poolformer_s12 caformer_s18 maxvit_tiny_rw_224
coatnet_nano_rw_224 edgenext_small efficientformer_l1 fastvit_t8 focalnet_tiny_srf hrnet_w18_small hiera_tiny_224 inception_v3 inception_next_tiny mobilevit_s mobilevitv2_050 mvitv2_tiny nextvit_small nf_regnet_b1 pvt_v2_b0
repvgg_a0 res2net50_26w_4s rexnet_100 samvit_base_patch16 ghostnet_100 hardcorenas_a davit_tiny dla34 dpn68 cspresnet50 darknet53 gcresnet33ts botnet26t_256 lambda_resnet26t convmixer_768_32 sequencer2d_s visformer_tiny xception41
vit_so400m_patch14_siglip_224 naflexvit_base_patch16_gap starnet_s1 tiny_vit_5m_224 repvit_m1 mambaout_femto rdnet_tiny convit_tiny deit_tiny_distilled_patch16_224 efficientvit_b0 efficientvit_m0 shvit_s1 swiftformer_xs vovnet39a""".split()


@kind
def timm(folder):
    import timm as library
    from timm.models._hub import save_config_for_hf

    def make(name, **rest):
        with torch.device("meta"):
            made = library.create_model(name, **rest)
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "config.json"
            save_config_for_hf(made, path, model_args=rest.get("model_args"))
            config = json.loads(path.read_text())
        return {"files": {"config.json": config, "model.safetensors": stored(made.state_dict())}}

    for name in TIMM:
        yield name, lambda name=name: make(name)
    for name in ("resnet18", "vit_tiny_patch16_224", "convnext_tiny", "efficientnet_b0"):
        yield f"{name}-10", lambda name=name: make(name, num_classes=10)
        yield f"{name}-0", lambda name=name: make(name, num_classes=0)


def main():
    folder, *kinds = sys.argv[1:]
    failed = 0
    for name in kinds or KINDS:
        target = pathlib.Path(folder) / name
        target.mkdir(parents=True, exist_ok=True)
        for repository, make in KINDS[name](target):
            path = target / f"{repository}.json"
            if path.exists():
                continue
            try:
                path.write_text(json.dumps({"kind": name, **make()}))
            except Exception:
                failed += 1
                print(name, repository, traceback.format_exc().strip().splitlines()[-1][:200], flush=True)
        print(name, len(list(target.glob("*.json"))), "repositories", flush=True)
    print(failed, "failed")


if __name__ == "__main__":
    main()
