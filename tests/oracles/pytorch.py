#!/usr/bin/env python3
"""Writes checkpoints with torch, and the tensors that `torch.load` finds in them.

    python -m pip install torch==1.13.1 transformers==4.30.2 safetensors==0.3.1 'numpy<2'
    python tests/oracles/pytorch.py fixtures old

    python -m pip install torch==2.15.0 transformers==5.23.0 -r tests/oracles/real.txt
    python tests/oracles/pytorch.py fixtures

The first run, in another environment, writes the files of an old version; Python 3.11 has none before torch 1.13. The
second run writes all other files, and loads those of the first one.

`pytorch/models` has tiny models as `save_pretrained` writes them in both formats, and `pytorch/quantized` has models of
real quantizers, next to fixtures of the same state dictionaries. `pytorch/oracle.json` lists the tensors of each file,
the elements that their storages contain for them, the files that must be rejected, and the imports that
`torch.load(weights_only=True)` accepts. The test `tests/it/count/pytorch` compares our parser with it. No pickle that calls a function of its choice is ever loaded.
"""

import collections
import json
import os
import pathlib
import pickle
import struct
import sys
import warnings
import zipfile

import torch

warnings.simplefilter("ignore")
torch.manual_seed(1)

# The names of dtypes in safetensors. A complex number of 128 or 32 bits has no name there.
DTYPES = {
    "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "uint8": "U8", "int8": "I8",
    "int16": "I16", "int32": "I32", "int64": "I64", "bool": "BOOL", "complex64": "C64", "complex128": "C128",
    "complex32": "C32", "uint16": "U16", "uint32": "U32", "uint64": "U64", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0", "qint8": "I8", "quint8": "U8", "qint32": "I32",
}


def tensors_in(value, name=""):
    """Yields the name and the tensor of each tensor in nested collections."""
    join = lambda key: f"{name}.{key}" if name else str(key)
    if isinstance(value, torch.Tensor):
        yield name or "tensor", value
    elif isinstance(value, torch.nn.Module):
        for key, tensor in [*value.named_parameters(), *value.named_buffers()]:
            yield join(key), tensor
    elif isinstance(value, collections.abc.Mapping):
        for key, item in value.items():
            yield from tensors_in(item, join(key))
    elif isinstance(value, (list, tuple)):
        for at, item in enumerate(value):
            yield from tensors_in(item, join(at))


def elements_of(tensor):
    """Returns the offsets of the elements of a tensor in its storage."""
    offsets = {tensor.storage_offset()} if tensor.numel() else set()
    for length, stride in zip(tensor.shape, tensor.stride()):
        offsets = {offset + at * stride for offset in offsets for at in range(length)}
    return offsets


def described(value):
    """Returns dtype and shape of each tensor, and the number of elements that are stored for all of them."""
    tensors, stored, storages = {}, 0, collections.defaultdict(set)
    for name, tensor in tensors_in(value):
        dtype, shape = str(tensor.dtype).removeprefix("torch."), list(tensor.shape)
        assert name not in tensors, name
        tensors[name] = {"dtype": DTYPES[dtype], "shape": shape}
        # Quantized tensors have no accessible storage, and none of ours share one.
        storage = id(tensor) if tensor.is_quantized else tensor.untyped_storage().data_ptr()
        size = tensor.element_size()
        new = {offset * size for offset in elements_of(tensor)} - storages[storage]
        storages[storage] |= new
        stored += len(new)
    return {"tensors": tensors, "stored": stored}


def shared():
    """Tensors that share storages."""
    base = torch.randn(6, 4)
    square = torch.randn(4, 4)
    return {
        "tied.bin": {"wte.weight": base, "h.weight": torch.randn(2, 2), "lm_head.weight": base},
        "tied-parameter.bin": (lambda p: {"a": p, "b": p})(torch.nn.Parameter(torch.randn(3))),
        "detached.bin": {"a": base, "b": base.detach(), "c": base.view(24)},
        "slices.bin": {"q": base[:2], "k": base[2:4], "v": base[4:]},
        "slice-only.bin": {"row": base[1:2]},
        "base-and-slice.bin": {"all": base, "row": base[3], "column": base[:, 1]},
        "slice-before-base.bin": {"row": base[3], "all": base},
        "columns.bin": {"even": base[:, ::2], "odd": base[:, 1::2], "even.again": base[:, ::2]},
        "overlap.bin": {"a": base.view(-1)[:10], "b": base.view(-1)[5:15], "c": base.view(-1)[12:20]},
        "expanded.bin": {"e": torch.randn(1, 3).expand(5, 3), "s": torch.randn(()).expand(2, 2), "w": square},
        "position-ids.bin": {"position_ids": torch.arange(8).expand((1, -1)), "w": square},
        "transposed.bin": {"w": square.t(), "again": square},
        "computed.bin": {"conjugated": torch.complex(torch.arange(3.0), torch.ones(3)).conj(), "negated": torch._neg_view(torch.arange(3.0)), "w": square},
        "permuted.bin": {"w": torch.randn(2, 3, 4).permute(2, 0, 1)},
        "unfolded.bin": {"w": torch.randn(8).unfold(0, 3, 1)},
        "strided.bin": {"w": torch.randn(9)[::2]},
        "empty.bin": {"none": torch.zeros(0), "rows": torch.zeros(0, 3), "w": square, "tail": square[4:]},
        "scalars.bin": {"a": torch.tensor(1.0), "num_batches_tracked": torch.tensor(3), "w": square},
    }


def structures():
    """Tensors in nested collections."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    weights = model.state_dict()
    adam = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    adam.step()
    ema = {name: tensor.clone() for name, tensor in weights.items()}
    lightning = {
        "epoch": 3, "global_step": 1_000, "pytorch-lightning_version": "2.5.0",
        "state_dict": collections.OrderedDict((f"model.{name}", tensor) for name, tensor in weights.items()),
        "loops": {"fit_loop": {"state_dict": {}}}, "hyper_parameters": {"lr": 1e-3, "betas": (0.9, 0.999)},
    }
    with_state = torch.nn.Parameter(torch.randn(2))
    with_state.note = "an attribute"
    return {
        "state-dict.bin": weights,
        "dict.pt": dict(weights),
        "tensor.pt": torch.randn(2, 3),
        "list.pth": [torch.randn(2), {"a": torch.randn(1)}, (torch.randn(3), None)],
        "wrapped.pth": {"state_dict": weights, "epoch": 3},
        "model-key.pt": {"model": dict(weights), "args": {"lr": 0.1, "flag": True}},
        "model-names.bin": {f"model.{name}": tensor for name, tensor in weights.items()},
        "lightning.ckpt": lightning,
        "training.ckpt": {**lightning, "optimizer_states": [adam.state_dict()], "lr_schedulers": []},
        "ema.pt": {"model": dict(weights), "ema": ema, "optimizer": adam.state_dict(), "step": 5},
        "adam.pt": adam.state_dict(),
        "parameters.bin": {"p": torch.nn.Parameter(torch.randn(2)), "s": with_state,
                            "b": getattr(torch.nn, "Buffer", torch.nn.Parameter)(torch.randn(2))},
        "int-keys.bin": {0: torch.randn(1), -7: torch.randn(2), "ü.weight": torch.randn(3)},
        "extras.bin": {"w": torch.randn(2), "n": None, "b": b"x", "f": 0.5, "i": 2**70, "s": {1, 2}, "z": frozenset("a"),
                        "c": collections.Counter("aab"), "d": torch.device("cpu"), "size": torch.Size([2]),
                        "type": torch.float16, "neg": -5, "big": 2**40, "neg_big": -(2**40), "j": 3j},
        "no-tensors.pt": {"epoch": 1},
        "many.bin": {f"h.{at}.mlp.weight": torch.zeros(1) for at in range(100)},
        # An adapter of PEFT.
        "lora.bin": {f"base_model.model.model.layers.{at}.self_attn.q_proj.lora_{side}.weight": torch.zeros(shape) for at in range(2) for side, shape in (("A", (2, 8)), ("B", (6, 2)))},
    }


def all_dtypes():
    for name in DTYPES:
        if name.startswith(("qint", "quint")):
            continue
        dtype = getattr(torch, name)
        tensor = torch.zeros(2, 6, dtype=torch.uint8)
        tensor = tensor.view(dtype) if tensor.element_size() == dtype.itemsize else torch.zeros(2, 3, dtype=dtype)
        yield f"dtype-{name}.bin", {"w": tensor, "scalar": tensor[0, 0].clone()}
    yield "quantized.bin", quantized_tensors()


def quantized_tensors():
    weight = torch.randn(2, 3)
    scales, zeros = torch.tensor([0.1, 0.2], dtype=torch.float64), torch.tensor([0, 0])
    return {
        "per_tensor": torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8),
        "per_channel": torch.quantize_per_channel(weight, scales, zeros, 0, torch.quint8),
        "wide": torch.quantize_per_tensor(weight, 0.1, 0, torch.qint32),
    }


class Call:
    """Pickles as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def in_archive(data):
    """Returns the files of a checkpoint with this pickle."""
    return {"archive/data.pkl": data, "archive/version": b"3\n"}


def write_archive(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)


def malicious(folder):
    """Writes pickles that would execute a command, and returns the imports that must be listed for each."""
    canary = "touch canary"
    text = lambda text: b"\x8c" + bytes([len(text)]) + text.encode()
    system = b"cposix\nsystem\n"
    pickles = {
        "reduce": (pickle.dumps({"w": Call(os.system, canary)}, 2), ["posix.system"]),
        "eval": (pickle.dumps(Call(eval, canary), 2), ["__builtin__.eval"]),
        "protocol-0": (b"cposix\nsystem\n(S'" + canary.encode() + b"'\ntR.", ["posix.system"]),
        "protocol-5": (pickle.dumps([Call(exec, canary)], 5), ["builtins.exec"]),
        "inst": (b"(S'" + canary.encode() + b"'\niposix\nsystem\n.", ["posix.system"]),
        "obj": (b"(" + system + b"S'" + canary.encode() + b"'\no.", ["posix.system"]),
        "newobj": (b"\x80\x02csubprocess\nPopen\nS'" + canary.encode() + b"'\n\x85\x81.", ["subprocess.Popen"]),
        "newobj-ex": (b"\x80\x04" + text("subprocess") + text("Popen") + b"\x93)}\x92.", ["subprocess.Popen"]),
        "stack-global": (b"\x80\x04" + text("os") + text("system") + b"\x93" + text(canary) + b"\x85R.", ["os.system"]),
        "memo-global": (b"\x80\x04" + text("system") + b"\x940" + text("os") + b"h\x00\x93" + text(canary) + b"\x85R.",
                        ["os.system"]),
        "popped": (b"\x80\x02" + system + b"X\x01\0\0\0a\x85R0}.", ["posix.system"]),
        "nested": (pickle.dumps({"a": [({"b": Call(getattr, Call(__import__, "os"), "system")},)]}, 2),
                   ["__builtin__.__import__", "__builtin__.getattr"]),
        "build": (b"\x80\x02ctypes\nSimpleNamespace\n)\x81}X\x01\0\0\0ac_io\nopen\nsb.",
                  ["_io.open", "types.SimpleNamespace"]),
        "hidden-in-tensor": (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n" + system + b"X\x01\0\0\0a\x85R\x85R.",
                             ["posix.system"]),
    }
    found = {}
    for name, (data, imports) in pickles.items():
        write_archive(folder / f"malicious-{name}.bin", in_archive(data))
        (folder / f"malicious-{name}-plain.bin").write_bytes(data)
        found[f"malicious-{name}.bin"] = found[f"malicious-{name}-plain.bin"] = imports
    magic = [pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    data = [*magic, pickles["reduce"][0], pickle.dumps([], 2)]
    (folder / "malicious-legacy.bin").write_bytes(b"".join(data))
    found["malicious-legacy.bin"] = ["posix.system"]
    return found


def rejected(folder):
    """Writes files that are no checkpoints of plain tensors, and returns a part of the expected messages."""
    files = {
        "sparse.bin": ({"w": torch.eye(3).to_sparse()}, "tensor `w` is built by `_rebuild_sparse_tensor`"),
        "csr.bin": ({"a": {"w": torch.eye(3).to_sparse_csr()}}, "tensor `a.w` is built by `_rebuild_sparse_tensor`"),
        "meta.bin": ({"w": torch.empty(3, device="meta")}, "_rebuild_meta_tensor_no_storage"),
        "float4.bin": ({"w": torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}, "tensor `w` is built by `_rebuild_tensor_v3`"),
        "nested.bin": ({"w": torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])}, "_rebuild_nested_tensor"),
    }
    found = {}
    for name, (value, message) in files.items():
        torch.save(value, folder / name)
        found[name] = message
    torch.jit.script(torch.nn.Linear(2, 2)).save(folder / "script.pt")
    found["script.pt"] = "the file is a TorchScript program"
    (folder / "plain.bin").write_bytes(pickle.dumps({"a": 1}))
    found["plain.bin"] = "the file is a pickle, not a checkpoint"
    write_archive(folder / "archive.bin", {"weights.h5": b"x"})
    found["archive.bin"] = "a ZIP archive without `data.pkl`"
    with zipfile.ZipFile(folder / "compressed.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"a": [1] * 100}))
    found["compressed.bin"] = "`data.pkl` is compressed"
    (folder / "pointer.bin").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    found["pointer.bin"] = "the file looks like a Git LFS pointer"
    (folder / "text.bin").write_bytes(b"hello, world\n")
    found["text.bin"] = "the file looks like text"
    return found


def header_of(path):
    """Returns dtype and shape of each tensor in a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    header.pop("__metadata__", None)
    return {name: [tensor["dtype"], tensor["shape"]] for name, tensor in sorted(header.items())}


def tiny_models():
    """Yields the name, the class and the configuration of tiny models: tied, shared between layers, with buffers."""
    import transformers as t

    small = dict(vocab_size=12, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12, max_position_embeddings=10)
    t5 = dict(vocab_size=12, d_model=8, d_kv=4, d_ff=12, num_layers=1, num_heads=2)
    bart = dict(vocab_size=12, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
                encoder_ffn_dim=12, decoder_ffn_dim=12, max_position_embeddings=10, pad_token_id=0, eos_token_id=1, forced_eos_token_id=1)
    yield "gpt2", t.GPT2LMHeadModel, t.GPT2Config(vocab_size=12, n_positions=10, n_embd=8, n_layer=1, n_head=2)
    yield "bert", t.BertForMaskedLM, t.BertConfig(**small)
    yield "roberta", t.RobertaForMaskedLM, t.RobertaConfig(**small)
    yield "distilbert", t.DistilBertForMaskedLM, t.DistilBertConfig(vocab_size=12, dim=8, n_layers=1, n_heads=2, hidden_dim=12, max_position_embeddings=10)
    yield "albert", t.AlbertForMaskedLM, t.AlbertConfig(**{**small, "num_hidden_layers": 3}, embedding_size=4)
    yield "electra", t.ElectraForMaskedLM, t.ElectraConfig(**small, embedding_size=4)
    yield "t5", t.T5ForConditionalGeneration, t.T5Config(**t5)
    yield "t5-untied", t.T5ForConditionalGeneration, t.T5Config(**t5, tie_word_embeddings=False)
    yield "bart", t.BartForConditionalGeneration, t.BartConfig(**bart)
    yield "opt", t.OPTForCausalLM, t.OPTConfig(vocab_size=12, hidden_size=8, num_hidden_layers=1, ffn_dim=12, num_attention_heads=2, max_position_embeddings=10, word_embed_proj_dim=8)
    yield "gpt-neo", t.GPTNeoForCausalLM, t.GPTNeoConfig(vocab_size=12, hidden_size=8, num_layers=2, attention_types=[[["global", "local"], 1]], num_heads=2, max_position_embeddings=10)
    yield "llama", t.LlamaForCausalLM, t.LlamaConfig(**small)
    yield "llama-tied", t.LlamaForCausalLM, t.LlamaConfig(**small, tie_word_embeddings=True)
    yield "bloom", t.BloomForCausalLM, t.BloomConfig(vocab_size=12, hidden_size=8, n_layer=1, n_head=2)
    yield "clip", t.CLIPModel, t.CLIPConfig(text_config=small, vision_config=dict(small, image_size=4, patch_size=2), projection_dim=4)
    yield "whisper", t.WhisperForConditionalGeneration, t.WhisperConfig(**{**bart, "d_model": 8}, num_mel_bins=4, max_source_positions=6, max_target_positions=6)
    yield "xlnet", t.XLNetLMHeadModel, t.XLNetConfig(vocab_size=12, d_model=8, n_layer=1, n_head=2, d_inner=12)
    yield "resnet", t.ResNetModel, t.ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1])


def save_models(folder, write):
    """Saves tiny models as pickles and as safetensors, and returns the headers of the latter."""
    import tempfile

    headers = {}
    for name, kind, config in tiny_models():
        torch.manual_seed(1)
        model = kind(config)
        with tempfile.TemporaryDirectory() as target:
            model.save_pretrained(target, safe_serialization=True) if write is old_pickle else model.save_pretrained(target)
            headers[name] = header_of(f"{target}/model.safetensors")
        write(model, folder / f"{name}.bin")
    (folder / "safetensors.json").write_text("{\n" + ",\n".join(f'"{name}": {json.dumps(found)}' for name, found in headers.items()) + "\n}\n")


def old_pickle(model, path):
    """Saves a model with an old version of transformers."""
    import tempfile

    with tempfile.TemporaryDirectory() as target:
        model.save_pretrained(target, safe_serialization=False)
        os.replace(f"{target}/pytorch_model.bin", path)


def new_pickle(model, path):
    torch.save(model.state_dict(), path)


def old(folder):
    """Writes the files of old versions of torch and transformers."""
    import transformers

    version = torch.__version__.split("+")[0]
    legacy = dict(_use_new_zipfile_serialization=False)
    for name, value in [*structures().items(), *shared().items()]:
        if name in ("state-dict.bin", "lightning.ckpt", "training.ckpt", "adam.pt", "parameters.bin", "extras.bin", "tied.bin", "slices.bin"):
            torch.save(value, folder / f"torch-{version}-{name}")
            torch.save(value, folder / f"torch-{version}-legacy-{name}", **legacy)
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    torch.save(module, folder / f"module-torch-{version}.pt")
    torch.save({"model": {"net": {"state_dict": module.state_dict()}}, "ema": {"shadow": module.state_dict()}}, folder / f"torch-{version}-nested.pth")
    torch.save(quantized_tensors(), folder / f"torch-{version}-quantized.bin")
    models = folder / "models" / f"transformers-{transformers.__version__}"
    models.mkdir(parents=True, exist_ok=True)
    save_models(models, old_pickle)
    # Shards of an old `save_pretrained`.
    config = transformers.GPT2Config(vocab_size=40, n_positions=10, n_embd=8, n_layer=2, n_head=2)
    transformers.GPT2LMHeadModel(config).save_pretrained(models / "sharded", safe_serialization=False, max_shard_size="5KB")
    for name in ("config.json", "generation_config.json"):
        (models / "sharded" / name).unlink(missing_ok=True)


QUANTIZED = [
    "bitsandbytes-real-nf4", "bitsandbytes-real-nf4-double", "bitsandbytes-real-nf4-bfloat16", "bitsandbytes-real-int8",
    "gptqmodel-real-3bit", "gptqmodel-real-4bit", "gptqmodel-real-4bit-channel", "gptqmodel-real-8bit",
    "autoawq-real-gemm", "autoawq-real-gemv", "autoawq-real-gemv-fast",
]


def quantized(folder):
    """Saves the state dictionaries of quantizers, and writes a fixture of each as safetensors."""
    import real
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    llama, record, save = real.llama, real.record, transformers.PreTrainedModel.save_pretrained
    state = {}

    def small(**rest):
        return llama(**{"intermediate_size": 128, "vocab_size": 32, **rest})

    def remember(model, *arguments, **options):
        state.clear()
        state.update(model.state_dict())
        return save(model, *arguments, **options)

    def record_state(name, by, total, modules, found, config, **rest):
        state.clear()
        state.update(found)
        return real_state(name, by, total, modules, found, config, **rest)

    def record_both(name, *arguments, **options):
        if name in QUANTIZED:
            record(name, *arguments, **options)
            torch.save(dict(state), folder / f"{name}.bin")

    real_state, real.FOLDER = real.record_state, folder
    real.llama, real.record, real.record_state, transformers.PreTrainedModel.save_pretrained = small, record_both, record_state, remember
    for package in ("bitsandbytes", "gptqmodel", "autoawq"):
        real.PACKAGES[package]()
    assert not real.ATTEMPTS, real.ATTEMPTS


def main():
    folder = pathlib.Path(sys.argv[1]) / "pytorch"
    folder.mkdir(parents=True, exist_ok=True)
    if "old" in sys.argv:
        return old(folder)
    files = {}

    def save(name, value, **options):
        torch.save(value, folder / name, **options)
        loaded = torch.load(folder / name, weights_only=False)
        files[name] = described(loaded)

    for name, value in [*shared().items(), *all_dtypes(), *structures().items()]:
        save(name, value)
    legacy = dict(_use_new_zipfile_serialization=False)
    for name in ["tied.bin", "slices.bin", "expanded.bin", "empty.bin", "columns.bin"]:
        save(f"legacy-{name}", shared()[name], **legacy)
    for name in ["state-dict.bin", "lightning.ckpt", "extras.bin", "parameters.bin", "no-tensors.pt", "many.bin"]:
        save(f"legacy-{name}", structures()[name], **legacy)
    for protocol in [3, 4, 5]:
        save(f"protocol-{protocol}.bin", structures()["state-dict.bin"], pickle_protocol=protocol)
        save(f"legacy-extras-{protocol}.bin", structures()["extras.bin"], pickle_protocol=protocol, **legacy)
    save("legacy-bf16.bin", {"w": torch.zeros(3, dtype=torch.bfloat16)}, **legacy)
    save("module.pt", torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)))
    save("module-in-dict.pt", {"model": torch.nn.Linear(2, 3), "ema": None})
    for path in sorted([*folder.glob("torch-*"), *folder.glob("module-torch-*")]):
        files[path.name] = described(torch.load(path, weights_only=False))
    # torch 2.8 and later can omit the checksums.
    torch.serialization.set_crc32_options(False)
    save("no-checksums.bin", shared()["tied.bin"])
    torch.serialization.set_crc32_options(True)

    from torch._weights_only_unpickler import _get_allowed_globals

    allowed = sorted(name for name in _get_allowed_globals() if "." in name)
    oracle = {"files": files, "malicious": malicious(folder), "rejected": rejected(folder)}
    oracle["allowed"] = {name: True for name in allowed}
    assert not pathlib.Path("canary").exists()
    models = folder / "models/transformers-5.23.0"
    models.mkdir(parents=True, exist_ok=True)
    save_models(models, new_pickle)
    quantized(folder / "quantized")
    # One line per file.
    lines = [
        f'"{part}": {{\n' + ",\n".join(f'"{name}": {json.dumps(found)}' for name, found in listed.items()) + "\n}"
        for part, listed in oracle.items()
    ]
    (folder / "oracle.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
