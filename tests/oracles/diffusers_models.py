#!/usr/bin/env python3
"""Writes fixtures of tiny models of diffusers, in the kinds that published ones have.

    tests/oracles/diffusers_models.py [FOLDER: fixtures/diffusers]

Needs diffusers and torch. No weights are made: the models have shapes only.
"""

import pathlib
import sys

import diffusers
import torch

from fixture import ROOT, write

DIT = {"attention_head_dim": 8, "num_attention_heads": 3, "in_channels": 4}
UNET = {"block_out_channels": (32, 64), "layers_per_block": 1, "cross_attention_dim": 24, "attention_head_dim": 8, "norm_num_groups": 8}
VAE = {"block_out_channels": (8, 16, 24), "down_block_types": ("DownEncoderBlock2D",) * 3, "up_block_types": ("UpDecoderBlock2D",) * 3, "norm_num_groups": 4}
CROSS = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}
FLUX = {"num_layers": 2, "num_single_layers": 3, "joint_attention_dim": 20, "pooled_projection_dim": 28, "axes_dims_rope": (2, 2, 4)}
SD3 = {"num_layers": 3, "joint_attention_dim": 20, "caption_projection_dim": 24, "pooled_projection_dim": 28, "patch_size": 2, "pos_embed_max_size": 6, "sample_size": 8}
WAN = {"num_layers": 2, "text_dim": 20, "ffn_dim": 40, "out_channels": 6}
PIXART = {"num_layers": 2, "cross_attention_dim": 24, "caption_channels": 20, "patch_size": 2, "sample_size": 8, "norm_type": "ada_norm_single"}

# The class and the settings of each fixture.
MODELS = {
    "flux-schnell": ("FluxTransformer2DModel", {**DIT, **FLUX}),
    "flux-dev": ("FluxTransformer2DModel", {**DIT, **FLUX, "guidance_embeds": True}),
    "flux-fill": ("FluxTransformer2DModel", {**DIT, **FLUX, "guidance_embeds": True, "in_channels": 12, "out_channels": 4}),
    "sd3-medium": ("SD3Transformer2DModel", {**DIT, **SD3}),
    "sd3.5-large": ("SD3Transformer2DModel", {**DIT, **SD3, "qk_norm": "rms_norm"}),
    "sd3.5-medium": ("SD3Transformer2DModel", {**DIT, **SD3, "qk_norm": "rms_norm", "dual_attention_layers": (0, 1)}),
    "qwen-image": ("QwenImageTransformer2DModel", {**DIT, "num_layers": 2, "joint_attention_dim": 20, "patch_size": 2, "out_channels": 1, "axes_dims_rope": (2, 2, 4)}),
    "wan-t2v": ("WanTransformer3DModel", {**DIT, **WAN}),
    "wan-i2v": ("WanTransformer3DModel", {**DIT, **WAN, "image_dim": 16, "added_kv_proj_dim": 24}),
    "ltx": ("LTXVideoTransformer3DModel", {**DIT, "num_layers": 2, "cross_attention_dim": 24, "caption_channels": 20}),
    "pixart-alpha": ("PixArtTransformer2DModel", {**DIT, **PIXART, "use_additional_conditions": True}),
    "pixart-sigma": ("PixArtTransformer2DModel", {**DIT, **PIXART, "out_channels": 8, "use_additional_conditions": False}),
    "sd15": ("UNet2DConditionModel", {**UNET, **CROSS}),
    "sd15-inpainting": ("UNet2DConditionModel", {**UNET, **CROSS, "in_channels": 9}),
    "sd21": ("UNet2DConditionModel", {**UNET, **CROSS, "use_linear_projection": True, "attention_head_dim": (4, 8)}),
    "sdxl": ("UNet2DConditionModel", {**UNET, "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"), "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"), "transformer_layers_per_block": (1, 2), "addition_embed_type": "text_time", "addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 80, "use_linear_projection": True}),
    "sd-x4-upscaler": ("UNet2DConditionModel", {**UNET, "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"), "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"), "only_cross_attention": (True, False), "in_channels": 7, "num_class_embeds": 10}),
    "vae-sd": ("AutoencoderKL", VAE),
    "vae-flux": ("AutoencoderKL", {**VAE, "latent_channels": 16, "use_quant_conv": False, "use_post_quant_conv": False}),
    "vae-without-blocks": ("AutoencoderKL", {"block_out_channels": (8,), "down_block_types": (), "up_block_types": (), "norm_num_groups": 4}),
}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "fixtures" / "diffusers")
    for name, (kind, settings) in MODELS.items():
        with torch.device("meta"):
            model = getattr(diffusers, kind)(**settings)
        config = {key: value for key, value in dict(model.config).items() if key != "_name_or_path" and key != "_use_default_values"}
        tensors = [{"name": name, "dtype": "BF16", "shape": list(tensor.shape)} for name, tensor in sorted(model.state_dict().items())]
        config = {"_class_name": kind, "_diffusers_version": diffusers.__version__, **config}
        write(folder, {"name": name, "written_by": f"diffusers {diffusers.__version__}", "config": config, "tensors": tensors})


main()
