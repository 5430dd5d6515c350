#!/usr/bin/env python3
"""Writes GGUF files with the `gguf` package, and the figures that its reader finds in them.

    python -m pip install gguf==0.19.0
    python tests/oracles/gguf_files.py fixtures

The fixtures end with their headers. `gguf/oracle.json` has the sizes of the files, the figures, and the table of types. The
test `tests/it/count/gguf` compares our parser with it.
"""

import json
import pathlib
import random
import struct
import sys

import gguf
import numpy
from gguf import GGMLQuantizationType as Type
from gguf import GGUFEndian, GGUFReader, GGUFValueType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES

TYPES = list(Type)


def add(writer, name, shape, tensor_type):
    """Adds a tensor without its data. The shape has the order of numpy."""
    block, size = GGML_QUANT_SIZES[tensor_type]
    elements = int(numpy.prod(shape, dtype=object))
    row = [*shape[:-1], shape[-1] // block * size] if shape else shape
    writer.add_tensor_info(name, row, numpy.dtype(numpy.uint8), elements // block * size, raw_dtype=tensor_type)


def shape_for(tensor_type, generator):
    block = GGML_QUANT_SIZES[tensor_type][0]
    rows = [generator.randint(1, 9) for _ in range(generator.randint(0, 3))]
    return [*rows, block * generator.randint(1, 4)]


def one_type(tensor_type):
    def write(writer, generator):
        writer.add_file_type(generator.randint(0, 30))
        for at in range(3):
            add(writer, f"blk.{at}.ffn_down.weight", shape_for(tensor_type, generator), tensor_type)
    return write


def all_types(writer, generator):
    for tensor_type in TYPES:
        add(writer, f"t.{tensor_type.name}", shape_for(tensor_type, generator), tensor_type)


def all_values(writer, generator):
    numbers = {"u8": 255, "i8": -128, "u16": 65535, "i16": -32768, "u32": 2**32 - 1, "i32": -(2**31)}
    for name, number in {**numbers, "u64": 2**64 - 1, "i64": -(2**63)}.items():
        kind = {"u": "UINT", "i": "INT"}[name[0]] + name[1:]
        writer.add_key_value(f"x.{name}", number, GGUFValueType[kind])
    writer.add_float32("x.f32", 1.5)
    writer.add_float64("x.f64", -0.25)
    writer.add_bool("x.true", True)
    writer.add_bool("x.false", False)
    writer.add_string("x.empty", "")
    writer.add_string("x.unicode", "模型 ü \u202e")
    writer.add_string("x.long", "y" * 1500)
    writer.add_array("x.numbers", [1, 2, 3])
    writer.add_array("x.many", list(range(200)))
    writer.add_array("x.floats", [0.5, 1.5])
    writer.add_array("x.texts", ["a", "b"])
    writer.add_array("x.bools", [True, False])


def vocabulary(tokenizer, tokens):
    def write(writer, generator):
        writer.add_context_length(131072)
        writer.add_block_count(2)
        writer.add_file_type(15)
        writer.add_tokenizer_model(tokenizer)
        texts = [f"tok{at}" for at in range(tokens)]
        writer.add_token_list(texts)
        writer.add_token_types([1] * tokens)
        if tokenizer == "llama":
            writer.add_token_scores([-float(at) for at in range(tokens)])
        else:
            writer.add_token_merges([f"{text} x" for text in texts])
        writer.add_chat_template("{{ messages }}" * 200)
        add(writer, "token_embd.weight", [tokens, 64], Type.F16)
        for layer in range(2):
            add(writer, f"blk.{layer}.attn_q.weight", [64, 256], Type.Q4_K)
            add(writer, f"blk.{layer}.attn_norm.weight", [64], Type.F32)
    return write


def experts(writer, generator):
    writer.add_block_count(2)
    writer.add_context_length(4096)
    writer.add_expert_count(8)
    writer.add_expert_used_count(2)
    add(writer, "token_embd.weight", [100, 256], Type.Q8_0)
    for layer in range(2):
        add(writer, f"blk.{layer}.ffn_gate_inp.weight", [8, 256], Type.F32)
        for part, shape in {"gate": [8, 512, 256], "up": [8, 512, 256], "down": [8, 256, 512]}.items():
            add(writer, f"blk.{layer}.ffn_{part}_exps.weight", shape, Type.Q4_K)
        add(writer, f"blk.{layer}.ffn_down_shexp.weight", [256, 512], Type.Q6_K)
    add(writer, "output.weight", [100, 256], Type.Q6_K)


def numbered_experts(writer, generator):
    """Experts as `llama.cpp` stored them until April 2024: one tensor for each."""
    writer.add_block_count(2)
    writer.add_expert_count(8)
    writer.add_expert_used_count(2)
    add(writer, "token_embd.weight", [100, 256], Type.Q8_0)
    for layer in range(2):
        add(writer, f"blk.{layer}.ffn_gate_inp.weight", [8, 256], Type.F16)
        for expert in range(8):
            for part, shape in {"gate": [512, 256], "down": [256, 512], "up": [512, 256]}.items():
                add(writer, f"blk.{layer}.ffn_{part}.{expert}.weight", shape, Type.Q4_K)
    add(writer, "output.weight", [100, 256], Type.Q6_K)


def alignment(number):
    def write(writer, generator):
        writer.add_custom_alignment(number)
        for at in range(4):
            add(writer, f"t{at}", [generator.randint(1, 50)], Type.I8)
    return write


def anything(writer, generator):
    """A random header."""
    for at in range(generator.randint(0, 6)):
        writer.add_uint32(f"random.{at}", generator.randint(0, 2**32 - 1))
    for at in range(generator.randint(1, 12)):
        tensor_type = generator.choice(TYPES)
        add(writer, f"blk.{at}.weight", shape_for(tensor_type, generator), tensor_type)


def part(number, files):
    """A file of a split model. Only the first one describes the model."""
    def write(writer, generator):
        if number == 0:
            vocabulary("gpt2", 50)(writer, generator)
        else:
            add(writer, f"blk.{number + 1}.ffn_up.weight", [32, 256], Type.Q5_K)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", files)
        writer.add_int32("split.tensors.count", 7)
    return write


def nothing(writer, generator):
    pass


def llama(plain, *, large=None, embedding=None, file_type, layers=range(16), with_keys=True, split=None):
    """Llama 3.2 1B with a short vocabulary, in the mix of types of a quantization."""
    def write(writer, generator):
        if with_keys:
            writer.add_type("model")
            writer.add_name("Llama 3.2 1B")
            writer.add_block_count(16)
            writer.add_context_length(131072)
            writer.add_embedding_length(2048)
            writer.add_file_type(file_type)
            writer.add_tokenizer_model("gpt2")
            writer.add_token_list([f"token{at}" for at in range(500)])
            writer.add_token_types([1] * 500)
            writer.add_token_merges([f"token{at} x" for at in range(500)])
            writer.add_chat_template("{{ messages }}" * 100)
        if split:
            writer.add_uint16("split.no", split[0])
            writer.add_uint16("split.count", split[1])
            writer.add_int32("split.tensors.count", 146)
        if 0 in layers:
            add(writer, "token_embd.weight", [128256, 2048], embedding or plain)
            add(writer, "output_norm.weight", [2048], Type.F32)
        for layer in layers:
            shapes = {"attn_q": [2048, 2048], "attn_k": [512, 2048], "attn_v": [512, 2048]}
            shapes |= {"attn_output": [2048, 2048], "ffn_gate": [8192, 2048], "ffn_up": [8192, 2048]}
            shapes |= {"ffn_down": [2048, 8192]}
            for part, shape in shapes.items():
                is_large = large and part in ("attn_v", "ffn_down") and layer % 2 == 0
                add(writer, f"blk.{layer}.{part}.weight", shape, large if is_large else plain)
            for part in ("attn_norm", "ffn_norm"):
                add(writer, f"blk.{layer}.{part}.weight", [2048], Type.F32)
    return write


def projector(writer, generator):
    writer.add_type("mmproj")
    add(writer, "v.patch_embd.weight", [1152, 3, 14, 14], Type.F16)


BF16 = {"plain": Type.BF16, "file_type": 32}
REPOSITORY = {
    "Llama-3.2-1B-Q4_K_M": llama(Type.Q4_K, large=Type.Q6_K, embedding=Type.Q6_K, file_type=15),
    "Llama-3.2-1B-Q2_K": llama(Type.Q2_K, large=Type.Q3_K, embedding=Type.Q6_K, file_type=10),
    "Llama-3.2-1B-Q8_0": llama(Type.Q8_0, file_type=7),
    "BF16/Llama-3.2-1B-BF16-00001-of-00002": llama(**BF16, layers=range(8), split=(0, 2)),
    "BF16/Llama-3.2-1B-BF16-00002-of-00002": llama(**BF16, layers=range(8, 16), with_keys=False, split=(1, 2)),
    "mmproj-F16": projector,
}


FILES = {
    **{f"type-{tensor_type.name}": one_type(tensor_type) for tensor_type in TYPES},
    "all-types": all_types,
    "all-values": all_values,
    "bpe": vocabulary("gpt2", 300),
    "scores": vocabulary("llama", 300),
    "experts": experts,
    "aligned-8": alignment(8),
    "aligned-4096": alignment(4096),
    "blocks": lambda writer, _: add(writer, "x", [256], Type.F32),
    "empty": nothing,
    **{f"random-{at}": anything for at in range(6)},
    "big-endian": all_types,
    "big-endian-values": all_values,
    "version-2": vocabulary("gpt2", 20),
    **{f"split-{at + 1:05}-of-00003": part(at, 3) for at in range(3)},
    # New files come last: the position is the seed.
    "experts-numbered": numbered_experts,
}


def write(folder, name, fill, seed):
    """Writes a file and returns its path."""
    path = folder / f"{name}.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    order = GGUFEndian.BIG if name.startswith("big-endian") else GGUFEndian.LITTLE
    is_later = "-of-" in name and "-00001-of-" not in name
    writer = GGUFWriter(path, "llama", endianess=order)
    if is_later:
        writer.kv_data[0].pop("general.architecture")
    fill(writer, random.Random(seed))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    if name == "version-2":
        with open(path, "r+b") as file:
            file.seek(4)
            file.write(struct.pack("<I", 2))
    return path


def data_length(path):
    """Extends a file by its data, and returns where the data begins and ends."""
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size + (1 << 32))
    reader = GGUFReader(path)
    ends = [tensor.data_offset + tensor.n_bytes for tensor in reader.tensors]
    return reader, max(ends, default=reader.data_offset)


def figures(path):
    """Returns the figures of the reader, and cuts the file after its header."""
    header = path.stat().st_size
    reader, end = data_length(path)
    start = reader.data_offset if reader.tensors else header
    found = described(reader, max(end, start), start)
    del reader
    with open(path, "r+b") as file:
        file.truncate(header)
    return found


def described(reader, size, start):
    return {
        "size": int(size),
        "dataStart": int(start),
        "tensors": [
            {
                "name": tensor.name,
                "type": tensor.tensor_type.name,
                "shape": [int(length) for length in reversed(tensor.shape)],
                "elements": int(tensor.n_elements),
                "bytes": int(tensor.n_bytes),
                "offset": int(tensor.data_offset - reader.data_offset),
            }
            for tensor in reader.tensors
        ],
        "keys": {
            field.name: value(field) for field in reader.fields.values() if not field.name.startswith("GGUF.")
        },
    }


def value(field):
    """Returns a value as our parser stores it."""
    text = {True: "true", False: "false"}
    kind, element = field.types[0], field.types[-1]
    content = field.contents()
    if kind == GGUFValueType.ARRAY:
        whole = lambda entry: int(entry) if isinstance(entry, float) and entry.is_integer() else entry
        entries = ", ".join(text[entry] if isinstance(entry, bool) else str(whole(entry)) for entry in content)
        if len(content) > 256 or len(entries.encode()) > 2048:
            return f"({len(content)} {'texts' if element == GGUFValueType.STRING else 'numbers'})"
        return f"[{entries}]"
    if kind == GGUFValueType.STRING and len(content.encode()) > 1024:
        return f"({len(content.encode())} bytes)"
    return text[content] if kind == GGUFValueType.BOOL else str(content)


def write_all(folder, files):
    """Writes files to a folder, with their sizes for the local Hub, and returns their figures."""
    found = {}
    for seed, (name, fill) in enumerate(files.items()):
        path = write(folder, name, fill, seed)
        found[f"{name}.gguf"] = figures(path)
    sizes = {name: figures["size"] for name, figures in found.items()}
    (folder / "hub.json").write_text(json.dumps({"sizes": sizes}, indent=1) + "\n")
    return found


def main():
    fixtures = pathlib.Path(sys.argv[1])
    for old in (fixtures / "gguf").glob("*.gguf"):
        old.unlink()
    files = write_all(fixtures / "gguf", FILES)
    write_all(fixtures / "example" / "Llama-3.2-1B-GGUF", REPOSITORY)
    types = [[kind.value, kind.name, *GGML_QUANT_SIZES[kind]] for kind in TYPES]
    file_types = {kind.value: kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in gguf.LlamaFileType}
    oracle = {"types": types, "fileTypes": file_types, "files": files}
    (fixtures / "gguf" / "oracle.json").write_text(json.dumps(oracle, separators=(",", ":")) + "\n")
    print(f"{len(files)} files")


if __name__ == "__main__":
    main()
