"""Compares the bytes of `hf-meta get` with torch, the `safetensors` package and the `gguf` package, for every dtype that they
write, from a folder, a web server and a Hub. Needs torch, safetensors and gguf. If `hf_meta` is installed, its arrays are
compared, too.

    python tensor_bytes.py FOLDER HF_META LOCAL_HUB

Writes four models to FOLDER, and ends with an error at the first difference.
"""

import os
import pathlib
import subprocess
import sys

import gguf
import numpy
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

try:
    import hf_meta
except ImportError:
    hf_meta = None

folder, command, local_hub = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
SHAPE = (3, 40)
TORCH = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 complex64".split()
TORCH += "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu".split()
GGUF = {"I8": "i1", "I16": "i2", "I32": "i4", "I64": "i8", "F16": "f2", "F32": "f4", "F64": "f8"}


def raw(size, number):
    return numpy.array([(at * 7 + number) % 251 for at in range(size)], dtype=numpy.uint8)


def bits(tensor):
    """Returns the bytes of a tensor of torch."""
    return bytes(tensor.contiguous().flatten().view(torch.uint8).numpy())


def torch_tensors():
    tensors = {}
    for number, name in enumerate(TORCH):
        dtype = getattr(torch, name)
        data = raw(torch.empty(SHAPE, dtype=dtype).nbytes, number)
        tensors[name] = torch.from_numpy(data % 2 if name == "bool" else data).view(dtype).reshape(SHAPE)
    return tensors


def write_gguf(path):
    writer = gguf.GGUFWriter(path, "llama")
    for number, (name, code) in enumerate(GGUF.items()):
        size = numpy.dtype(code).itemsize * SHAPE[0] * SHAPE[1]
        writer.add_tensor(name, raw(size, number).view(f"<{code}").reshape(SHAPE))
    halves = raw(2 * SHAPE[0] * SHAPE[1], 9).reshape(SHAPE[0], 2 * SHAPE[1])
    writer.add_tensor("BF16", halves, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def get(source, part, endpoint):
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_META_CACHE": "off"}
    subprocess.run([command, "get", source, "*", "--force", "-o", part], check=True, env=environment, stdout=subprocess.DEVNULL)


def loaded(tensors):
    return {name: (list(tensor.shape), bits(tensor)) for name, tensor in tensors.items()}


def check_arrays(source, expected):
    """Compares what `hf_meta.read_tensors` yields: arrays of numpy and ml_dtypes, or bytes."""
    for name, array in hf_meta.read_tensors(source, "*"):
        shape, data = expected[name]
        found = (list(array.shape), array.tobytes() if isinstance(array, numpy.ndarray) else bytes(array.data))
        assert found == (shape, data), (source, name)


files = {"torch": "model.safetensors", "gguf": "model.gguf", "zip": "pytorch_model.bin", "legacy": "pytorch_model.bin"}
models = {name: folder / "org" / name / file for name, file in files.items()}
for path in models.values():
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "hub.json").write_text("{}")
safetensors.torch.save_file(torch_tensors(), models["torch"], metadata={"format": "pt"})
# Two tensors in one storage, too.
parts = dict(zip(("first", "second"), torch.arange(24.0).reshape(6, 4).split(3)))
torch.save({**torch_tensors(), **parts}, models["zip"])
# `torch.load` reads no types in an old file that are newer than it.
old = {name: tensor for name, tensor in torch_tensors().items() if not name.startswith(("uint16", "uint32", "uint64", "float8"))}
torch.save({**old, **parts}, models["legacy"], _use_new_zipfile_serialization=False)
write_gguf(models["gguf"])
expected = {
    "torch": loaded(safetensors.torch.load_file(models["torch"])),
    "zip": loaded(torch.load(models["zip"], weights_only=True)),
    "legacy": loaded(torch.load(models["legacy"], weights_only=True)),
    "gguf": {
        tensor.name: ([int(length) for length in reversed(tensor.shape)], tensor.data.tobytes())
        for tensor in gguf.GGUFReader(models["gguf"]).tensors
    },
}
part = folder / "part.safetensors"
with subprocess.Popen([local_hub, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as hub:
    try:
        endpoint = hub.stdout.readline().strip().removeprefix("HF_ENDPOINT=")
        for name, path in models.items():
            url = f"{endpoint}/org/{name}/resolve/main/{path.name}"
            for source in (path, url, f"org/{name}"):
                get(source, part, endpoint)
                found = safetensors.torch.load_file(part)
                compared = {key: (list(tensor.shape), bits(tensor)) for key, tensor in found.items()}
                assert compared == expected[name], (source, compared.keys() ^ expected[name].keys())
                with safetensors.safe_open(part, "np") as opened:
                    for key in opened.keys():
                        assert opened.get_slice(key).get_shape() == expected[name][key][0], (source, key)
                        if key in ("float32", "F32", "int64", "I64"):
                            assert opened.get_tensor(key).tobytes() == expected[name][key][1], (source, key)
                if hf_meta:
                    os.environ["HF_ENDPOINT"] = endpoint
                    check_arrays(source, expected[name])
                print(f"{source}: {len(found)} tensors are equal")
    finally:
        hub.terminate()
        part.unlink(missing_ok=True)
