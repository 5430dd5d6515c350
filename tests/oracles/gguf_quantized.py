#!/usr/bin/env python3
"""Quantizes a small model with `llama.cpp` to every type of file that it writes, and writes the figures of the reader of
the `gguf` package.

    python -m pip install gguf==0.19.0
    npm install --ignore-scripts --prefix SCRATCH @node-llama-cpp/linux-x64@3.22.1
    python tests/oracles/gguf_quantized.py SCRATCH/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64 fixtures

The fixtures are the headers of complete files. The last ones are a mixture of experts, a model that the package splits,
and tensors that the package quantizes.
"""

import ctypes
import json
import pathlib
import sys
import tempfile

import gguf
import numpy
from gguf_files import described

REPOSITORY = pathlib.Path("example") / "Tiny-GGUF"
LIBRARIES = ["libggml-base.so", "libggml-cpu-x64.so", "libggml.v0.5.0.so", "libllama.v0.5.0.so"]
LAYERS, VOCABULARY, HIDDEN, INNER, EXPERTS = 2, 80, 256, 512, 4


class Importance(ctypes.Structure):
    """The importance of the columns of a tensor, which small types need."""

    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.POINTER(ctypes.c_float)), ("size", ctypes.c_size_t)]


class Parameters(ctypes.Structure):
    """`llama_model_quantize_params`, with room for fields that later versions may add."""

    _fields_ = [
        ("threads", ctypes.c_int32),
        ("file_type", ctypes.c_int32),
        ("types", ctypes.c_int32 * 2),
        ("flags", ctypes.c_bool * 8),
        ("importance", ctypes.POINTER(Importance)),
        ("others", ctypes.c_uint8 * 216),
    ]


def load(folder):
    *_, library = [ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL) for name in LIBRARIES]
    library.llama_model_quantize_default_params.restype = Parameters
    library.llama_model_quantize.restype = ctypes.c_uint32
    library.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(Parameters)]
    return library


def importance(source):
    """Returns the importance 1 of all columns."""
    tensors = [tensor for tensor in gguf.GGUFReader(source).tensors if len(tensor.shape) > 1]
    rows = (Importance * (len(tensors) + 1))()
    for row, tensor in zip(rows, tensors):
        columns = int(tensor.shape[0]) * (int(tensor.shape[2]) if len(tensor.shape) > 2 else 1)
        row.name, row.size = tensor.name.encode(), columns
        row.data = ctypes.cast((ctypes.c_float * columns)(*[1.0] * columns), ctypes.POINTER(ctypes.c_float))
    return rows


def quantize(library, source, target, file_type):
    parameters = library.llama_model_quantize_default_params()
    parameters.threads, parameters.file_type = 1, file_type
    parameters.importance = importance(source)
    failed = library.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(parameters))
    if failed:
        target.unlink(missing_ok=True)
    return not failed


def describe(writer, has_experts):
    writer.add_name("Tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(0.5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"token{at}" for at in range(VOCABULARY)])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([1] * VOCABULARY)
    if has_experts:
        writer.add_expert_count(EXPERTS)
        writer.add_expert_used_count(2)


def shapes(has_experts):
    yield from {"token_embd": [VOCABULARY, HIDDEN], "output_norm": [HIDDEN], "output": [VOCABULARY, HIDDEN]}.items()
    attention = {"attn_norm": [HIDDEN], "attn_q": [HIDDEN, HIDDEN], "attn_k": [HIDDEN // 2, HIDDEN]}
    attention |= {"attn_v": [HIDDEN // 2, HIDDEN], "attn_output": [HIDDEN, HIDDEN], "ffn_norm": [HIDDEN]}
    inner = {"ffn_gate": [INNER, HIDDEN], "ffn_up": [INNER, HIDDEN], "ffn_down": [HIDDEN, INNER]}
    if has_experts:
        inner = {f"{name}_exps": [EXPERTS, *shape] for name, shape in inner.items()}
        inner["ffn_gate_inp"] = [EXPERTS, HIDDEN]
    for layer in range(LAYERS):
        for name, shape in {**attention, **inner}.items():
            yield f"blk.{layer}.{name}", shape


def write(path, has_experts=False, **options):
    """Writes a model of random weights."""
    writer = gguf.GGUFWriter(path, "llama", **options)
    describe(writer, has_experts)
    random = numpy.random.default_rng(1)
    for name, shape in shapes(has_experts):
        writer.add_tensor(f"{name}.weight", random.standard_normal(shape).astype(numpy.float32))
    finish(writer)


def write_package_types(path):
    """Writes a tensor of each type that the package can quantize."""
    writer = gguf.GGUFWriter(path, "llama")
    values = numpy.random.default_rng(1).standard_normal((3, 512)).astype(numpy.float32)
    for tensor_type in gguf.GGMLQuantizationType:
        try:
            data = gguf.quants.quantize(values, tensor_type)
        except NotImplementedError:
            continue
        writer.add_tensor(f"t.{tensor_type.name}", data, raw_dtype=tensor_type)
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_files(library, folder):
    source, experts = folder / "Tiny-F32.gguf", folder / "Tiny-MoE-F32.gguf"
    write(source)
    write(experts, has_experts=True)
    for file_type in gguf.LlamaFileType:
        if file_type.name in ("ALL_F32", "GUESSED"):
            continue
        name = file_type.name.removeprefix("MOSTLY_")
        if not quantize(library, source, folder / f"Tiny-{name}.gguf", file_type.value):
            print(f"{name} is not written by this version of llama.cpp")
    quantize(library, experts, folder / "Tiny-MoE-Q4_K_M.gguf", gguf.LlamaFileType.MOSTLY_Q4_K_M.value)
    write(folder / "Tiny-split.gguf", split_max_tensors=8)
    write_package_types(folder / "types.gguf")


def main():
    library = load(pathlib.Path(sys.argv[1]))
    fixtures = pathlib.Path(sys.argv[2]) / REPOSITORY
    fixtures.mkdir(parents=True, exist_ok=True)
    for old in fixtures.glob("*.gguf"):
        old.unlink()
    files = {}
    with tempfile.TemporaryDirectory() as scratch:
        write_files(library, pathlib.Path(scratch))
        for path in sorted(pathlib.Path(scratch).iterdir()):
            reader, size = gguf.GGUFReader(path), path.stat().st_size
            files[path.name] = described(reader, size, reader.data_offset)
            (fixtures / path.name).write_bytes(path.read_bytes()[: reader.data_offset])
    sizes = {name: figures["size"] for name, figures in files.items()}
    (fixtures / "hub.json").write_text(json.dumps({"sizes": sizes}, indent=1) + "\n")
    (fixtures / "oracle.json").write_text(json.dumps({"files": files}, separators=(",", ":")) + "\n")
    print(f"{len(files)} files")


if __name__ == "__main__":
    main()
