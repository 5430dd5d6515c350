"""The metadata of files: read, typed, and edited in place."""

import asyncio
import base64
import hashlib
import json
import os
import pathlib
import pickle
import struct
import tempfile
import unittest
import warnings
from unittest import mock

import hf_meta
from support import use_local_hub

# An image of one pixel.
GIF = b"GIF89a\x01\0\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\0;"
DATA = b"tensor data"


def setUpModule():
    use_local_hub()


def write(path, metadata, tensor="w", space=20):
    header = {"__metadata__": metadata, tensor: {"dtype": "U8", "shape": [len(DATA)], "data_offsets": [0, len(DATA)]}}
    text = json.dumps(header).encode() + b" " * space
    path.write_bytes(struct.pack("<Q", len(text)) + text + DATA)
    return path


def read(path):
    """Returns the metadata of a file, and checks its data."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert content[8 + length :] == DATA
    return json.loads(content[8 : 8 + length]).get("__metadata__")


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "x.safetensors"


class Shown(Folder):
    def test_a_report_has_the_texts_and_the_typed_fields(self):
        url = "data:image/png;base64," + base64.b64encode(GIF).decode()
        texts = {
            "format": "pt",
            "modelspec.title": "My LoRA",
            "modelspec.resolution": "1024x768",
            "modelspec.tags": "a, b",
            "modelspec.timestep_range": "0,499",
            "modelspec.is_negative_embedding": "true",
            "modelspec.date": "yesterday",
            "modelspec.thumbnail": url,
        }
        report = hf_meta.inspect(write(self.file, texts))
        self.assertEqual(report.metadata, {"x.safetensors": texts})
        spec = report.model_spec
        self.assertEqual((spec.title, spec.tags, spec.timestep_range), ("My LoRA", ["a", "b"], [0, 499]))
        self.assertEqual((spec.resolution, spec.is_negative_embedding), (hf_meta.Resolution(1024, 768), True))
        self.assertEqual(spec.thumbnail, hf_meta.Thumbnail("image/gif", 1, 1, len(GIF)))
        self.assertIsNone(spec.date)
        self.assertEqual(spec.missing, ["sai_model_spec", "architecture", "implementation"])
        self.assertEqual(pickle.loads(pickle.dumps(report)).model_spec, spec)
        self.assertEqual(hf_meta.inspect(self.file, headers=True).model_spec, spec)
        self.assertEqual(asyncio.run(hf_meta.aio.inspect(self.file)).model_spec, spec)
        self.assertNotIn("modelspec", report.to_json())

    def test_every_shard_has_metadata(self):
        shards = {"a.safetensors": ("v", {"ss_epoch": "1"}), "b.safetensors": ("w", {"modelspec.title": "T"})}
        for name, (tensor, texts) in shards.items():
            write(self.folder / name, texts, tensor)
        index = {"weight_map": {tensor: name for name, (tensor, _) in shards.items()}}
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
        report = hf_meta.inspect(self.folder)
        self.assertEqual(report.metadata, {name: texts for name, (_, texts) in shards.items()})
        self.assertEqual(report.model_spec.title, "T")

    def test_keys_of_gguf_have_the_names_of_the_specification(self):
        report = hf_meta.inspect("example/Llama-3.2-1B-GGUF:Q4_K_M")
        (texts,) = report.metadata.values()
        self.assertEqual(report.model_spec.architecture, texts["general.architecture"])

    def test_files_without_metadata(self):
        report = hf_meta.inspect("bigscience/bloom")
        self.assertEqual(len(report.metadata), 72)
        self.assertIsNone(report.model_spec)


class Edited(Folder):
    def edit(self, *args, **kwargs):
        return hf_meta.edit_metadata(*args, **kwargs)

    def test_keys_are_deleted_and_set_in_place(self):
        write(self.file, {"format": "pt", "ss_a": "1", "ss_b": "2", "c": "3"})
        size, inode = self.file.stat().st_size, self.file.stat().st_ino
        (edited,) = self.edit(self.file, delete=["ss_*", "c"], set={"title": 'A "title"\n'})
        self.assertEqual(read(self.file), {"format": "pt", "title": 'A "title"\n'})
        self.assertEqual((edited.path, edited.added, edited.changed, edited.deleted), (str(self.file), 1, 0, 3))
        self.assertTrue(edited.in_place and edited.free_bytes > 0)
        self.assertEqual((self.file.stat().st_size, self.file.stat().st_ino), (size, inode))
        (same,) = self.edit(str(self.file), set={"format": "pt"})
        self.assertEqual((same.added, same.changed, same.deleted, same.in_place), (0, 0, 0, True))
        self.edit(self.file, delete_all=True)
        self.assertEqual(read(self.file), {"format": "pt"})
        self.edit(self.file, delete="*")
        self.assertIsNone(read(self.file))
        self.assertEqual(os.listdir(self.folder), ["x.safetensors"])

    def test_a_longer_header_makes_a_new_file(self):
        write(self.file, {"format": "pt"})
        self.file.chmod(0o640)
        (dry,) = self.edit(self.file, set={"a": "x" * 100}, reserve=1_000, dry_run=True)
        self.assertEqual(read(self.file), {"format": "pt"})
        (edited,) = self.edit(self.file, set={"a": "x" * 100}, reserve=1_000)
        self.assertEqual(edited, dry)
        self.assertFalse(edited.in_place)
        self.assertGreaterEqual(edited.free_bytes, 1_000)
        self.assertEqual(read(self.file), {"format": "pt", "a": "x" * 100})
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o640)

    def test_values_are_read_from_files(self):
        write(self.file, {})
        image, text = self.folder / "cover.png", self.folder / "text"
        image.write_bytes(GIF)
        text.write_text("ü\n")
        self.edit(self.file, set={"modelspec.thumbnail": image, "modelspec.description": text})
        report = hf_meta.inspect(self.file)
        self.assertEqual(report.model_spec.thumbnail.media_type, "image/gif")
        self.assertEqual(report.model_spec.description, "ü\n")
        (self.folder / "bytes").write_bytes(b"\xff")
        content = self.file.read_bytes()
        with self.assertRaisesRegex(ValueError, "is not an image"):
            self.edit(self.file, set={"modelspec.thumbnail": self.folder / "bytes"})
        with self.assertRaises(FileNotFoundError):
            self.edit(self.file, set={"a": self.folder / "none"})
        self.assertEqual(self.file.read_bytes(), content)

    def test_all_shards_of_a_folder_are_edited_or_none(self):
        shards = {"a.safetensors": "v", "b.safetensors": "w"}
        for name, tensor in shards.items():
            write(self.folder / name, {"ss_x": "1"}, tensor)
        index = self.folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": {tensor: name for name, tensor in shards.items()}}))
        edited = self.edit(self.folder, set={"a": "1"})
        self.assertEqual([pathlib.Path(file.path).name for file in edited], list(shards))
        self.edit(index, delete="ss_*")
        self.assertEqual([read(self.folder / name) for name in shards], [{"a": "1"}] * 2)
        os.link(self.folder / "b.safetensors", self.folder / "link")
        with self.assertRaisesRegex(OSError, "has 2 hard links"):
            self.edit(self.folder, set={"b": "2"})
        self.assertEqual(read(self.folder / "a.safetensors"), {"a": "1"})

    def test_edits_that_cannot_be_made_change_nothing(self):
        write(self.file, {"format": "pt", "modelspec.hash_sha256": "0x" + "0" * 64})
        content = self.file.read_bytes()
        link, invalid, gguf = self.folder / "link", self.folder / "bad.safetensors", self.folder / "x.gguf"
        link.symlink_to(self.file)
        invalid.write_bytes(b"\x02\0\0\0\0\0\0\0{}more")
        gguf.write_bytes(b"GGUF")
        for path, arguments, kind, message in [
            (link, {"set": {"a": "1"}}, OSError, "is a symbolic link"),
            (self.folder / "none", {"set": {"a": "1"}}, FileNotFoundError, "none"),
            (invalid, {"set": {"a": "1"}}, hf_meta.HfMetaError, "is not a valid safetensors file"),
            (gguf, {"set": {"a": "1"}}, hf_meta.HfMetaError, "is not a valid safetensors file"),
            (self.file, {"set": {"a": "x" * 1_000_001}}, ValueError, "has 1000001 bytes"),
            (self.file, {"set": {"a": "x" * 100}}, ValueError, "do not have the SHA-256"),
            (self.file, {"reserve": 200_000_000}, ValueError, "exceeds the limit"),
            (self.file, {"reserve": -1}, ValueError, "`reserve` must be at least 0"),
            (self.file, {"set": {"a": 1}}, TypeError, "the value of `a` must be text"),
            (self.file, {"set": {1: "a"}}, TypeError, "keys must be text, not int"),
            (self.file, {"set": "a=1"}, TypeError, "`set` must be a mapping"),
            (self.file, {"delete": [1]}, TypeError, "`delete`: keys must be text"),
            (self.file, {"delete_all": 1}, TypeError, "`delete_all` must be True or False"),
            (3, {}, TypeError, "`path` must be text or a `pathlib.Path`"),
        ]:
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                self.edit(path, **arguments)
            self.assertEqual(self.file.read_bytes(), content)
        with self.assertRaises(hf_meta.HfMetaError) as caught:
            self.edit(invalid, delete_all=True)
        self.assertEqual(caught.exception.code, "malformedHeader")

    def test_a_file_is_edited_by_one_program_at_a_time(self):
        import fcntl

        write(self.file, {"format": "pt"})
        with open(self.file) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with self.assertRaisesRegex(OSError, "another program is editing"):
                self.edit(self.file, delete_all=True)

    def test_local_edits_need_no_usable_connection(self):
        write(self.file, {"a": "1"})
        with mock.patch.dict(os.environ, {"HF_ENDPOINT": "not a URL"}):
            self.edit(self.file, delete="a")
        self.assertIsNone(read(self.file))

    def test_an_interrupted_edit_is_completed_by_the_next_call(self):
        for call in [hf_meta.inspect, hf_meta.verify, lambda path: hf_meta.inspect(path.parent), self.edit]:
            write(self.file, {"format": "pt", "a": "1"})
            old = self.file.read_bytes()
            length = len(old) - 8 - len(DATA)
            header = old[8 : 8 + length]
            new = header.replace(b', "a": "1"', b"") + b" " * 10
            status = self.file.stat()
            numbers = struct.pack("<4Q", status.st_size, status.st_dev, status.st_ino, length)
            journal = self.folder / ".x.safetensors.hf-meta-journal"
            journal.write_bytes(b"hf-meta edit 01\n" + numbers + header + new)
            with open(self.file, "r+b") as file:
                file.seek(8)
                file.write(new[:40])
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call(self.file)
            self.assertIn("completed an interrupted edit of", str(caught[0].message))
            self.assertEqual(read(self.file), {"format": "pt"})
            self.assertEqual(os.listdir(self.folder), ["x.safetensors"])

    def test_a_hundred_thousand_keys_are_deleted(self):
        keys = [f"key {number}" for number in range(100_000)]
        write(self.file, dict.fromkeys(keys, "x"))
        (edited,) = self.edit(self.file, delete=keys[1:])
        self.assertEqual((edited.deleted, read(self.file)), (99_999, {"key 0": "x"}))

    def test_the_data_of_a_large_file_stay_the_same(self):
        data = os.urandom(1_000_003)
        digest = hashlib.sha256(data).hexdigest()
        header = json.dumps({
            "__metadata__": {"modelspec.hash_sha256": f"0x{digest}"},
            "w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]},
        }).encode()
        self.file.write_bytes(struct.pack("<Q", len(header)) + header + data)
        (edited,) = self.edit(self.file, set={"a": "x" * 1_000})
        self.assertFalse(edited.in_place)
        self.assertEqual(hashlib.sha256(self.file.read_bytes()[-len(data) :]).hexdigest(), digest)


class Awaited(Edited):
    def edit(self, *args, **kwargs):
        return asyncio.run(hf_meta.aio.edit_metadata(*args, **kwargs))


if __name__ == "__main__":
    unittest.main()
