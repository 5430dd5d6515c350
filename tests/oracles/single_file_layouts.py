#!/usr/bin/env python3
"""Writes `architectures/single_file_layouts.txt`: the tensors of whole diffusion models in one file, before diffusers converts them.

    tests/oracles/single_file_layouts.py TABLE [FOLDER]

The converters of diffusers (`loaders/single_file_utils.py`, `loaders/unet.py`) run on names in place of tensors. A converter that takes
tensors by their names shows which ones it needs. One that goes over the names that a file has gets the names of the original
model, and must make of them all the names of the diffusers class. The shapes are those of the class, whose configuration is the
one of the published model. With FOLDER, it also writes the tensors of sound files, which `single_files.py` breaks.
"""

import json
import os
import pathlib
import re
import sys
import types

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from diffusers import AutoencoderKL, FluxTransformer2DModel, SD3Transformer2DModel, UNet2DConditionModel
from diffusers.loaders import single_file_utils as utils
from diffusers.loaders.unet import UNet2DConditionLoadersMixin
from transformers import CLIPTextConfig, CLIPTextModelWithProjection

import layout_blocks

HEADER = """# The tensors of whole diffusion models in one file, by part. Written by tests/oracles/single_file_layouts.py from the converters of
# diffusers {version}; a second run writes the same table. `layouts.txt` explains the lines of modules.
#
#   single-file KIND PREFIX=LAYOUT ...   the parts of a kind of files. `?` begins a part that may be missing, and `|` separates prefixes"""

# The published models: the settings that differ from the defaults of the class.
SDXL = dict(cross_attention_dim=2048, block_out_channels=(320, 640, 1280), attention_head_dim=(5, 10, 20), transformer_layers_per_block=(1, 2, 10), use_linear_projection=True, addition_embed_type="text_time",
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"), addition_time_embed_dim=256, projection_class_embeddings_input_dim=2816)
REFINER = {**SDXL, "cross_attention_dim": 1280, "block_out_channels": (384, 768, 1536, 1536), "attention_head_dim": (6, 12, 24, 24), "transformer_layers_per_block": 4, "projection_class_embeddings_input_dim": 2560,
           "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D")}
UNETS = {
    "unet-v1": dict(cross_attention_dim=768),
    "unet-v2": dict(cross_attention_dim=1024, attention_head_dim=(5, 10, 20, 20), use_linear_projection=True),
    "unet-xl": SDXL,
    "unet-xl-refiner": REFINER,
}
SD3 = dict(sample_size=128, patch_size=2, in_channels=16, out_channels=16, attention_head_dim=64, joint_attention_dim=4096, pooled_projection_dim=2048)
SD3S = {
    "sd3-medium": dict(num_layers=24, num_attention_heads=24, caption_projection_dim=1536, pos_embed_max_size=192),
    "sd3.5-medium": dict(num_layers=24, num_attention_heads=24, caption_projection_dim=1536, pos_embed_max_size=384, qk_norm="rms_norm", dual_attention_layers=tuple(range(13))),
    "sd3.5-large": dict(num_layers=38, num_attention_heads=38, caption_projection_dim=2432, pos_embed_max_size=192, qk_norm="rms_norm"),
}
VAE = dict(down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4, block_out_channels=(128, 256, 512, 512), layers_per_block=2)
CLIPS = {
    "clip-l": dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, projection_dim=768),
    "clip-g": dict(hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_attention_heads=20, projection_dim=1280),
    "clip-h": dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, projection_dim=1024),
}

# The kinds of files. ComfyUI writes all parts of a model under the prefixes of Stable Diffusion.
DIFFUSION, FIRST, ENCODERS = "model.diffusion_model.", "first_stage_model.", "text_encoders."
SD3_PARTS = f"?{FIRST}|vae.=vae-16 ?{ENCODERS}clip_l.transformer.=clip-l ?{ENCODERS}clip_g.transformer.=clip-g"
KINDS = {
    "stable-diffusion-v1": f"{DIFFUSION}=unet-v1 {FIRST}=vae-4 cond_stage_model.transformer.=clip-l",
    "stable-diffusion-v2": f"{DIFFUSION}=unet-v2 {FIRST}=vae-4 cond_stage_model.model.=open-clip-h",
    "stable-diffusion-xl": f"{DIFFUSION}=unet-xl {FIRST}=vae-4 conditioner.embedders.0.transformer.=clip-l conditioner.embedders.1.model.=open-clip-g",
    "stable-diffusion-xl-refiner": f"{DIFFUSION}=unet-xl-refiner {FIRST}=vae-4 conditioner.embedders.0.model.=open-clip-g",
    **{f"stable-diffusion-{name.removeprefix('sd')}": f"{DIFFUSION}|={name} {SD3_PARTS}" for name in SD3S},
    **{name: f"{DIFFUSION}|={part} ?vae.=vae-16 ?{ENCODERS}clip_l.transformer.=clip-l" for name, part in (("flux", "flux-1"), ("flux-lite", "flux-1-lite"))},
    "autoencoder-kl-4": "|vae.=vae-4",
    "autoencoder-kl-16": "|vae.=vae-16",
    **{f"ip-adapter{image}-{base}": f"ip_adapter.=ip-adapter-{base} image_proj.=image-projection{image}-{base}" for base in ("v1", "xl") for image in ("", "-plus")},
}

# The lists whose elements are equal, but for those at an end.
LIST = re.compile(r"\b(joint_blocks|double_blocks|single_blocks|resblocks|transformer_blocks|layers)\.(\d+)")


class Symbol:
    """A tensor that is only a name. Its parts remember it."""

    dtype, device = torch.float32, torch.device("cpu")

    def __init__(self, name, is_turned=False):
        self.name, self.is_turned, self.ndim, self.shape = name, is_turned, 2, [1280, 1280]

    @property
    def T(self):
        return Symbol(self.name, not self.is_turned)

    def __getitem__(self, _):
        return Symbol(self.name, self.is_turned)

    def chunk(self, parts, dim=0):
        return [self[0] for _ in range(parts)]

    contiguous = clone = detach = lambda self: self


class Checkpoint(dict):
    """A file that has every tensor that a converter takes. The names tell the converter its options and its depth."""

    def __init__(self, names):
        super().__init__({name: Symbol(name) for name in names})
        self.taken = []

    def __missing__(self, name):
        return Symbol(name)

    def pop(self, name, *default):
        self.taken.append(name)
        return Symbol(name)


def with_symbols(convert, *arguments, **options):
    """Runs a converter whose `torch` joins and splits symbols."""
    cat = lambda parts, dim=0: parts[0]
    split = lambda tensor, sizes, dim=0: tensor.chunk(len(sizes))
    known = types.SimpleNamespace(cat=cat, chunk=lambda tensor, parts, dim=0: tensor.chunk(parts), split=split)
    real, utils.torch = utils.torch, known
    try:
        return convert(*arguments, **options)
    finally:
        utils.torch = real


def state(make):
    with torch.device("meta"):
        model = make()
    return model, {name: list(tensor.shape) for name, tensor in model.state_dict().items() if not name.endswith("position_ids")}


def original(converted, shapes):
    """Returns the shapes of the original tensors: the rows of all parts that the converter makes of each."""
    assert set(converted) == set(shapes), sorted(set(converted) ^ set(shapes))[:8]
    found = {}
    for name, symbol in converted.items():
        shape = shapes[name][::-1] if symbol.is_turned else shapes[name]
        known = found.setdefault(symbol.name, [0, *shape[1:]])
        assert known[1:] == shape[1:], (name, known, shape)
        known[0] += shape[0]
    return found


def taken(convert, shapes, names):
    checkpoint = Checkpoint(names)
    converted = with_symbols(convert, checkpoint)
    found = original(converted, shapes)
    # A converter may take tensors of which it makes nothing.
    assert set(checkpoint.taken) == set(found), set(checkpoint.taken) ^ set(found)
    return found


def replaced(name, rules):
    for pattern, replacement in rules:
        name, count = re.subn(pattern, replacement, name)
        if count:
            return name
    return None


def inside(name, rules):
    for old, new in rules:
        name = name.replace(old, new)
    return name


RESNET = [("norm1", "in_layers.0"), ("conv1", "in_layers.2"), ("norm2", "out_layers.0"), ("conv2", "out_layers.3"), ("time_emb_proj", "emb_layers.1"), ("conv_shortcut", "skip_connection")]


def unet(settings):
    model, shapes = state(lambda: UNet2DConditionModel(**settings))
    layers = model.config.layers_per_block + 1
    tables = utils.DIFFUSERS_TO_LDM_MAPPING["unet"]
    known = {**tables["layers"], **(tables["addition_embed_type"] if settings.get("addition_embed_type") else {})}
    rest = [match for name in shapes if (match := re.match(r"up_blocks\.(\d+)\.attentions", name))]
    with_attention = {int(match[1]) for match in rest}

    def ldm(name):
        if name in known:
            return known[name]
        if match := re.match(r"(down|up)_blocks\.(\d+)\.(resnets|attentions)\.(\d+)\.(.*)", name):
            side, block, kind, number, rest = match.groups()
            at = int(block) * layers + int(number) + (side == "down")
            return f"{'input' if side == 'down' else 'output'}_blocks.{at}.{int(kind == 'attentions')}.{inside(rest, RESNET) if kind == 'resnets' else rest}"
        if match := re.match(r"down_blocks\.(\d+)\.downsamplers\.0\.conv\.(.*)", name):
            return f"input_blocks.{(int(match[1]) + 1) * layers}.0.op.{match[2]}"
        if match := re.match(r"up_blocks\.(\d+)\.upsamplers\.0\.conv\.(.*)", name):
            return f"output_blocks.{(int(match[1]) + 1) * layers - 1}.{1 + (int(match[1]) in with_attention)}.conv.{match[2]}"
        match = re.match(r"mid_block\.(resnets|attentions)\.(\d)\.(.*)", name)
        return f"middle_block.{2 * int(match[2]) + (match[1] == 'attentions')}.{inside(match[3], RESNET) if match[1] == 'resnets' else match[3]}"

    names = [utils.LDM_UNET_KEY + ldm(name) for name in shapes]
    converted = with_symbols(utils.convert_ldm_unet_checkpoint, {name: Symbol(name) for name in names}, dict(model.config))
    found = without(utils.LDM_UNET_KEY, original(converted, shapes))
    # Models that also read an image or a mask have more channels.
    found["input_blocks.0.0.weight"][1] = "_"
    return found


def without(prefix, found):
    return {name.removeprefix(prefix): shape for name, shape in found.items()}


def vae(channels):
    has_conv = channels == 4
    model, shapes = state(lambda: AutoencoderKL(**VAE, latent_channels=channels, use_quant_conv=has_conv, use_post_quant_conv=has_conv))
    known = utils.DIFFUSERS_TO_LDM_MAPPING["vae"]
    blocks = len(VAE["block_out_channels"])
    attention = [("group_norm", "norm"), ("to_q", "q"), ("to_k", "k"), ("to_v", "v"), ("to_out.0", "proj_out")]

    def ldm(name):
        if name in known:
            return known[name]
        if match := re.match(r"(encoder|decoder)\.(down|up)_blocks\.(\d+)\.(.*)", name):
            part, side, block, rest = match.groups()
            at = int(block) if side == "down" else blocks - 1 - int(block)
            return f"{part}.{side}.{at}." + inside(rest, [("resnets", "block"), ("conv_shortcut", "nin_shortcut"), ("downsamplers.0", "downsample"), ("upsamplers.0", "upsample")])
        match = re.match(r"(encoder|decoder)\.mid_block\.(resnets|attentions)\.(\d)\.(.*)", name)
        part, kind, number, rest = match.groups()
        return f"{part}.mid.{'block' if kind == 'resnets' else 'attn'}_{int(number) + 1}." + (rest if kind == "resnets" else inside(rest, attention))

    converted = with_symbols(utils.convert_ldm_vae_checkpoint, {name: Symbol(name) for name in map(ldm, shapes)}, dict(model.config))
    found = original(converted, shapes)
    # The attention is a convolution in some files, and a linear module in others.
    return {name: "_" if ".attn_1." in name and name.endswith("weight") and ".norm." not in name else shape for name, shape in found.items()}


def clip(name):
    config = CLIPTextConfig(**CLIPS[name], vocab_size=49408, max_position_embeddings=77)
    return state(lambda: CLIPTextModelWithProjection(config))[1]


def open_clip(name):
    shapes, prefix = clip(name), "conditioner.embedders.1.model."
    known = utils.DIFFUSERS_TO_LDM_MAPPING["openclip"]["layers"]
    parts = [(".self_attn.out_proj", ".attn.out_proj"), ("layer_norm1", "ln_1"), ("layer_norm2", "ln_2"), ("fc1", "mlp.c_fc"), ("fc2", "mlp.c_proj"), ("mlp.mlp.", "mlp.")]

    def ldm(key):
        if key in known:
            return prefix + known[key]
        layer, rest = re.match(r"text_model\.encoder\.layers\.(\d+)\.(.*)", key).groups()
        rest = re.sub(r"self_attn\.[qkv]_proj\.", "attn.in_proj_", rest)
        return f"{prefix}transformer.resblocks.{layer}.{inside('.' + rest, parts)[1:]}"

    config = types.SimpleNamespace(config=types.SimpleNamespace(hidden_size=CLIPS[name]["hidden_size"]))
    converted = with_symbols(utils.convert_open_clip_checkpoint, config, {key: Symbol(key) for key in map(ldm, shapes)}, prefix)
    return without(prefix, original(converted, shapes))


def sd3(settings):
    model, shapes = state(lambda: SD3Transformer2DModel(**SD3, **settings))
    shapes["pos_embed.pos_embed"] = [1, settings["pos_embed_max_size"] ** 2, settings["caption_projection_dim"]]
    names = [f"joint_blocks.{settings['num_layers'] - 1}.x", *(["ln_q"] if settings.get("qk_norm") else [])]
    names += [f"joint_blocks.{layer}.attn2." for layer in settings.get("dual_attention_layers", ())]
    names = [name.replace("attn2.", "x_block.attn2.x") for name in names]
    return taken(utils.convert_sd3_transformer_checkpoint_to_diffusers, shapes, names)


def flux(layers):
    model, shapes = state(lambda: FluxTransformer2DModel(guidance_embeds=True, num_layers=layers))
    found = taken(utils.convert_flux_transformer_checkpoint_to_diffusers, shapes, [f"double_blocks.{layers - 1}.x", "single_blocks.37.x", "guidance"])
    # FLUX.1 Fill, Depth and Canny also read an image.
    found["img_in.weight"][1] = "_"
    return found


def ip_adapter(base):
    """Returns the parts of IP-Adapters. `_convert_ip_adapter_attn_to_diffusers` takes two tensors for each cross attention, in the order
    of the attention processors of the UNet, in which every second one is a self attention."""
    model, _ = state(lambda: UNet2DConditionModel(**UNETS[f"unet-{base}"]))
    cross = model.config.cross_attention_dim
    widths = []
    for name in model.attn_processors:
        if not name.endswith("attn1.processor"):
            blocks = model.config.block_out_channels
            match = re.match(r"(down|up)_blocks\.(\d+)|mid", name)
            widths.append(blocks[-1] if match[1] is None else (blocks if match[1] == "down" else blocks[::-1])[int(match[2])])
    found = {f"{1 + 2 * number}.to_{part}_ip.weight": [width, cross] for number, width in enumerate(widths) for part in "kv"}
    taken_names = set()

    class Recorded(dict):
        def __missing__(self, key):
            taken_names.add(key)
            return torch.empty(found[key], device="meta")

    loader = UNet2DConditionLoadersMixin()
    loader.attn_processors, loader.config = model.attn_processors, model.config
    image = {"proj.weight": torch.empty(4 * cross, 1024, device="meta")}
    # It compares the shapes, too.
    loader._convert_ip_adapter_attn_to_diffusers([{"ip_adapter": Recorded(), "image_proj": image}])
    assert taken_names == set(found), sorted(taken_names ^ set(found))[:6]
    return found


def image_projection(kind, base):
    cross, width = {"v1": (768, 1024), "xl": (2048, 1280)}[base]
    if kind == "":
        return {"proj.weight": [4 * cross, "_"], "proj.bias": [4 * cross], "norm.weight": [cross], "norm.bias": [cross]}
    # `IPAdapterPlusImageProjection` in `models/embeddings.py`: the tensors that `_convert_ip_adapter_image_proj_to_diffusers` renames.
    hidden = {"v1": 768, "xl": 1280}[base]
    found = {"latents": [1, "_", hidden], "proj_in.weight": [hidden, "_"], "proj_in.bias": [hidden], "proj_out.weight": [cross, hidden], "proj_out.bias": [cross], "norm_out.weight": [cross], "norm_out.bias": [cross]}
    for layer in range(4):
        start = f"layers.{layer}."
        for norm in ("norm1", "norm2"):
            found |= {f"{start}0.{norm}.weight": [hidden], f"{start}0.{norm}.bias": [hidden]}
        found |= {f"{start}0.to_q.weight": ["_", hidden], f"{start}0.to_kv.weight": ["_", hidden], f"{start}0.to_out.weight": [hidden, "_"]}
        found |= {f"{start}1.0.weight": [hidden], f"{start}1.0.bias": [hidden], f"{start}1.1.weight": [4 * hidden, hidden], f"{start}1.3.weight": [hidden, 4 * hidden]}
    return found


def words(found, name):
    """Returns the words of a layout: one for each module, with the numbers of lists as `#`."""
    modules = {}
    for tensor, shape in found.items():
        module, _, part = tensor.rpartition(".")
        if part not in ("weight", "bias"):
            module, part = tensor, "weight"
        modules.setdefault(module, {})[part] = shape
    grouped, lengths = {}, {}
    for module, parts in modules.items():
        numbers, pattern = [number for _, number in LIST.findall(module)], LIST.sub(r"\1.#", module)
        grouped.setdefault(pattern, []).append((int(numbers[0]) if numbers else None, parts))
        if numbers:
            lengths.setdefault(pattern[: pattern.index("#") + 1], set()).add(int(numbers[0]))
    # OpenCLIP's last layer is not used, and some files lack it.
    made = {path: "_" if name == "open-clip-h" else str(max(numbers) + 1) for path, numbers in lengths.items()}
    for pattern, instances in grouped.items():
        shapes = [parts["weight"] for _, parts in instances]
        sides = ["_"] if "_" in shapes else [str(shapes[0][side]) if len({str(shape[side]) for shape in shapes}) == 1 else "_" for side in range(len(shapes[0]))]
        has_bias = all("bias" in parts for _, parts in instances)
        value = ("+" if has_bias else "") + ",".join(sides)
        numbers = [number for number, _ in instances]
        if "#" in pattern and (length := int(max(lengths[pattern[: pattern.index("#") + 1]])) + 1) > len(numbers):
            assert numbers == list(range(len(numbers))), pattern
            value += f";layer<{len(numbers)}"
        made[pattern] = value
    return made


def parts():
    found = {name: unet(settings) for name, settings in UNETS.items()}
    found |= {"vae-4": vae(4), "vae-16": vae(16)}
    clips = {name: clip(name) for name in ("clip-l", "clip-g")}
    found |= clips
    found |= {"open-clip-g": open_clip("clip-g"), "open-clip-h": open_clip("clip-h")}
    found |= {name: sd3(settings) for name, settings in SD3S.items()}
    found |= {"flux-1": flux(19), "flux-1-lite": flux(8)}
    for base in ("v1", "xl"):
        found[f"ip-adapter-{base}"] = ip_adapter(base)
        found |= {f"image-projection{kind}-{base}": image_projection(kind, base) for kind in ("", "-plus")}
    return found


def spare(name, key):
    """Returns whether files may lack a module that the class has: distilled models have no guidance, and two text encoders are used
    without their projections."""
    return name in ("flux-1", "flux-1-lite") and key.startswith("guidance_in.") or name in ("clip-l", "open-clip-h") and key == "text_projection"


def main():
    import diffusers

    target, *folder = sys.argv[1:]
    found = parts()
    made = {f"single-file:{name}": {key: "-" * spare(name, key) + value for key, value in words(tensors, name).items()} for name, tensors in found.items()}
    kinds = [f"single-file {kind} " + re.sub(r"=(\S+)", r"=single-file:\1", text) for kind, text in sorted(KINDS.items())]
    lines = [*HEADER.format(version=diffusers.__version__).splitlines(), "", *kinds, *layout_blocks.write(made)]
    pathlib.Path(target).write_text("\n".join(lines) + "\n")
    print(len(made), "parts,", len(kinds), "kinds,", sum(map(len, lines)) + len(lines), "bytes")
    for path in folder:
        write_samples(pathlib.Path(path, "single_files"), found)


def write_samples(folder, found):
    """Writes sound files for `broken_repositories.py`: all parts, and the main part alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, text in KINDS.items():
        parts = {}
        for part in text.split():
            prefix, name = part.split("=")
            stored = {prefix.lstrip("?").split("|")[0] + key: ["F16", [16 if side == "_" else side for side in shape]] for key, shape in found[name].items() if shape != "_"}
            odd = {prefix.lstrip("?").split("|")[0] + key: ["F16", [512, 512, 1, 1]] for key, shape in found[name].items() if shape == "_"}
            parts[prefix] = stored | odd
        required = [prefix for prefix in parts if not prefix.startswith("?")]
        every = {name: tensor for stored in parts.values() for name, tensor in stored.items()}
        samples = {kind: (every, required if len(parts) > 1 else []), f"{kind}-alone": (parts[required[0]], [])}
        if len(required) < len(parts):
            samples[f"{kind}-required"] = ({name: tensor for prefix in required for name, tensor in parts[prefix].items()}, [])
        for name, (tensors, needed) in samples.items():
            files = {f"{name}.safetensors": {"tensors": tensors}}
            folder.joinpath(f"{name}.json").write_text(json.dumps({"kind": "single_files", "required": needed, "files": files}))


if __name__ == "__main__":
    main()
