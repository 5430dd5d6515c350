#!/usr/bin/env python3
"""Breaks sound repositories in a hundred ways, and counts what `hf-meta verify` rejects.

    tests/oracles/broken_repositories.py HF_META FOLDER [KIND ...]

`FOLDER` has the repositories of `repositories.py` and `repositories_models.py`. Each way is one that the loader refuses, or that leaves weights random. Prints
the share of rejected ones for each kind and way, with the repositories that were not, and every warning or error about a sound
repository. `STEP=7 FROM=3` takes every seventh repository. The exit code is 1 if less than 90 % of all or 80 % of a kind are
rejected, if more than 0.5 % of the sound ones have an error, or more than 1 % a warning.
"""

import collections
import concurrent.futures
import copy
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "U32": 4, "BF16": 2, "F16": 2, "BOOL": 1, "U8": 1}
NUMBER = re.compile(r"\.(\d+)\.")


def write(folder, files):
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not path.endswith(".safetensors"):
            target.write_text(content if isinstance(content, str) else json.dumps(content))
            continue
        header, end = ({"__metadata__": content["metadata"]} if "metadata" in content else {}), 0
        for name, (dtype, shape) in content["tensors"].items():
            size = SIZES.get(dtype, 2)
            for side in shape:
                size *= side
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
            end += size
        text = json.dumps(header).encode()
        with target.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + end)


def changed(files, path, change):
    """Returns the files with a changed copy of one of them."""
    copied = copy.deepcopy(files[path])
    change(copied)
    return {**files, path: copied}


def with_tensors(files, path, change):
    return changed(files, path, lambda content: content.update(tensors=change(content["tensors"])))


def without(files, path, gone):
    return with_tensors(files, path, lambda tensors: {name: tensor for name, tensor in tensors.items() if not gone(name)})


def lists(tensors):
    """Returns the outermost lists of modules with their numbers."""
    found = collections.defaultdict(set)
    for name in tensors:
        if match := NUMBER.search(name):
            found[name[: match.start()]].add(int(match[1]))
    return {path: sorted(numbers) for path, numbers in found.items() if len(numbers) > 1}


def matrices(tensors, start=""):
    return [name for name, (_, shape) in tensors.items() if name.startswith(start) and name.endswith("weight") and len(shape) > 1 and min(shape[:2]) > 1]


def weights_ways(files, path, rng):
    """Yields the ways to break the tensors of one file."""
    tensors = files[path]["tensors"]
    names = list(tensors)
    if len(names) < 3:
        return
    every = lists(tensors)
    if every:
        longest = max(every, key=lambda path: (len(every[path]), path))
        numbers = every[longest]
        start = lambda number: f"{longest}.{number}."
        if len(numbers) > 2:
            yield "last layer missing", without(files, path, lambda name: name.startswith(start(numbers[-1])))
            yield "middle layer missing", without(files, path, lambda name: name.startswith(start(numbers[len(numbers) // 2])))
        yield "half of the layers missing", without(files, path, lambda name: any(name.startswith(start(number)) for number in numbers[(len(numbers) + 1) // 2 :]))
        inside = matrices(tensors, start(numbers[len(numbers) // 2]))
        if inside:
            one = rng.choice(inside)
            ends = one[len(start(numbers[len(numbers) // 2])) :]
            same = lambda name: name.startswith(longest + ".") and name.endswith("." + ends)
            yield "one matrix of one layer missing", without(files, path, lambda name: name == one)
            yield "one matrix of all layers missing", without(files, path, same)
            yield "one matrix of all layers renamed", with_tensors(files, path, lambda tensors: {name.removesuffix(".weight") + "_renamed.weight" if same(name) else name: tensor for name, tensor in tensors.items()})
        biases = [name for name in names if name.startswith(longest + ".") and name.endswith(".bias") and name[:-4] + "weight" in tensors]
        if biases:
            one = rng.choice(biases)
            yield "one bias missing", without(files, path, lambda name: name == one)
    inside = [name for name in matrices(tensors) if tensors[name][1][0] != tensors[name][1][1]]
    if inside:
        one = rng.choice(inside)
        yield "one matrix transposed", with_tensors(files, path, lambda tensors: {**tensors, one: [tensors[one][0], [tensors[one][1][1], tensors[one][1][0], *tensors[one][1][2:]]]})
    inside = matrices(tensors)
    if inside:
        one = rng.choice(inside)
        yield "one matrix halved", with_tensors(files, path, lambda tensors: {**tensors, one: [tensors[one][0], [tensors[one][1][0] // 2, *tensors[one][1][1:]]]})
        yield "one matrix with other columns", with_tensors(files, path, lambda tensors: {**tensors, one: [tensors[one][0], [tensors[one][1][0], tensors[one][1][1] + 1, *tensors[one][1][2:]]]})
    outside = [name for name in names if not NUMBER.search(name) and name.endswith("weight")]
    if outside:
        one = rng.choice(outside)
        yield "one module outside of layers missing", without(files, path, lambda name: name.startswith(one.removesuffix("weight")))
    tops = sorted({name.split(".")[0] for name in names})
    if len(tops) > 1:
        top = rng.choice(tops)
        yield "one part missing", without(files, path, lambda name: name.split(".")[0] == top)
    yield "empty file", with_tensors(files, path, lambda tensors: {})
    yield "two tensors", with_tensors(files, path, lambda tensors: dict(list(tensors.items())[:2]))
    yield "names of a wrapper", with_tensors(files, path, lambda tensors: {f"net.inner.{name}": tensor for name, tensor in tensors.items()})


def config_ways(files, path, rng):
    """Yields the ways to break a configuration next to weights."""
    config = files[path]
    yield "configuration is not JSON", {**files, path: '{"_class_name": '}
    keys = [key for key, value in config.items() if isinstance(value, int) and not isinstance(value, bool) and value > 1 and re.search(r"num_layers|num_hidden_layers|num_single_layers|n_layers?$|encoder_layers|decoder_layers", key)]
    if keys:
        key = rng.choice(keys)
        yield "configuration of another depth", changed(files, path, lambda config: config.update({key: config[key] + 2}))
    keys = [key for key in ("hidden_size", "d_model", "num_attention_heads", "in_channels", "cross_attention_dim", "joint_attention_dim", "text_dim", "dim", "n_embd") if isinstance(config.get(key), int)]
    # The number of heads alone does not change the shapes of language models.
    keys = [key for key in keys if key != "num_attention_heads" or "attention_head_dim" in config]
    if keys:
        key = rng.choice(keys)
        yield "configuration of another width", changed(files, path, lambda config: config.update({key: config[key] * 2}))
    return


def pipelines(files, base, rng):
    index = files["model_index.json"]
    components = sorted({path.split("/")[0] for path in files if path.endswith(".safetensors")})
    yield "index is not JSON", {**files, "model_index.json": '{"_class_name": "'}
    for component in components:
        (weights,) = [path for path in files if path.startswith(component + "/") and path.endswith(".safetensors")]
        config = f"{component}/config.json"
        yield "component without configuration", {path: content for path, content in files.items() if path != config}
        yield "component without weights", {path: content for path, content in files.items() if path != weights}
        yield "component without folder", {path: content for path, content in files.items() if not path.startswith(component + "/")}
        others = [other for other in components if other != component]
        if others:
            other = rng.choice(others)
            (other_weights,) = [path for path in files if path.startswith(other + "/") and path.endswith(".safetensors")]
            if files[other_weights] != files[weights]:
                yield "weights of another component", {**files, weights: files[other_weights]}
                yield "configuration of another component", {**files, config: files[f"{other}/config.json"]}
                yield "both files of another component", {**files, weights: files[other_weights], config: files[f"{other}/config.json"]}
        for way, broken in weights_ways(files, weights, rng):
            yield f"tensors: {way}", broken
        for way, broken in config_ways(files, config, rng):
            yield way, broken
    listed = [name for name in index if name in components]
    one = rng.choice(listed)
    yield "component is listed with another class", changed(files, "model_index.json", lambda index: index.update({one: ["diffusers", "AutoencoderTiny" if index[one][0] == "diffusers" else "UNet2DConditionModel"]}))
    text = [name for name in components if name.startswith("text_encoder")]
    main = next((name for name in ("transformer", "unet") if name in components), None)
    if text and main:
        for key in ("cross_attention_dim", "joint_attention_dim", "text_dim", "caption_channels", "cap_feat_dim", "text_embed_dim"):
            # A transformer that agrees with itself, and is of another width than the text encoder.
            if isinstance(files[f"{main}/config.json"].get(key), int) and main == "transformer":
                yield "widths of components differ", widened(files, main, key)


def widened(files, component, key):
    """Returns the files with another width of the texts, in the configuration and in the tensors."""
    path = next(path for path in files if path.startswith(component + "/") and path.endswith(".safetensors"))
    old = files[f"{component}/config.json"][key]
    files = changed(files, f"{component}/config.json", lambda config: config.update({key: old + 8}))
    reads = re.compile(r"context_embedder|caption|text_embedder|txt_in|txt_norm|text_proj|attn2\.to_[kv]|cap_embedder")
    other = lambda shape: [old + 8 if at == len(shape) - 1 and side == old else side for at, side in enumerate(shape)]
    return with_tensors(files, path, lambda tensors: {name: [dtype, other(shape) if reads.search(name) else shape] for name, (dtype, shape) in tensors.items()})


def models(files, base, rng):
    weights = "diffusion_pytorch_model.safetensors"
    for way, broken in weights_ways(files, weights, rng):
        yield f"tensors: {way}", broken
    for way, broken in config_ways(files, "config.json", rng):
        yield way, broken
    yield "configuration of another class", {**files, "config.json": {"_class_name": "AutoencoderKL", "in_channels": 3, "block_out_channels": [8, 16], "latent_channels": 4, "down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2, "layers_per_block": 1}}


def adapters(files, base, rng):
    weights, config = "adapter_model.safetensors", "adapter_config.json"
    tensors, settings = files[weights]["tensors"], files[config]
    names = list(tensors)
    modules = sorted({re.sub(r"\.(lora_|hada_|lokr_|ia3_|vera_|oft_|boft_|hra_|fourierft_|randlora_|vblora_|road_|shira_|delora_|c3a_|miss_|gralora_|token_adapter).*$", "", name) for name in names})
    is_prompt = settings["peft_type"] in ("PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "ADAPTION_PROMPT")
    yield "no configuration", {path: content for path, content in files.items() if path != config}, base
    yield "configuration is not JSON", {**files, config: "{"}, base
    yield "empty file", with_tensors(files, weights, lambda _: {}), base
    if is_prompt:
        if settings["peft_type"] != "ADAPTION_PROMPT":
            yield "another number of tokens", changed(files, config, lambda config: config.update(num_virtual_tokens=7)), base
        return
    yield "no method", changed(files, config, lambda config: config.pop("peft_type")), base
    yield "another method", changed(files, config, lambda config: config.update(peft_type="IA3" if settings["peft_type"] != "IA3" else "LORA")), base
    yield "names without prefix", with_tensors(files, weights, lambda tensors: {name.removeprefix("base_model.model."): tensor for name, tensor in tensors.items()}), base
    yield "prefix twice", with_tensors(files, weights, lambda tensors: {"base_model.model." + name: tensor for name, tensor in tensors.items()}), base
    inner = lambda name: re.sub(r"(\.[^.]*(?:lora|hada|lokr|ia3|vera|oft|boft|hra|fourierft|randlora|vblora|road|shira|delora|c3a|miss)_?[^.]*)(\.weight)?$", r"\1.default\2", name)
    if any(inner(name) != name for name in names):
        yield "name of the adapter inside", with_tensors(files, weights, lambda tensors: {inner(name): tensor for name, tensor in tensors.items()}), base
    layers = max(lists(tensors).items(), key=lambda item: (len(item[1]), item[0]), default=None)
    if layers:
        path, numbers = layers
        yield "half of the layers missing", without(files, weights, lambda name: any(name.startswith(f"{path}.{number}.") for number in numbers[(len(numbers) + 1) // 2 :])), base
        yield "last layer missing", without(files, weights, lambda name: name.startswith(f"{path}.{numbers[-1]}.")), base
        yield "first layer missing", without(files, weights, lambda name: name.startswith(f"{path}.{numbers[0]}.")), base
    if len(modules) > 1:
        one = rng.choice(modules)
        yield "one module missing", without(files, weights, lambda name: name.startswith(one + ".")), base
    one = rng.choice(names)
    if len(names) > 1:
        yield "one tensor missing", without(files, weights, lambda name: name == one), base
    shape = tensors[one][1]
    if shape and not (len(shape) == 1 and "fourierft" not in one):
        yield "one tensor with another shape", with_tensors(files, weights, lambda tensors: {**tensors, one: [tensors[one][0], [*tensors[one][1][:-1], tensors[one][1][-1] + 1]]}), base
    ends = {module.rsplit(".", 1)[-1] for module in modules}
    if len(ends) > 1:
        end = rng.choice(sorted(ends))
        yield "one target missing", without(files, weights, lambda name: f".{end}." in name), base
    targets = settings.get("target_modules")
    if isinstance(targets, list) and targets:
        yield "no target is in the base", changed(files, config, lambda config: config.update(target_modules=["no_such_module"])), base
        yield "targets of another architecture", with_tensors(changed(files, config, lambda config: config.update(target_modules=[f"{name}_x" for name in targets])), weights, lambda tensors: {re.sub(rf"\.({'|'.join(map(re.escape, targets))})\.", r".\1_x.", name): tensor for name, tensor in tensors.items()}), base
    if settings["peft_type"] in ("LORA", "LOHA", "LOKR", "ADALORA") and not settings.get("use_bdlora"):
        key = "init_r" if settings["peft_type"] == "ADALORA" else "r"
        yield "another rank in the configuration", changed(files, config, lambda config: config.update({key: config[key] * 2})), base
    saved = settings.get("modules_to_save") or []
    for name in saved:
        if any(f".{name}." in tensor or tensor.endswith(f".{name}") for tensor in names):
            yield "saved module missing", without(files, weights, lambda tensor: f".{name}." in tensor), base
            rows = lambda tensors: {tensor: [dtype, [shape[0] - 4 if f".{name}." in tensor and len(shape) == 2 and shape[0] > 4 else shape[0], *shape[1:]] if shape else shape] for tensor, (dtype, shape) in tensors.items()}
            if with_tensors(files, weights, rows) != files:
                yield "saved module with other rows", with_tensors(files, weights, rows), base
            break
    if base:
        weights_of_base = "model.safetensors"
        wider = lambda tensors: {name: [dtype, [side * 2 for side in shape]] for name, (dtype, shape) in tensors.items()}
        if settings["peft_type"] not in ("SHIRA", "VBLORA", "FOURIERFT", "TRAINABLE_TOKENS") or "TOKENS" in settings["peft_type"]:
            yield "base of another width", files, with_tensors(base, weights_of_base, wider)
        if layers:
            fewer = lambda tensors: {name: tensor for name, tensor in tensors.items() if not re.search(r"\.(2|3)\.", name)}
            if any(re.search(r"\.(2|3)\.", name) for name in names):
                yield "base with fewer layers", files, with_tensors(base, weights_of_base, fewer)
        yield "base of another architecture", files, with_tensors(base, weights_of_base, lambda tensors: {f"other.{name.replace('.', '.x_')}": tensor for name, tensor in tensors.items()})


def encoders(files, base, rng):
    modules = files["modules.json"]
    yield "modules.json is not JSON", {**files, "modules.json": "["}
    yield "modules.json is empty", {**files, "modules.json": []}
    yield "modules.json is an object", {**files, "modules.json": {"modules": modules}}
    yield "a module without type", changed(files, "modules.json", lambda modules: modules[-1].pop("type"))
    yield "a module without path", changed(files, "modules.json", lambda modules: modules[-1].pop("path"))
    yield "a module of an unknown class", changed(files, "modules.json", lambda modules: modules[-1].update(type="sentence_transformers.models.NoSuchModule"))
    # `Normalize` and `Dropout` are built without a configuration, too.
    with_files = [module["path"] for module in modules if module["path"] and not module["type"].endswith(("Normalize", "Dropout")) and any(path.startswith(module["path"] + "/") for path in files)]
    for folder in with_files:
        if any(path.startswith(folder + "/") and path.endswith("config.json") for path in files):
            yield "a module without folder", {path: content for path, content in files.items() if not path.startswith(folder + "/")}
            yield "a module without configuration", {path: content for path, content in files.items() if path != f"{folder}/config.json" and not path.endswith("_config.json") or not path.startswith(folder + "/")}
    for module in modules:
        path = f"{module['path']}/model.safetensors" if module["path"] else "model.safetensors"
        kind = module["type"].rsplit(".", 1)[-1]
        if path in files:
            yield f"{kind}: no weights", {name: content for name, content in files.items() if name != path}
            if module["path"]:
                yield f"{kind}: empty file", with_tensors(files, path, lambda _: {})
                one = rng.choice(list(files[path]["tensors"]))
                yield f"{kind}: one tensor missing", without(files, path, lambda name: name == one)
                yield f"{kind}: one tensor with another shape", with_tensors(files, path, lambda tensors: {**tensors, one: [tensors[one][0], [tensors[one][1][0] + 1, *tensors[one][1][1:]]]})
                yield f"{kind}: other names", with_tensors(files, path, lambda tensors: {f"x_{name}": tensor for name, tensor in tensors.items()})
            else:
                # Nothing reads the pooler of an encoder.
                loaded = without(files, path, lambda name: name.startswith("pooler."))
                for way, broken in weights_ways(loaded, path, rng):
                    yield f"tensors: {way}", broken
                for way, broken in config_ways(files, "config.json", rng):
                    yield way, broken
        config = f"{module['path']}/config.json"
        if kind == "Dense":
            yield "Dense: other inputs", changed(files, config, lambda config: config.update(in_features=config["in_features"] + 8))
            yield "Dense: other outputs", changed(files, config, lambda config: config.update(out_features=config["out_features"] + 8))
            yield "Dense: no inputs", changed(files, config, lambda config: config.pop("in_features"))
            old = files[config]["in_features"]
            wider = with_tensors(files, path, lambda tensors: {name: [dtype, [shape[0], old + 8] if len(shape) == 2 else shape] for name, (dtype, shape) in tensors.items()})
            yield "Dense: a layer of other inputs", changed(wider, config, lambda config: config.update(in_features=old + 8))
        if kind == "Pooling":
            key = next((key for key in ("embedding_dimension", "word_embedding_dimension") if key in files[config]), None)
            if key and modules[-1] is not module and any(next_["type"].endswith("Dense") for next_ in modules):
                yield "Pooling: another width", changed(files, config, lambda config: config.update({key: config[key] + 8}))


def timm(files, base, rng):
    weights = "model.safetensors"
    for way, broken in weights_ways(files, weights, rng):
        yield f"tensors: {way}", broken
    config = files["config.json"]
    yield "no architecture", changed(files, "config.json", lambda config: config.pop("architecture"))
    yield "an unknown architecture", changed(files, "config.json", lambda config: config.update(architecture="no_such_model"))
    yield "configuration is not JSON", {**files, "config.json": "{"}
    yield "another architecture", changed(files, "config.json", lambda config: config.update(architecture="vgg13" if "vit" in config["architecture"] else "vit_small_patch16_224"))
    deeper = {"resnet18": "resnet34", "resnet50": "resnet101", "vit_tiny_patch16_224": "vit_base_patch16_224", "convnext_tiny": "convnext_small", "densenet121": "densenet169", "efficientnet_b0": "efficientnet_b3", "swin_tiny_patch4_window7_224": "swin_small_patch4_window7_224", "regnety_016": "regnety_032", "vgg11_bn": "vgg16_bn", "mixer_s16_224": "mixer_b16_224", "poolformer_s12": "poolformer_s24", "mobilevitv2_050": "mobilevitv2_100", "repvgg_a0": "repvgg_b0"}
    if config["architecture"] in deeper:
        yield "architecture of another depth", changed(files, "config.json", lambda config: config.update(architecture=deeper[config["architecture"]]))
    if config.get("num_classes"):
        def seven(config):
            config["num_classes"] = 7
            for inner in ("pretrained_cfg", "model_args"):
                if "num_classes" in config.get(inner, {}):
                    config[inner]["num_classes"] = 7

        yield "another number of classes", changed(files, "config.json", seven)


def heads(files, base, rng):
    weights = "model.safetensors"
    for way, broken in weights_ways(files, weights, rng):
        yield f"tensors: {way}", broken
    for way, broken in config_ways(files, "config.json", rng):
        yield way, broken
    architectures = files["config.json"].get("architectures") or [""]
    if re.search(r"For(Sequence|Token|Image|Audio|Video)\w*Classification$", architectures[0]):
        labels = {str(number): f"LABEL_{number}" for number in range(7)}
        yield "another number of labels", changed(files, "config.json", lambda config: config.update(id2label=labels, label2id={name: int(number) for number, name in labels.items()}))


multimodal = heads


def options(files, base, rng):
    """Breaks nothing: the models have options that no other kind has."""
    return ()


classes_with_options = options


def mlx(files, base, rng):
    weights = "model.safetensors"
    yield from heads(files, base, rng)
    scales = [name for name in files[weights]["tensors"] if name.endswith(".scales")]
    if scales:
        one = rng.choice(scales)
        yield "scales missing", without(files, weights, lambda name: name == one)
        yield "packed weight missing", without(files, weights, lambda name: name == one.removesuffix("scales") + "weight")
        yield "scales of another group", with_tensors(files, weights, lambda tensors: {**tensors, one: [tensors[one][0], [*tensors[one][1][:-1], 2 * tensors[one][1][-1]]]})
        yield "other bits in the configuration", changed(files, "config.json", lambda config: [config[key].update(bits=6) for key in ("quantization", "quantization_config") if key in config])


def single_files(files, base, rng):
    """Breaks a whole diffusion model in one file, of which diffusers builds every part."""
    (path,) = files
    tensors = files[path]["tensors"]
    names = list(tensors)
    start = lambda name: ".".join(name.split(".")[:2])
    parts = {start(name) for name in names if NUMBER.search(name)}
    for part in sorted(parts):
        inside = [name for name in names if start(name) == part and name.endswith("weight") and len(tensors[name][1]) > 1]
        for one in rng.sample(inside, min(3, len(inside))):
            yield "one matrix missing", without(files, path, lambda name: name == one)
            yield "one matrix renamed", with_tensors(files, path, lambda tensors: {f"{name}_renamed" if name == one else name: tensor for name, tensor in tensors.items()})
            shape = tensors[one][1]
            # The table leaves some numbers of columns open.
            if len(shape) == 2 and shape[0] != shape[1] and 16 not in shape:
                yield "one matrix transposed", with_tensors(files, path, lambda tensors: {**tensors, one: ["F16", shape[::-1]]})
            if ".attn_1." not in one:
                yield "one matrix halved", with_tensors(files, path, lambda tensors: {**tensors, one: ["F16", [shape[0] // 2, *shape[1:]]]})
    for listed, numbers in sorted(lists(tensors).items()):
        # The last layer of OpenCLIP-H is not read.
        if len(numbers) > 3 and numbers[-1] != 23:
            yield "last layer missing", without(files, path, lambda name: name.startswith(f"{listed}.{numbers[-1]}."))
        yield "middle layer missing", without(files, path, lambda name: name.startswith(f"{listed}.{numbers[len(numbers) // 2]}."))
        half = numbers[(len(numbers) + 1) // 2 :]
        yield "half of the layers missing", without(files, path, lambda name: any(name.startswith(f"{listed}.{number}.") for number in half))
    biases = [name for name in names if name.endswith(".bias") and name[:-4] + "weight" in tensors and not name.startswith("guidance")]
    for one in rng.sample(biases, min(3, len(biases))):
        yield "one bias missing", without(files, path, lambda name: name == one)
    prefixes = {name[: name.index(".")] for name in names}
    if len(prefixes) > 2:
        for prefix in ("first_stage_model.", "cond_stage_model.", "conditioner."):
            if any(name.startswith(prefix) for name in names):
                yield "one part missing", without(files, path, lambda name: name.startswith(prefix))


def verify(program, folder, base):
    command = [program, "verify", "--json", *(["--base", f"{base}/"] if base else []), f"{folder}/"]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        report = {"findings": [{"severity": "error", "message": done.stderr[:300]}]}
    report["code"] = done.returncode
    # A repository that cannot be read has an error in place of findings.
    report.setdefault("findings", [{"severity": "error", "message": str(report.get("error"))[:300]}])
    return report


def run(job):
    program, path = job
    data = json.loads(path.read_text())
    rng = random.Random(path.stem)
    name = f"{data['kind']}/{path.stem}"
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        number = 0

        def check(files, base):
            nonlocal number
            number += 1
            write(scratch / f"{number}", files)
            folder = scratch / f"{number}-base" if base else None
            if base:
                write(folder, base)
            report = verify(program, scratch / f"{number}", folder)
            subprocess.run(["rm", "-rf", scratch / f"{number}", scratch / f"{number}-base"])
            return report

        base = data.get("base")
        for with_base in {False, bool(base)}:
            report = check(data["files"], base if with_base else None)
            bad = [finding for finding in report["findings"] if finding["severity"] != "note"]
            reasons = [found["configCheck"].get("reason") for found in report.get("sets", []) if not found["configCheck"]["compared"]]
            found.append(("sound", name, [f"{finding['severity']}: {finding['message']}" for finding in bad], reasons, report["code"]))
        for broken in globals()[data["kind"]](data["files"], base, rng):
            way, files, broken_base = (*broken, None) if len(broken) == 2 else broken
            if files == data["files"] and broken_base == (base if len(broken) == 3 else None):
                continue
            report = check(files, broken_base)
            found.append(("broken", name, way, report["code"] != 0, [finding["message"] for finding in report["findings"] if finding["severity"] != "note"][:2]))
    return found


def main():
    program, folder, *kinds = sys.argv[1:]
    paths = sorted(path for path in pathlib.Path(folder).glob("*/*.json") if not kinds or path.parent.name in kinds)
    paths = paths[int(os.environ.get("FROM", 0)) :: int(os.environ.get("STEP", 1))]
    found = []
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        for results in pool.map(run, [(program, path) for path in paths]):
            found += results
    sound = [item for item in found if item[0] == "sound"]
    for _, name, bad, _, code in sound:
        if bad or code:
            print("sound", name, bad[:3], code)
    reasons = collections.Counter(reason for item in sound for reason in item[3])
    totals, ways = collections.defaultdict(lambda: [0, 0]), collections.defaultdict(lambda: [0, 0, []])
    for _, name, way, refused, _ in (item for item in found if item[0] == "broken"):
        kind = name.split("/")[0]
        for count in (totals[kind], totals["all"], ways[kind, way]):
            count[0] += 1
            count[1] += refused
        if not refused:
            ways[kind, way][2].append(name.split("/")[1])
    for (kind, way), (all_, refused, left) in sorted(ways.items()):
        print(f"{refused:5} of {all_:5} {100 * refused / all_:5.1f} %  {kind}: {way}: {' '.join(left[:8])}")
    print(reasons.most_common(15))
    for kind, (all_, refused) in totals.items():
        print(f"{kind}: refused {refused} of {all_} ({100 * refused / all_:.1f} %)")
    errors = sum(any(text.startswith("error") for text in item[2]) for item in sound)
    warned = sum(any(text.startswith("warning") for text in item[2]) for item in sound)
    print(f"sound {len(sound)}: {errors} with errors, {warned} with warnings")
    least = all(refused >= (0.9 if kind == "all" else 0.8) * all_ for kind, (all_, refused) in totals.items())
    sys.exit(not least or errors > 0.005 * len(sound) or warned > 0.01 * len(sound))


if __name__ == "__main__":
    main()
