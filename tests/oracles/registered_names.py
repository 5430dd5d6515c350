#!/usr/bin/env python3
"""Prints the quantization methods that libraries and engines register and `hf-meta` does not know.

    tests/oracles/registered_names.py HF-META [WHEEL ...]

Reads the sources of the installed packages, and of packages in wheels, because the engines are heavy to install. The
sources are parsed and never imported. The exit code is 1 if a name is unknown. Needs Python 3.9 and nothing else.
"""

import ast
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

# The tables of each package: dictionaries from names to classes, enumerations, and `Literal` types.
SOURCES = {
    "transformers": ["transformers/quantizers/auto.py", "transformers/utils/quantization_config.py"],
    "diffusers": ["diffusers/quantizers/auto.py", "diffusers/quantizers/quantization_config.py"],
    "vllm": ["vllm/model_executor/layers/quantization/__init__.py"],
    "sglang": ["sglang/srt/layers/quantization/__init__.py"],
}


def sources(package, wheels):
    """Yields the text of the files of a package."""
    for wheel in wheels:
        if pathlib.Path(wheel).name.startswith(f"{package}-"):
            with zipfile.ZipFile(wheel) as archive:
                yield from (archive.read(path).decode() for path in SOURCES[package])
            return
    found = importlib.util.find_spec(package)
    if found is None:
        sys.exit(f"{package} is not installed, and no wheel of it is given")
    root = pathlib.Path(found.origin).parent.parent
    yield from ((root / path).read_text() for path in SOURCES[package])


def text(node):
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def names(source):
    """Returns the names that a file registers."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Dict):
            configs = (key for key, value in zip(node.keys, node.values) if getattr(value, "id", "").endswith("Config"))
            found.update(name for key in configs for name in text(key))
        elif isinstance(node, ast.ClassDef) and node.name == "QuantizationMethod":
            found.update(name for item in node.body if isinstance(item, ast.Assign) for name in text(item.value))
        elif isinstance(node, (ast.AnnAssign, ast.Assign)):
            is_literal = isinstance(node.value, ast.Subscript) and getattr(node.value.value, "id", "") == "Literal"
            if is_literal and isinstance(node.value.slice, ast.Tuple):
                found.update(name for item in node.value.slice.elts for name in text(item))
    return found


def is_known(command, name):
    """Returns whether `hf-meta` reports no unknown quantization for a checkpoint with this method."""
    header = json.dumps({"m.weight": {"dtype": "I8", "shape": [64, 64], "data_offsets": [0, 4096]}}).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4096))
        (path / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": name}}))
        done = subprocess.run([command, "verify", "--json", folder], capture_output=True, text=True, check=False)
    kinds = [finding["kind"] for finding in json.loads(done.stdout)["findings"]]
    return "unknownQuantization" not in kinds


def main():
    command, *wheels = sys.argv[1:]
    # A name that nobody registers is unknown, or this comparison would show nothing.
    assert not is_known(command, "registered-by-nobody")
    unknown = {}
    for package in SOURCES:
        registered = sorted(set().union(*map(names, sources(package, wheels))))
        assert len(registered) > 5, f"{package} has moved its table"
        unknown[package] = [name for name in registered if not is_known(command, name)]
        print(f"{package}: {len(registered)} names, unknown: {' '.join(unknown[package]) or 'none'}")
    sys.exit(any(unknown.values()))


if __name__ == "__main__":
    main()
