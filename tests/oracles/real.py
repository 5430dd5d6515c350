#!/usr/bin/env python3
"""Writes fixtures of tiny checkpoints that the packers themselves write on a CPU.

    tests/oracles/real.py [FOLDER: fixtures/quantized] [PACKAGE ...]

Needs the packages of `real.txt`, which `.ci/nightly` installs. A package that is missing or fails is reported, and the
exit code is 1. Only shapes are compared, so random weights do no harm.
"""

import contextlib
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
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
warnings.filterwarnings("ignore")

import torch
from safetensors.torch import save_file

from fixture import MODULES, ROOT, write

PACKAGES = {}
FOLDER = ROOT / "fixtures" / "quantized"


def package(name):
    """Registers the function that writes the fixtures of a package."""

    def register(function):
        PACKAGES[name] = function
        return function

    return register


def version(name):
    return f"{name} {importlib.metadata.version(name)}"


def llama(**rest):
    """Returns a tiny Llama of transformers with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    known = dict(hidden_size=128, intermediate_size=384, num_attention_heads=4, num_key_value_heads=1, head_dim=64, vocab_size=320, num_hidden_layers=1, max_position_embeddings=64,
                 tie_word_embeddings=False, dtype=torch.bfloat16, architectures=["LlamaForCausalLM"])
    return LlamaForCausalLM(LlamaConfig(**{**known, **rest})).to(torch.bfloat16).eval()


def parameters(model):
    """Returns the number of elements of an unquantized model, tied ones once, without constants of rank 0."""
    seen = {}
    for name, tensor in model.state_dict().items():
        if tensor.dim():
            seen[(tensor.data_ptr(), tuple(tensor.shape)) if tensor.device.type != "meta" else name] = tensor.numel()
    return sum(seen.values())


def linear(model, skip=("lm_head",)):
    """Returns the shapes of the linear layers by module name."""
    return {name: list(module.weight.shape) for name, module in model.named_modules() if isinstance(module, torch.nn.Linear) and not any(part in name for part in skip)}


def header(path):
    """Returns the tensors and the metadata of a safetensors file."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        tensors = json.loads(file.read(size))
    metadata = tensors.pop("__metadata__", None)
    listed = [{"name": name, "dtype": tensor["dtype"], "shape": tensor["shape"]} for name, tensor in sorted(tensors.items())]
    return listed, metadata


def settings(text):
    """Returns the configuration without parts that differ from run to run."""
    config = json.loads(text)
    for key in ("_name_or_path", "transformers_version"):
        config.pop(key, None)
    return config


def record(name, by, total, modules, folder, extra=(), config=None, inexact=None, files=None, unpacked=False):
    """Writes the fixture of a folder that a packer wrote."""
    folder = pathlib.Path(folder)
    shards = sorted(folder.glob("*.safetensors"))
    assert shards, f"{name}: no safetensors in {os.listdir(folder)}"
    read = [header(path) for path in shards]
    stored = {tensor["name"]: tensor for tensors, _ in read for tensor in tensors}
    as_is = [module for module, shape in modules.items() if (tensor := stored.get(f"{module}.weight")) and tensor["dtype"] in ("BF16", "F16", "F32") and tensor["shape"] == shape]
    modules = {module: shape for module, shape in modules.items() if module not in as_is}
    assert modules or unpacked, f"{name}: nothing is packed"
    case = {"name": name, "written_by": by, "true_parameters": total, "modules": modules}
    if config is None:
        path = folder / "config.json"
        config = settings(path.read_text()) if path.exists() else {}
    case["config"] = config
    case["files"] = files or {file: json.loads((folder / file).read_text()) for file in extra if (folder / file).exists()}
    if read[0][1] and set(read[0][1]) != {"format"}:
        case["metadata"] = dict(sorted(read[0][1].items()))
    if inexact:
        case["inexact"] = inexact
    if len(read) == 1:
        case["tensors"] = read[0][0]
    else:
        case["shards"] = [tensors for tensors, _ in read]
    write(FOLDER, case)
    print(f"   {name}: {len(read[0][0])} tensors, {total} parameters")


def record_state(name, by, total, modules, state, config, **rest):
    """Writes the fixture of a state dict that a packer returned."""
    with tempfile.TemporaryDirectory() as folder:
        metadata = rest.pop("metadata", {"format": "pt"})
        save_file({key: tensor.contiguous().clone() for key, tensor in state.items()}, f"{folder}/model.safetensors", metadata)
        record(name, by, total, modules, folder, config=config, **rest)


ATTEMPTS = []


def attempt(name, function):
    """Runs a part of a package, and reports its failure without stopping the others."""
    try:
        function()
    except Exception as error:
        traceback.print_exc()
        print(f"!! {name}: {type(error).__name__} {error}")
        ATTEMPTS.append(name)


@contextlib.contextmanager
def saved(model):
    """Saves an unquantized model and yields its folder."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        yield folder


def transformers_case(name, by, quantization, model=None, skip=("lm_head",), **rest):
    """Loads a tiny model with a quantization config of transformers and saves it again."""
    from transformers import AutoModelForCausalLM

    model = model or llama()
    total, modules = parameters(model), linear(model, skip)
    with saved(model) as source, tempfile.TemporaryDirectory() as target:
        packed = AutoModelForCausalLM.from_pretrained(source, quantization_config=quantization, dtype=torch.bfloat16, device_map="cpu")
        packed.save_pretrained(target)
        record(name, by, total, modules, target, **rest)


@package("bitsandbytes")
def bitsandbytes():
    from transformers import BitsAndBytesConfig

    by = version("bitsandbytes")
    bf16 = torch.bfloat16
    transformers_case("bitsandbytes-real-nf4", by, BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=bf16))
    transformers_case("bitsandbytes-real-nf4-double", by, BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True))
    transformers_case("bitsandbytes-real-fp4", by, BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="fp4"))
    transformers_case("bitsandbytes-real-nf4-bfloat16", by, BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_quant_storage=bf16))
    transformers_case("bitsandbytes-real-nf4-float32", by, BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_quant_storage=torch.float32))
    transformers_case("bitsandbytes-real-int8", by, BitsAndBytesConfig(load_in_8bit=True))


@package("torchao")
def torchao():
    from torchao.quantization import Float8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig
    from torchao.quantization.granularity import PerGroup
    from transformers import TorchAoConfig

    by = version("torchao")
    transformers_case("torchao-real-int8", by, TorchAoConfig(Int8WeightOnlyConfig(version=2)))
    transformers_case("torchao-real-int8-dynamic", by, TorchAoConfig(Int8DynamicActivationInt8WeightConfig(version=2)))
    transformers_case("torchao-real-float8", by, TorchAoConfig(Float8WeightOnlyConfig()))
    transformers_case("torchao-real-intx-4bit", by, TorchAoConfig(IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32))))


@package("torchao-tensors")
def torchao_tensors():
    """Writes tensors of torchao that need another device to be made from weights; the package flattens them."""
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import Int4PlainInt32Tensor, Int4Tensor, Int4TilePackedTo4dTensor

    by = version("torchao")
    bf16 = torch.bfloat16

    def run(name, make, config):
        model = llama()
        modules = linear(model)
        state = {}
        for key, tensor in model.state_dict().items():
            state[key] = make(tensor.to(bf16)) if key.removesuffix(".weight") in modules else tensor
        flat, metadata = flatten_tensor_state_dict(state)
        config = {**json.loads(model.config.to_json_string(use_diff=False)), "quantization_config": {"quant_method": "torchao", "quant_type": {"default": {"_type": config, "_data": {}}}}}
        record_state(name, by, parameters(model), modules, flat, settings(json.dumps(config)), metadata={**metadata, "format": "pt"})

    def int4(w, group=128):
        o, i = w.shape
        return Int4Tensor(torch.zeros(o, i // 2, dtype=torch.int8), torch.zeros(i // group, o, dtype=bf16), torch.zeros(i // group, o, dtype=bf16), [1, group], w.shape)

    def tiles(w, group=128):
        o, i = (-(-w.shape[0] // 8) * 8, -(-w.shape[1] // 1024) * 1024)
        return Int4TilePackedTo4dTensor(torch.zeros(o // 8, i // 128, 32, 4, dtype=torch.int32), torch.zeros(i // group, o, 2, dtype=bf16), [1, group], w.shape)

    def plain32(w, group=128):
        o, i = w.shape
        return Int4PlainInt32Tensor(torch.zeros(o, i // 8, dtype=torch.int32), torch.zeros(i // group, o, dtype=bf16), torch.zeros(i // group, o, dtype=torch.int8), [1, group], w.shape)

    by = f"{version('torchao')}, tensors of stated shapes"
    run("torchao-stated-int4", int4, "Int4WeightOnlyConfig")
    run("torchao-stated-int4-tile-packed", tiles, "Int4WeightOnlyConfig")
    run("torchao-stated-int4-plain-int32", plain32, "Int4WeightOnlyConfig")
    by = version("torchao")
    run("torchao-real-nvfp4", lambda w: NVFP4Tensor.to_nvfp4(w, per_tensor_scale=torch.tensor(1.0)), "NVFP4WeightOnlyConfig")
    run("torchao-real-mxfp8", lambda w: MXTensor.to_mx(w, torch.float8_e4m3fn, 32), "MXDynamicActivationMXWeightConfig")
    run("torchao-real-mxfp4", lambda w: MXTensor.to_mx(w, torch.float4_e2m1fn_x2, 32), "MXDynamicActivationMXWeightConfig")


@package("sinq")
def sinq():
    """Writes models whose modules have buffers that are computed, which this package stores."""
    from transformers import AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, SinqConfig

    by = version("sinq")
    sizes = dict(hidden_size=128, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2, head_dim=32, vocab_size=320, num_hidden_layers=2, max_position_embeddings=64)
    models = {"sinq-real-llama": lambda: llama(intermediate_size=256), "sinq-real-gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**sizes))}
    for name, create in models.items():
        with tempfile.TemporaryDirectory() as folder:
            model = create()
            model.save_pretrained(f"{folder}/plain")
            total, modules = parameters(model), linear(model)
            config = SinqConfig(nbits=4, group_size=64, method="sinq", modules_to_not_convert=["lm_head"])
            AutoModelForCausalLM.from_pretrained(f"{folder}/plain", quantization_config=config, device_map="cpu", dtype=torch.bfloat16).save_pretrained(f"{folder}/packed")
            record(name, by, total, modules, f"{folder}/packed")


@package("optimum-quanto")
def quanto():
    from optimum.quanto import freeze, qfloat8, qint2, qint4, qint8, quantization_map, quantize

    by = version("optimum-quanto")
    for name, dtype in (("int2", qint2), ("int4", qint4), ("int8", qint8), ("float8", qfloat8)):
        model = llama()
        total, modules = parameters(model), linear(model)
        quantize(model, weights=dtype, exclude="lm_head")
        freeze(model)
        config = {**settings(model.config.to_json_string()), "quantization_config": {"quant_method": "quanto", "weights": name, "activations": None, "modules_to_not_convert": ["lm_head"]}}
        record_state(f"quanto-real-{name}", by, total, modules, model.state_dict(), config, files={"quanto_qmap.json": quantization_map(model)})

    def convolution(name, dtype):
        model = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3, bias=False), torch.nn.Conv2d(32, 48, 1))
        total, modules = parameters(model), {"0": [32, 144], "1": [48, 32]}
        quantize(model, weights=dtype)
        freeze(model)
        record_state(f"quanto-real-conv-{name}", by, total, modules, model.state_dict(), {"quantization_config": {"quant_method": "quanto", "weights_dtype": name}})

    for name, dtype in (("int2", qint2), ("int4", qint4), ("int8", qint8)):
        attempt(name, lambda: convolution(name, dtype))


@package("hqq")
def hqq():
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    by = version("hqq")

    def run(name, bits, group, axis, as_float=False):
        model = llama()
        total, modules = parameters(model), linear(model)
        quant = BaseQuantizeConfig(nbits=bits, group_size=group, axis=axis, view_as_float=as_float)
        for module in modules:
            layer = HQQLinear(model.get_submodule(module), quant, compute_dtype=torch.bfloat16, device="cpu")
            layer.encoded_state_dict = True
            model.set_submodule(module, layer)
        quantization = {"quant_method": "hqq", "quant_config": {"weight_quant_params": quant["weight_quant_params"]}, "skip_modules": ["lm_head"]}
        config = {**settings(model.config.to_json_string()), "quantization_config": quantization}
        record_state(name, by, total, modules, model.state_dict(), config)

    for bits in (1, 2, 3, 4, 8):
        run(f"hqq-real-{bits}bit", bits, 64, 1)
    run("hqq-real-4bit-axis-0", 4, 64, 0)
    run("hqq-real-3bit-axis-0", 3, 64, 0)
    run("hqq-real-4bit-as-float", 4, 64, 1, True)
    for bits in (1, 2, 8):
        run(f"hqq-real-{bits}bit-axis-0", bits, 64, 0)


@package("llmcompressor")
def llmcompressor():
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from transformers import AutoModelForCausalLM

    by = f"{version('llmcompressor')}, {version('compressed-tensors')}"

    def run(name, *before, **scheme):
        total, modules = parameters(llama()), linear(llama())
        with saved(llama()) as source, tempfile.TemporaryDirectory() as folder:
            model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
            oneshot(model=model, recipe=[*before, QuantizationModifier(targets="Linear", ignore=["lm_head"], **scheme)])
            model.save_pretrained(folder, save_compressed=True)
            record(name, by, total, modules, folder)

    for scheme in ("W4A16", "W4A16_ASYM", "W8A16", "W4AFP8", "NVFP4A16", "MXFP4A16", "MXFP8A16", "FP8_DYNAMIC", "FP8_BLOCK"):
        attempt(scheme, lambda: run(f"llmcompressor-real-{scheme.lower().replace('_', '-')}", scheme=scheme))

    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    def group(targets=("Linear",), form=None, **weights):
        return QuantizationScheme(targets=list(targets), weights=QuantizationArgs(**weights), **({"format": form} if form else {}))

    for bits in (2, 3, 5, 6, 7, 8):
        attempt(f"{bits} bits", lambda: run(f"llmcompressor-real-w{bits}-group", config_groups={"group_0": group(num_bits=bits, strategy="group", group_size=32, symmetric=bits != 5)}))
    for bits in (3, 4):
        attempt(f"{bits} bits per channel", lambda: run(f"llmcompressor-real-w{bits}-channel", config_groups={"group_0": group(num_bits=bits, strategy="channel")}))
    attempt("int8", lambda: run("llmcompressor-real-int8-channel", config_groups={"group_0": QuantizationScheme(
        targets=["Linear"], weights=QuantizationArgs(num_bits=8, strategy="channel"), input_activations=QuantizationArgs(num_bits=8, strategy="token", dynamic=True))}))
    attempt("mixed", lambda: run("llmcompressor-real-mixed", config_groups={
        "group_0": group([r"re:.*(q|k|v|o)_proj$"], num_bits=8, strategy="channel"),
        "group_1": group([r"re:.*(gate|up)_proj$"], num_bits=4, strategy="group", group_size=32),
        "group_2": group([r"re:.*down_proj$"], num_bits=8, type="float", strategy="channel")}))
    for strategy, shape in (("tensor", {}), ("block", {"block_structure": [64, 128]})):
        attempt(strategy, lambda: run(f"llmcompressor-real-w4-{strategy}", config_groups={"group_0": group(num_bits=4, strategy=strategy, **shape)}))

    from llmcompressor.modifiers.transform import QuIPModifier, SpinQuantModifier

    attempt("SpinQuant", lambda: run("llmcompressor-real-w4a16-spinquant", SpinQuantModifier(rotations=["R1", "R2", "R4"], transform_type="random-matrix"), scheme="W4A16"))
    attempt("QuIP", lambda: run("llmcompressor-real-w4a16-quip", QuIPModifier(rotations=["v", "u"], transform_type="random-matrix", ignore="lm_head"), scheme="W4A16"))


@package("nvidia-modelopt")
def modelopt():
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export import export_hf_checkpoint

    by = version("nvidia-modelopt")

    def run(name, config):
        model = llama()
        total, modules = parameters(model), linear(model)

        def forward(model):
            model(torch.arange(8)[None])

        mtq.quantize(model, config, forward)
        with tempfile.TemporaryDirectory() as folder:
            export_hf_checkpoint(model, export_dir=folder)
            record(name, by, total, modules, folder, ["hf_quant_config.json"])

    for config in ("NVFP4_DEFAULT_CFG", "FP8_DEFAULT_CFG", "FP8_PER_CHANNEL_PER_TOKEN_CFG", "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG", "INT4_AWQ_CFG", "W4A8_AWQ_BETA_CFG",
                   "INT8_SMOOTHQUANT_CFG", "MXFP4_DEFAULT_CFG", "MXFP8_DEFAULT_CFG"):
        attempt(config, lambda: run(f"modelopt-real-{config.removesuffix('_CFG').lower().replace('_', '-')}", getattr(mtq, config)))

    def run_state(name, config, compress):
        model = llama()
        total, modules = parameters(model), linear(model)
        mtq.quantize(model, config, lambda model: model(torch.arange(8)[None]))
        if compress:
            mtq.compress(model)
        rest = {} if compress else {"unpacked": True}
        record_state(name, by, total, modules, model.state_dict(), settings(model.config.to_json_string()), **rest)

    for config in ("NVFP4_DEFAULT_CFG", "INT8_SMOOTHQUANT_CFG", "FP8_PER_CHANNEL_PER_TOKEN_CFG", "INT4_AWQ_CFG"):
        text = config.removesuffix("_CFG").lower().replace("_", "-")
        attempt(config, lambda: run_state(f"modelopt-real-fake-{text}", getattr(mtq, config), False))
    for config in ("NVFP4_DEFAULT_CFG", "FP8_DEFAULT_CFG", "INT4_BLOCKWISE_WEIGHT_ONLY_CFG", "W4A8_AWQ_BETA_CFG"):
        text = config.removesuffix("_CFG").lower().replace("_", "-")
        attempt(config, lambda: run_state(f"modelopt-real-compressed-{text}", getattr(mtq, config), True))


@package("amd-quark")
def quark():
    from quark.torch import ModelQuantizer, export_safetensors
    from quark.torch.quantization.config import config as q

    by = version("amd-quark")

    def run(name, spec, **rest):
        model = llama()
        total, modules = parameters(model), linear(model)
        config = q.QConfig(global_quant_config=q.QLayerConfig(weight=spec.to_quantization_spec()), exclude=["lm_head"])
        model = ModelQuantizer.freeze(ModelQuantizer(config).quantize_model(model, None))
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            export_safetensors(model=model, output_dir=folder, **rest)
            record(name, by, total, modules, folder)

    group = dict(ch_axis=-1, is_dynamic=False)
    for name, make in (
        ("int4-group", lambda: q.Int4PerGroupSpec(group_size=32, **group)),
        ("uint4-group", lambda: q.Uint4PerGroupSpec(group_size=128, **group)),
        ("int4-channel", lambda: q.Int4PerChannelSpec(ch_axis=0, is_dynamic=False)),
        ("int3-group", lambda: q.Int3PerGroupSpec(group_size=16, **group)),
        ("int2-group", lambda: q.Int2PerGroupSpec(group_size=32, **group)),
        ("int8-channel", lambda: q.Int8PerChannelSpec(ch_axis=0, is_dynamic=False)),
        ("fp8", lambda: q.FP8E4M3PerTensorSpec(is_dynamic=False)),
        ("mxfp4", lambda: q.OCP_MXFP4Spec(ch_axis=-1, is_dynamic=False)),
        ("mxfp6", lambda: q.OCP_MXFP6E2M3Spec(ch_axis=-1, is_dynamic=False)),
    ):
        attempt(name, lambda: run(f"quark-real-{name}", make()))


@package("auto-round")
def auto_round():
    from auto_round import AutoRound
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    by = version("auto-round")

    def run(name, form, sizes=None, inexact=None, **scheme):
        model = llama(**(sizes or {}))
        total, modules = parameters(model), linear(model)
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, "[UNK]")))
        with saved(model) as source, tempfile.TemporaryDirectory() as folder:
            tokenizer.save_pretrained(source)
            AutoRound(source, iters=0, device_map="cpu", disable_opt_rtn=True, **scheme).quantize_and_save(folder, format=form)
            found = next(path for path in [pathlib.Path(folder), *pathlib.Path(folder).rglob("*")] if path.is_dir() and list(path.glob("*.safetensors")))
            record(name, by, total, modules, found, ["quantization_config.json"], inexact=inexact)

    for name, form, scheme in (
        ("w4a16", "auto_round", dict(scheme="W4A16")),
        ("w2a16", "auto_round", dict(scheme="W2A16", group_size=64)),
        ("w3a16", "auto_round", dict(scheme="W3A16", group_size=64)),
        ("w8a16", "auto_round", dict(scheme="W8A16")),
        ("w4a16-asym-gptq", "auto_gptq", dict(scheme="W4A16", sym=False)),
        ("w4a16-awq", "auto_awq", dict(scheme="W4A16", sym=False)),
        ("w4a16-auto-awq", "auto_round:auto_awq", dict(scheme="W4A16", sym=False)),
        ("mxfp4", "auto_round", dict(scheme="MXFP4")),
        ("mxfp8", "auto_round", dict(scheme="MXFP8")),
        ("w4a16-llmcompressor", "llm_compressor", dict(scheme="W4A16")),
        ("mixed", "auto_round", dict(scheme="W4A16", layer_config={"model.layers.0.mlp.down_proj": {"bits": 8, "group_size": 32}, "model.layers.0.mlp.gate_proj": {"bits": 16}})),
        ("w4a16-padded", "auto_round", dict(scheme="W4A16", sizes=dict(intermediate_size=416), inexact="inputs are padded to the group size; only the dimensions of the model state them")),
    ):
        attempt(name, lambda: run(f"auto-round-real-{name}", form, **scheme))


@package("gptqmodel")
def gptqmodel():
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear

    by = version("gptqmodel")

    def run(name, bits, group, word="int32", **rest):
        model = llama(**rest)
        total, modules = parameters(model), linear(model)
        for module, (o, i) in modules.items():
            layer = model.get_submodule(module)
            size = group if group > 0 else i
            packed = TorchLinear(bits=bits, group_size=size, sym=True, desc_act=False, in_features=i, out_features=o, bias=False, pack_dtype=getattr(torch, word), register_buffers=True)
            groups = -(-i // size)
            scales, zeros = torch.ones(o, groups), torch.full((o, groups), 2 ** (bits - 1))
            packed.pack_original(layer.float(), scales, zeros, torch.arange(i, dtype=torch.int32) // size)
            model.set_submodule(module, packed)
        quantization = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": False, "sym": True, "lm_head": False, "pack_dtype": word, "checkpoint_format": "gptq", "meta": {"quantizer": ["gptqmodel:7.7.0"]}}
        config = {**settings(model.config.to_json_string()), "quantization_config": quantization}
        record_state(name, by, total, modules, model.state_dict(), config)

    for bits in (2, 3, 4, 5, 6, 7, 8):
        attempt(bits, lambda: run(f"gptqmodel-real-{bits}bit", bits, 64))
    run("gptqmodel-real-4bit-channel", 4, -1)


@package("autoawq")
def autoawq():
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.modules.linear.gemv import WQLinear_GEMV
    from awq.modules.linear.gemv_fast import WQLinear_GEMVFast
    from awq.modules.linear.marlin import WQLinear_Marlin

    by = version("autoawq")

    def run(name, kind, group, form, **rest):
        model = llama(**rest)
        total, modules = parameters(model), linear(model)
        for module, (o, i) in modules.items():
            layer = model.get_submodule(module).half()
            groups = i // group
            scales, zeros = torch.ones(groups, o).half(), torch.full((groups, o), 8)
            if kind is WQLinear_GEMM:
                packed = kind.from_linear(layer, 4, group, scales=scales, zeros=zeros.float())
            elif kind is WQLinear_Marlin:
                packed = kind.from_linear(layer, 4, group, init_only=True)
            else:
                packed = kind.from_linear(layer, 4, group, scales=scales.t().contiguous(), zeros=zeros.t().contiguous().float())
            model.set_submodule(module, packed)
        quantization = {"quant_method": "awq", "bits": 4, "group_size": group, "version": form, "zero_point": form != "marlin", "modules_to_not_convert": None}
        config = {**settings(model.config.to_json_string()), "quantization_config": quantization}
        record_state(name, by, total, modules, model.state_dict(), config)

    for name, kind, group, form in (("gemm", WQLinear_GEMM, 64, "gemm"), ("gemv", WQLinear_GEMV, 64, "gemv"), ("gemv-g128", WQLinear_GEMV, 128, "gemv"), ("gemv-fast", WQLinear_GEMVFast, 128, "gemv_fast"),
                                    ("marlin", WQLinear_Marlin, 128, "marlin")):
        attempt(name, lambda: run(f"autoawq-real-{name}", kind, group, form))


@package("sdnq")
def sdnq():
    from sdnq import save_sdnq_model, sdnq_post_load_quant

    by = version("sdnq")

    def run(name, **rest):
        model = llama()
        total, modules = parameters(model), linear(model)
        with tempfile.TemporaryDirectory() as folder:
            save_sdnq_model(sdnq_post_load_quant(model, minimum_allowed_numel=0, **rest), folder)
            record(name, by, total, modules, folder)

    for dtype in ("int8", "int7", "int6", "int5", "uint4", "int3", "uint2", "uint1", "float8_e4m3fn", "float6_e3m2fn"):
        attempt(dtype, lambda: run(f"sdnq-real-{dtype.replace('_', '-')}", weights_dtype=dtype))
    attempt("svd", lambda: run("sdnq-real-uint4-svd", weights_dtype="uint4", use_svd=True))
    attempt("grouped", lambda: run("sdnq-real-uint4-group", weights_dtype="uint4", group_size=32))


@package("dfloat11")
def dfloat11():
    from unittest import mock

    # The package imports CuPy for decompression only.
    sys.modules.setdefault("cupy", mock.MagicMock())
    from dfloat11 import compress_model

    model = llama()
    total, shapes = parameters(model), linear(model, ())
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(None):
            compress_model(model, {r"model\.layers\.\d+": list(MODULES), "lm_head": []}, folder, check_correctness=False)
        packed = {"model.layers.0": [sum(o * i for module, (o, i) in shapes.items() if module != "lm_head")], "lm_head": shapes["lm_head"]}
        record("dfloat11-real", version("dfloat11"), total, packed, folder)


def modules_case(name, by, make, quantization, inexact=None):
    """Writes the state dict of a model whose linear layers are modules of a package."""
    model = llama()
    total, modules = parameters(model), linear(model)
    for module, (o, i) in modules.items():
        model.set_submodule(module, make(o, i))
    config = {**settings(model.config.to_json_string()), "quantization_config": quantization if isinstance(quantization, dict) else quantization(modules)}
    record_state(name, by, total, modules, model.state_dict(), config, inexact=inexact)


@package("transformers")
def transformers_modules():
    from transformers.integrations.bitnet import BitLinear
    from transformers.integrations.eetq import EetqLinear
    from transformers.integrations.finegrained_fp8 import FP8Linear
    from transformers.integrations.fbgemm_fp8 import FbgemmFp8Linear
    from transformers.integrations.gemma_quant import QuantizedLinear
    from transformers.integrations.higgs import HiggsLinear
    from transformers.integrations.metal_quantization import MetalLinear

    by = version("transformers")
    bf16 = torch.bfloat16
    modules_case("transformers-real-fp8-block", by, lambda o, i: FP8Linear(i, o, (128, 128)), {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]})
    modules_case("transformers-real-fp8-tensor", by, lambda o, i: FP8Linear(i, o, None), {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": None})
    modules_case("transformers-real-fbgemm-fp8", by, lambda o, i: FbgemmFp8Linear(i, o, False), {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": None})
    modules_case("transformers-real-bitnet", by, lambda o, i: BitLinear(i, o, False, dtype=bf16), {"quant_method": "bitnet", "linear_class": "bitlinear", "quantization_mode": "offline", "modules_to_not_convert": None})
    modules_case("transformers-real-eetq", by, lambda o, i: EetqLinear(i, o), {"quant_method": "eetq", "weights": "int8", "modules_to_not_convert": None})
    modules_case("transformers-real-higgs", by, lambda o, i: HiggsLinear(-(-i // 1024) * 1024, o, 4, bias=False, dtype=bf16), {"quant_method": "higgs", "bits": 4, "p": 2, "group_size": 256, "hadamard_size": 1024, "modules_to_not_convert": ["lm_head"]},
                 inexact="inputs are padded to 1,024; only the dimensions of the model state them")
    for bits in (2, 4, 8):
        modules_case(f"transformers-real-metal-{bits}bit", by, lambda o, i: MetalLinear(i, o, bits=bits, group_size=64), {"quant_method": "metal", "bits": bits, "group_size": 64, "modules_to_not_convert": None})
        modules_case(f"transformers-real-gemma-{bits}bit", by, lambda o, i: QuantizedLinear(i, o, num_bits=bits), {"quant_method": "gemma", "num_bits": bits, "quantize_embeddings": False, "module_quant_configs": None, "modules_to_not_convert": ["lm_head"]})
    attempt("gemma patterns", lambda: gemma_patterns(by))


def gemma_patterns(by):
    """Patterns of Gemma's quantizer match anywhere in the name of a module, and the leftmost match wins."""
    from transformers import GemmaQuantizationConfig
    from transformers.integrations.gemma_quant import replace_with_quant_layers

    patterns = {"mlp": {"num_bits": 2}, "per_layer": {"num_bits": 8}, "layers.1": {"num_bits": 4}, "embed": {"num_bits": 4}, r"q_proj$": {"num_bits": 8}}
    quantization = GemmaQuantizationConfig(num_bits=2, quantize_embeddings=True, module_quant_configs=patterns, modules_to_not_convert=["lm_head"])
    model = llama(num_hidden_layers=2)
    model.model.embed_tokens_per_layer = torch.nn.Embedding(320, 64, dtype=torch.bfloat16)
    total = parameters(model)
    modules = {**linear(model), "model.embed_tokens": [320, 128], "model.embed_tokens_per_layer": [320, 64]}
    packed = replace_with_quant_layers(model, quantization, ["lm_head"])
    # A Llama has no embedding per layer.
    kind = {"architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text"}
    config = {**settings(model.config.to_json_string()), **kind, "quantization_config": quantization.to_dict()}
    record_state("transformers-real-gemma-patterns", by, total, modules, packed.state_dict(), config)


@package("aqlm")
def aqlm():
    from aqlm import QuantizedLinear

    by = version("aqlm")
    for books, bits, inputs, outputs in ((1, 16, 8, 1), (2, 8, 8, 1), (4, 8, 16, 2)):
        modules_case(f"aqlm-real-{books}x{bits}-g{inputs}-o{outputs}", by, lambda o, i: QuantizedLinear(i, o, inputs, outputs, books, bits, bias=False, dtype=torch.bfloat16),
                     {"quant_method": "aqlm", "in_group_size": inputs, "out_group_size": outputs, "num_codebooks": books, "nbits_per_codebook": bits, "linear_weights_not_to_quantize": ["lm_head.weight"]})


@package("vptq")
def vptq():
    import importlib.util

    # The package itself imports a program for conversations.
    root = pathlib.Path(importlib.util.find_spec("vptq").origin).parent
    for name in ("vptq", "vptq.ops", "vptq.layers", "vptq.utils"):
        module = type(sys)(name)
        module.__path__ = [str(root / name.partition(".")[2].replace(".", "/"))]
        sys.modules[name] = module
    from unittest import mock

    for name in ("vptq.ops", "vptq.utils.pack"):
        sys.modules[name] = mock.MagicMock()
    from vptq.layers.vqlinear import VQuantLinear

    by = version("vptq")

    def layer(o, i, vector, centroids, residual):
        return dict(in_features=i, out_features=o, vector_lens=[-1, vector], num_centroids=[-1, centroids], num_res_centroids=[-1, residual], group_num=1, group_size=i, outlier_size=0,
                    indices_as_float=False, enable_norm=True, enable_perm=True, is_indice_packed=True, bias=False)

    for vector, centroids, residual in ((8, 256, 256), (6, 4096, -1)):
        modules_case(f"vptq-real-v{vector}-k{centroids}-k{residual}", by, lambda o, i: VQuantLinear(**layer(o, i, vector, centroids, residual), dtype=torch.bfloat16, enable_proxy_error=False),
                     lambda modules: {"quant_method": "vptq", "config_for_layers": {module: layer(o, i, vector, centroids, residual) for module, (o, i) in modules.items()}, "shared_layer_config": {}})


@package("mlx")
def mlx():
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.models import llama as mlx_llama, qwen3_moe
    from mlx_lm.utils import quantize_model

    by = f"{version('mlx')}, {version('mlx-lm')}"

    def run(name, make, config, bits, group, mode="affine", predicate=None):
        model = make()
        flat = dict(tree_flatten(model.parameters()))
        total = sum(tensor.size for tensor in flat.values())
        arguments = {"quant_predicate": predicate} if predicate else {}
        model, packed = quantize_model(model, dict(config), group, bits, mode=mode, **arguments)
        state = dict(tree_flatten(model.parameters()))
        modules = {key.removesuffix(".scales"): list(flat[key.removesuffix("scales") + "weight"].shape) for key in state if key.endswith(".scales")}
        with tempfile.TemporaryDirectory() as folder:
            mx.save_safetensors(f"{folder}/model.safetensors", state, metadata={"format": "mlx"})
            record(name, by, total, modules, folder, config=packed)

    dense = dict(model_type="llama", hidden_size=128, num_hidden_layers=1, intermediate_size=384, num_attention_heads=6, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-5, vocab_size=320,
                 tie_word_embeddings=False)
    dense_model = lambda: mlx_llama.Model(mlx_llama.ModelArgs.from_dict(dense))
    for bits in (1, 2, 3, 4, 5, 6, 8):
        run(f"mlx-real-{bits}bit", dense_model, dense, bits, 32 if bits == 5 else 64)
    for mode, bits, group in (("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)):
        run(f"mlx-real-{mode}", dense_model, dense, bits, group, mode)
    run("mlx-real-mixed", dense_model, dense, 4, 64, predicate=lambda path, _: False if "gate_proj" in path else ({"bits": 6, "group_size": 32} if "down_proj" in path else True))
    moe = dict(model_type="qwen3_moe", hidden_size=128, num_hidden_layers=1, intermediate_size=384, num_attention_heads=4, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-5, vocab_size=320,
               num_experts=4, num_experts_per_tok=2, decoder_sparse_step=1, mlp_only_layers=[], moe_intermediate_size=192, rope_theta=1e4, tie_word_embeddings=False, max_position_embeddings=64,
               norm_topk_prob=True)
    run("mlx-real-moe", lambda: qwen3_moe.Model(qwen3_moe.ModelArgs.from_dict(moe)), moe, 4, 64)


@package("comfy-kitchen")
def comfy_kitchen():
    """Writes the layers as ComfyUI saves them: the tensors of the layout, and `comfy_quant` with its name."""
    from comfy_kitchen.tensor import QuantizedTensor

    by = version("comfy-kitchen")

    def run(name, layout, form, sizes=None, inexact=None, **rest):
        model = llama(**{"hidden_size": 256, "intermediate_size": 768, **(sizes or {})})
        total, modules = parameters(model), linear(model)
        state = model.state_dict()
        for module in modules:
            packed = QuantizedTensor.from_float(state.pop(f"{module}.weight"), layout, **rest)
            state.update(packed.state_dict(f"{module}.weight"))
            state[f"{module}.comfy_quant"] = torch.tensor(list(json.dumps({"format": form}).encode()), dtype=torch.uint8)
        record_state(f"comfy-kitchen-real-{name}", by, total, modules, state, {}, inexact=inexact)

    run("convrot-w4a4", "TensorCoreConvRotW4A4Layout", "convrot_w4a4", inexact="`comfy_quant` states the width in the data, and the shapes fit 4 and 8 bits")
    run("w4a8", "AsymW4A8Int8Layout", "asym_w4a8_int8")
    run("w4a8-asym-g64", "AsymW4A8Int8Layout", "asym_w4a8_int8", group_size=64, symmetric=False, codebook=False)
    run("w6a8", "AsymW4A8Int8Layout", "asym_w4a8_int8", bits=6)
    run("int8-tensor", "TensorWiseINT8Layout", "int8_tensorwise")
    run("int8-row", "TensorWiseINT8Layout", "int8_tensorwise", per_channel=True)
    run("nvfp4", "TensorCoreNVFP4Layout", "nvfp4")
    run("mxfp8", "TensorCoreMXFP8Layout", "mxfp8", inexact="both sides are padded to 32")
    run("mxfp8-padded", "TensorCoreMXFP8Layout", "mxfp8", sizes=dict(intermediate_size=752), inexact="both sides are padded to 32")


def main():
    global FOLDER
    with contextlib.suppress(ImportError):
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()
    if len(sys.argv) > 1:
        FOLDER = pathlib.Path(sys.argv[1])
    chosen = sys.argv[2:] or list(PACKAGES)
    failed = []
    for name in chosen:
        print(f"-- {name}")
        try:
            PACKAGES[name]()
        except Exception:
            traceback.print_exc()
            failed.append(name)
    failed += ATTEMPTS
    if failed:
        print(f"FAILED or missing: {', '.join(failed)}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
