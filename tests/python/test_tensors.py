"""The data of tensors: arrays of numpy and ml_dtypes, bytes without them, and the end of a loop."""

import asyncio
import itertools
import json
import math
import pathlib
import struct
import sys
import tempfile
import unittest
from unittest import mock

import hf_meta
import ml_dtypes
import numpy
from support import use_local_hub

# The types of safetensors, their bits, and the types of the arrays.
TYPES = {
    "F64": (64, numpy.float64),
    "C64": (64, numpy.complex64),
    "I64": (64, numpy.int64),
    "U64": (64, numpy.uint64),
    "F32": (32, numpy.float32),
    "I32": (32, numpy.int32),
    "U32": (32, numpy.uint32),
    "F16": (16, numpy.float16),
    "BF16": (16, ml_dtypes.bfloat16),
    "I16": (16, numpy.int16),
    "U16": (16, numpy.uint16),
    "BOOL": (8, numpy.bool_),
    "U8": (8, numpy.uint8),
    "I8": (8, numpy.int8),
    "F8_E4M3": (8, ml_dtypes.float8_e4m3fn),
    "F8_E4M3FNUZ": (8, ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2": (8, ml_dtypes.float8_e5m2),
    "F8_E5M2FNUZ": (8, ml_dtypes.float8_e5m2fnuz),
    "F8_E8M0": (8, ml_dtypes.float8_e8m0fnu),
    "F6_E2M3": (6, None),
    "F6_E3M2": (6, None),
    "F4": (4, None),
}
SHAPE = [4, 6]


def setUpModule():
    global endpoint, folder, data
    temporary = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(temporary.cleanup)
    folder = pathlib.Path(temporary.name) / "org" / "model"
    folder.mkdir(parents=True)
    data = {}
    for number, (dtype, (bits, _)) in enumerate(TYPES.items()):
        length = math.prod(SHAPE) * bits // 8
        # A truth value is 0 or 1.
        data[dtype] = bytes((at * 7 + number) % (2 if dtype == "BOOL" else 251) for at in range(length))
    write(folder / "model.safetensors", [(dtype, dtype, SHAPE, content) for dtype, content in data.items()])
    endpoint = use_local_hub(folder=temporary.name)


def write(path, tensors):
    header, at = {}, 0
    for name, dtype, shape, content in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(content for *_, content in tensors))


def sources():
    return ["org/model", folder, f"{endpoint}/org/model/resolve/main/model.safetensors"]


class Arrays(unittest.TestCase):
    def test_every_type_from_every_source(self):
        for source in sources():
            found = dict(hf_meta.read_tensors(source, "*"))
            self.assertEqual(found.keys(), TYPES.keys(), source)
            for dtype, (_, expected) in TYPES.items():
                array = found[dtype]
                if expected is None:
                    self.assertEqual(array, hf_meta.RawTensor(memoryview(data[dtype]), dtype, (4, 6)))
                    continue
                self.assertEqual((array.dtype, list(array.shape)), (numpy.dtype(expected), SHAPE))
                self.assertEqual(array.tobytes(), data[dtype], dtype)
                array[0] = array[1]

    def test_without_libraries_an_array_is_bytes_with_a_dtype_and_a_shape(self):
        for missing in ({"numpy": None}, {"ml_dtypes": None}):
            with mock.patch.dict(sys.modules, missing):
                [(name, tensor)] = hf_meta.read_tensors(folder, "BF16")
            self.assertEqual((name, tensor.dtype, tensor.shape), ("BF16", "BF16", (4, 6)))
            self.assertEqual(bytes(tensor.data), data["BF16"])
        with mock.patch.dict(sys.modules, {"ml_dtypes": None}):
            [(_, array)] = hf_meta.read_tensors(folder, ["F32"])
        self.assertEqual(array.dtype, numpy.float32)

    def test_blocks_of_gguf_are_bytes_with_their_type_and_shape(self):
        path = folder.parent / "types.gguf"
        header = (pathlib.Path(__file__).parents[2] / "fixtures/gguf/all-types.gguf").read_bytes()
        path.write_bytes(header + bytes(274_808 - len(header)))
        found = dict(hf_meta.read_tensors(path, "*"))
        blocks = {name: tensor for name, tensor in found.items() if isinstance(tensor, hf_meta.RawTensor)}
        self.assertIn("t.Q4_K", blocks)
        for name, tensor in blocks.items():
            self.assertEqual(tensor.dtype, name.removeprefix("t."))
        for name, elements, size in [("t.Q4_0", 32, 18), ("t.Q8_0", 32, 34), ("t.Q4_K", 256, 144)]:
            self.assertEqual(len(blocks[name].data), math.prod(blocks[name].shape) // elements * size, name)

    def test_tensors_of_pytorch_files(self):
        fixtures = pathlib.Path(__file__).parents[2] / "fixtures/pytorch"
        for name, tensor, start in [("tied.bin", "h.weight", 187), ("legacy-slices.bin", "v", 215)]:
            [(_, array)] = hf_meta.read_tensors(fixtures / name, tensor, weights="pytorch")
            self.assertEqual((array.dtype, array.tobytes()[0]), (numpy.float32, start), name)
        with self.assertRaisesRegex(hf_meta.HfMetaError, "its elements are not in their order"):
            list(hf_meta.read_tensors(fixtures / "columns.bin", "odd"))

    def test_patterns_and_rows(self):
        found = dict(hf_meta.read_tensors("org/model", ["F32[1:3]", "U?"]))
        self.assertEqual(list(found), ["F32", "U8"])
        self.assertEqual(found["F32"].tobytes(), data["F32"][24:72])

    def test_tensors_larger_than_the_memory_and_empty_ones(self):
        path = folder.parent / "large.safetensors"
        content = numpy.arange(600_000, dtype="<u4").tobytes()
        write(path, [("w", "U32", [600, 1000], content), ("none", "F32", [0, 3], b""), ("one", "U32", [], content[4:8])])
        found = dict(hf_meta.read_tensors(path, "*", max_memory=0))
        self.assertEqual(found["w"].tobytes(), content)
        self.assertEqual((found["none"].shape, found["one"].shape, int(found["one"])), ((0, 3), (), 1))


class Calls(unittest.TestCase):
    def test_an_async_loop(self):
        async def names():
            return [name async for name, _ in hf_meta.aio.read_tensors("org/model", "F8_*", timeout=60)]

        self.assertEqual(sorted(asyncio.run(names())), sorted(name for name in TYPES if name.startswith("F8_")))

    def test_a_loop_that_ends_early_ends_its_requests(self):
        tensors = hf_meta.read_tensors("org/model", "*")
        self.assertEqual(len(list(itertools.islice(tensors, 2))), 2)
        tensors.close()
        self.assertEqual(list(tensors), [])

        async def first():
            tensors = hf_meta.aio.read_tensors("org/model", "*")
            async for name, _ in tensors:
                await tensors.aclose()
                return name

        self.assertIn(asyncio.run(first()), TYPES)

    def test_errors_say_what_is_wrong(self):
        with self.assertRaisesRegex(hf_meta.HfMetaError, "no tensor matches `x`"):
            list(hf_meta.read_tensors("org/model", "x"))
        with self.assertRaises(hf_meta.HfMetaError) as caught:
            list(hf_meta.read_tensors("org/none", "x"))
        self.assertEqual(caught.exception.code, "repoNotFound")
        # Before the first tensor is requested.
        for arguments in [(1, "x"), ("org/model", 1), ("org/model", [1])]:
            with self.assertRaises(TypeError):
                hf_meta.read_tensors(*arguments)
        with self.assertRaises(ValueError):
            hf_meta.read_tensors("org/model", "x", max_memory=-1)


class Values(unittest.TestCase):
    def test_values_are_checked_and_compared(self):
        path = folder.parent / "values.safetensors"
        numbers = numpy.linspace(1, 2, 4096, dtype="<f4")
        write(path, [("w", "F32", [64, 64], numbers.tobytes())])
        changed = folder.parent / "changed.safetensors"
        numbers[7] = numpy.nan
        write(changed, [("w", "F32", [64, 64], numbers.tobytes())])
        for values in ("sample", "all"):
            report = hf_meta.verify(path, values=values)
            self.assertEqual((bool(report), report.values["check"], report.values["tensors"]), (True, values, 1))
            report = hf_meta.verify(changed, values=values)
            self.assertFalse(report)
            self.assertIn("invalidValues", [finding.kind for finding in report.findings])
            self.assertFalse(hf_meta.diff(path, path, values=values))
            diff = hf_meta.diff(path, changed, values=values)
            self.assertTrue(diff)
            self.assertFalse(diff.equal)
            self.assertEqual([found["tensor"] for found in diff.values["differing"]], ["w"])
        self.assertIsNone(hf_meta.verify(path).values)
        with self.assertRaisesRegex(ValueError, "`values` must be"):
            hf_meta.diff(path, path, values="some")
