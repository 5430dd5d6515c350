#!/usr/bin/env python3
"""Writes a small model of each architecture of llama.cpp, whole and broken, and compares `verify` with llama.cpp itself.

    python -m pip install gguf==0.19.0 numpy
    npm install --ignore-scripts --prefix SCRATCH @node-llama-cpp/linux-x64@3.22.1
    tests/oracles/gguf_loads.py HF_META SOURCE SCRATCH/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64 [ARCHITECTURE ...]

The tensors come from the table that `gguf_layouts.py` derives from SOURCE. A model that llama.cpp loads must have no error,
and a model that it rejects must have one. Architectures that need keys of other types are not loaded, and are skipped.
The answer of `--engine llama.cpp` must agree: a file with `no` is not loaded, and one with `yes` is.
"""

import collections
import ctypes
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import gguf
import numpy
from gguf_layouts import Machine, Source, Table

LAYERS, TOKENS = 4, 32
os.environ["GGML_NO_BACKTRACE"] = "1"
NUMBERS = {
    "context_length": 64, "embedding_length": 64, "block_count": LAYERS, "feed_forward_length": 96, "attention.head_count": 4, "attention.head_count_kv": 2, "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32,
    "expert_shared_feed_forward_length": 48, "expert_shared_count": 1, "leading_dense_block_count": 1, "attention.q_lora_rank": 24, "attention.kv_lora_rank": 16, "attention.key_length": 16, "attention.value_length": 16, "rope.dimension_count": 16,
    "ssm.conv_kernel": 4, "ssm.inner_size": 128, "ssm.state_size": 16, "ssm.time_step_rank": 8, "ssm.group_count": 2, "attention.key_length_mla": 24, "attention.value_length_mla": 16, "attention.sliding_window": 32, "attention.indexer.key_length": 32,
    "kda.head_dim": 16, "shortconv.l_cache": 3, "wkv.head_size": 16, "interleave_moe_layer_step": 2, "decoder_block_count": 3, "hyper_connection.count": 4, "full_attention_interval": 4, "moe_every_n_layers": 2, "expert_gating_func": 1,
}
LISTS = {"attention.sliding_window_pattern": [True, False] * 2, "rope.dimension_sections": [4] * 4, "use_parallel_residual": True}
# Keys that need others, or that change what a model is.
LEFT_OUT = re.compile(r"nextn|recurrent_layers|decision|latent|indexer\.types|num_loops|length_out|compress_ratios|^tokenizer")
IS_FLOAT = re.compile(r"epsilon|scale$|softcapping|freq_base|clamp|alibi|beta|bound|gain|magnitude")


class Formula:
    """An evaluation of a formula, as in `architectures/architecture.rs`. A missing key is `None`, and another failure a NaN."""

    def __init__(self, text, keys, names, layer):
        self.text, self.at, self.keys, self.names, self.layer = text, 0, keys, names, layer

    def take(self, symbol):
        found = self.text.startswith(symbol, self.at)
        self.at += len(symbol) * found
        return found

    def match(self, pattern):
        found = re.compile(pattern).match(self.text, self.at)
        self.at = found.end()
        return found[0]

    def choice(self):
        condition = self.fallback()
        if not self.take("?"):
            return condition
        first = self.choice()
        self.take(":")
        second = self.choice()
        return condition if condition is None or condition != condition else first if condition else second

    def fallback(self):
        value = self.level(0)
        while self.take("|"):
            other = self.level(0)
            value = other if value is None else value
        return value

    LEVELS = [("==", ">=", "<"), ("+", "-"), ("*", "/", "%")]

    def level(self, number):
        if number == len(self.LEVELS):
            return self.atom()
        value = self.level(number + 1)
        while symbol := next((symbol for symbol in self.LEVELS[number] if self.take(symbol)), None):
            right = self.level(number + 1)
            value = value if value is None else right if right is None else self.apply(symbol, value, right)
        return value

    @staticmethod
    def apply(symbol, left, right):
        if symbol in "/%" and not right:
            return float("nan")
        result = {"==": left == right, ">=": left >= right, "<": left < right, "+": left + right, "-": left - right, "*": left * right, "/": left // (right or 1), "%": left % (right or 1)}[symbol]
        return int(result) if result == result and result >= 0 else float("nan")

    def atom(self):
        if self.take("("):
            value = self.choice()
            self.take(")")
            return value
        name = self.match(r"[\w.$]*")
        if self.take("("):
            value = self.keys.get(self.match(r"[^)]*"))
            self.take(")")
            return int(value is not None) if name == "has" else len(value) if isinstance(value, list) else None
        if name.isdigit() or name == "layer":
            return self.layer if name == "layer" else int(name)
        if name.startswith("$"):
            return Formula(self.names[name], self.keys, self.names, self.layer).choice()
        value = self.keys.get(name)
        return value if value is None else int(value[self.layer] if isinstance(value, list) else value)


class Model:
    """A model of an architecture: its keys, and the tensors that the table requires."""

    def __init__(self, source, arch, name, has_experts, changes=()):
        self.name, machine = name, Machine(source, arch)
        self.words, self.names = Table(machine).words(), source.names
        self.plain = {emission.name for emission in machine.emitted if not emission.name.endswith(".weight")}
        self.keys = self.choose_keys(source, machine, has_experts) | dict(changes)
        known = {**self.keys, "tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.token_type_count": 2}
        self.evaluate = lambda formula, layer: None if formula == "_" else Formula(formula, known, self.names, layer).choice()
        self.tensors = dict(self.required())

    def choose_keys(self, source, machine, has_experts):
        text, names = " ".join(self.words.values()), set()
        while more := set(re.findall(r"\$\w+", text)) - names:
            names |= more
            text += " " + " ".join(source.names[name] for name in more)
        used = set(re.findall(r"[a-z]\w*(?:\.\w+)*", text)) & {key.removeprefix("%s.") for key in source.keys.values()}
        used = {key for key in used if not LEFT_OUT.search(key) and not key.endswith("_swa") and (has_experts or not key.startswith("expert"))}
        keys = {}
        for key in sorted(used | set(machine.required)):
            keys[key] = 1e-5 if IS_FLOAT.search(key) else LISTS.get(key, NUMBERS.get(key, 32 if key.endswith("_swa") else 8))
        if "attention.head_count_kv" in keys and "$n_head_kv==0" in text:
            keys["attention.head_count_kv"] = [0, 2] * 2
        return keys

    def required(self):
        for path, value in self.words.items():
            flags, letter, sides = re.fullmatch(r"(-?)(?:([A-Za-z]):)?(.*)", value).groups()
            if path.endswith("#") or re.search(r"(^|\.)\?\w?$", path) or flags:
                continue
            outer = path[: path.find("#") + 1]
            for layer in range(int(self.evaluate(self.words[outer], 0) or 0) if outer else 1):
                shape = [self.evaluate(side, layer) for side in sides.split(",")]
                if self.is_stored(outer and f"{outer}.", letter, layer) and all(shape) and None not in shape:
                    name = path.replace("#", str(layer), 1)
                    yield name if path in self.plain else f"{name}.weight", shape

    def is_stored(self, parent, letter, layer):
        if not letter or f"{parent}?{letter}" in self.words:
            return not letter or self.evaluate(self.words[f"{parent}?{letter}"], layer)
        return any(groups.startswith(letter) for groups in self.words.get(f"{parent}?", "").split(","))

    def broken(self):
        """Yields the tensors of broken models, with the way in which they are broken."""
        for name in ("token_embd.weight", "output_norm.weight"):
            if name in self.tensors:
                yield f"{name} missing", {other: shape for other, shape in self.tensors.items() if other != name}
        yield "last layer missing", {name: shape for name, shape in self.tensors.items() if f"blk.{LAYERS - 1}." not in name}
        kinds = dict.fromkeys(re.sub(r"\d+", "#", name, count=1) for name in self.tensors if ".#." in re.sub(r"\d+", "#", name, count=1))
        for kind in kinds:
            names = [name for name in self.tensors if re.sub(r"\d+", "#", name, count=1) == kind]
            yield "one tensor missing in one layer", {name: shape for name, shape in self.tensors.items() if name != names[-1]}
            yield "one tensor missing in all layers", {name: shape for name, shape in self.tensors.items() if name not in names}
            yield "one tensor renamed", {name.replace(".weight", "_new.weight") if name in names else name: shape for name, shape in self.tensors.items()} if names[0].endswith(".weight") else {}
            yield "one tensor halved", {name: [shape[0] // 2, *shape[1:]] if name == names[-1] and shape[0] > 1 else shape for name, shape in self.tensors.items()}

    def write(self, path, tensors, kind=None):
        """Writes a file. `kind` is the type of its matrices."""
        writer = gguf.GGUFWriter(str(path), self.name)
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}
        for key, value in self.keys.items():
            add[type(value)](f"{self.name}.{key}", value)
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(10)), "▁", *(f"t{number}" for number in range(TOKENS - 14))]
        writer.add_tokenizer_model("llama")
        writer.add_token_list(tokens)
        writer.add_token_scores([-float(number) for number in range(TOKENS)])
        writer.add_token_types([2, 3, 3] + [6] * 10 + [1] * (TOKENS - 13))
        writer.add_token_type_count(2)
        for name, shape in tensors.items():
            block, size = gguf.GGML_QUANT_SIZES[kind] if kind is not None and len(shape) > 1 else (1, 0)
            if size and shape[-1] % block == 0:
                writer.add_tensor(name, numpy.zeros([*shape[:-1], shape[-1] // block * size], dtype=numpy.uint8), raw_dtype=kind)
            else:
                writer.add_tensor(name, numpy.zeros(shape, dtype=numpy.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


class Parameters(ctypes.Structure):
    """`llama_model_params`, with room for fields that later versions may add."""

    _fields_ = [("fields", ctypes.c_uint8 * 160)]


class Loader:
    """llama.cpp, which aborts for some files and therefore runs in a process for each."""

    def __init__(self, folder):
        names = ["libggml-base.so", "libggml-cpu-x64.so", "libggml.v0.5.0.so", "libllama.v0.5.0.so"]
        *_, ggml, self.llama = [ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL) for name in names]
        ggml.ggml_backend_load.argtypes, ggml.ggml_backend_load.restype = [ctypes.c_char_p], ctypes.c_void_p
        ggml.ggml_backend_load(str(folder / "libggml-cpu-x64.so").encode())
        self.llama.llama_model_default_params.restype = Parameters
        self.llama.llama_model_load_from_file.argtypes, self.llama.llama_model_load_from_file.restype = [ctypes.c_char_p, Parameters], ctypes.c_void_p

    def loads(self, path):
        if child := os.fork():
            return os.waitpid(child, 0)[1] == 0
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        model = self.llama.llama_model_load_from_file(str(path).encode(), self.llama.llama_model_default_params())
        os._exit(0 if model else 1)


def changed(model, wide, path):
    """Writes a sound model in many other ways, and yields the name of each."""
    model.write(path, model.tensors)
    data = path.read_bytes()
    name = model.name.encode()
    files = {f"cut after {length} bytes": data[:length] for length in (0, 3, 12, 24, 100, 400, 1000, len(data) - 1, len(data) - 4000)}
    files |= {f"version {version}": data[:4] + struct.pack("<I", version) + data[8:] for version in (0, 1, 2, 4, 3 << 24)}
    files |= {"text": b"hello", "no file type": b"GGUX" + data[4:], "more data": data + bytes(64), "no tensors": data[:8] + struct.pack("<Q", 0) + data[16:]}
    # An architecture of the same length, so that all positions remain.
    for other in ("x" * len(name), "LLAMA"[: len(name)]):
        files[f"architecture {other}"] = data.replace(name, other.encode())
    first = next(iter(model.tensors)).encode()
    at = data.index(struct.pack("<Q", len(first)) + first) + 8 + len(first)
    (sides,) = struct.unpack("<I", data[at : at + 4])
    dtype = at + 4 + 8 * sides
    for number in [*range(0, 43), 64, 99, 255, 1 << 31]:
        files[f"type {number}"] = data[:dtype] + struct.pack("<I", number) + data[dtype + 4 :]
    files["offset"] = data[: dtype + 4] + struct.pack("<Q", 7) + data[dtype + 12 :]
    files["sides"] = data[:at] + struct.pack("<I", 5) + data[at + 4 :]
    for way, content in files.items():
        path.write_bytes(content)
        yield way
    for kind in gguf.GGMLQuantizationType:
        wide.write(path, wide.tensors, kind)
        yield f"matrices of {kind.name}"


def main():
    program, folder, libraries, *wanted = sys.argv[1:]
    source, loader = Source(pathlib.Path(folder) / "src"), Loader(pathlib.Path(libraries).resolve())
    counts, different, skipped = collections.defaultdict(collections.Counter), [], []
    answers, wrong = collections.Counter(), []
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "model.gguf"

        def compare(name, is_first=False):
            """Returns whether llama.cpp loads the file, and whether it has no error. The first file of a skipped architecture
            lacks keys that no rule of ours knows, so its answer does not count."""
            command = [program, "verify", "--json", "--engine", "llama.cpp", str(path)]
            report = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
            loads, answer = loader.loads(path), report["engine"]["loads"]
            if is_first and not loads:
                return loads, report["valid"]
            answers[answer, loads] += 1
            if answer not in (None, loads):
                wrong.append(f"{name}: {'yes' if answer else 'no'} {[reason['message'] for reason in report['engine']['reasons']]}")
            return loads, report["valid"]

        for arch, name in source.architectures.items():
            for has_experts in (False, True) if arch in source.classes and name != "clip" and (not wanted or name in wanted) else ():
                model = Model(source, arch, name, has_experts)
                if model.tensors:
                    model.write(path, model.tensors)
                loads, is_valid = compare(name, is_first=True) if model.tensors else (False, True)
                if not loads:
                    skipped.append(name)
                    continue
                for way, tensors in [("sound", model.tensors), *model.broken()]:
                    if not tensors or way != "sound" and tensors == model.tensors:
                        continue
                    model.write(path, tensors)
                    loads, is_valid = compare(f"{name}: {way}")
                    counts[way][loads, is_valid] += 1
                    if loads != is_valid:
                        different.append(f"{name}: {way}: {'loads' if loads else 'is rejected'}; missing {sorted(set(model.tensors) - set(tensors))[:1]}")
                if name in CHANGED and not has_experts:
                    wide = Model(source, arch, name, has_experts, {"embedding_length": 256, "feed_forward_length": 512})
                    for way in changed(model, wide, path):
                        compare(f"{name}: {way}")
    print(*different, sep="\n")
    for way, found in counts.items():
        print(f"{way}: {found[True, True]} load, {found[True, False]} load with an error, {found[False, False]} are rejected with an error, {found[False, True]} without")
    print(f"skipped: {' '.join(dict.fromkeys(skipped))}")
    print(*wrong, sep="\n")
    for (answer, loads), count in answers.items():
        print(f"{count} files with the answer {answer} {'load' if loads else 'are rejected'}")
    sys.exit(bool(wrong) or any(found[True, False] for found in counts.values()))


# The architectures of which sound files are changed byte by byte.
CHANGED = "qwen2 gemma3 bloom phi3".split()

if __name__ == "__main__":
    main()
