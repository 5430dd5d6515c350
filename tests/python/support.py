"""A local Hub with the fixtures, and servers that never answer."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def local_hub(*options, folder=ROOT / "fixtures"):
    """Runs `examples/local_hub`, which `LOCAL_HUB` names, on a folder of repositories. Yields its endpoint."""
    command = [os.environ["LOCAL_HUB"], str(folder), *options]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            yield process.stdout.readline().strip().removeprefix("HF_ENDPOINT=")
        finally:
            process.terminate()


def use_local_hub(*options, folder=ROOT / "fixtures"):
    """Runs a local Hub for the tests of a module, without caches. Returns its endpoint."""
    context = contextlib.ExitStack()
    unittest.addModuleCleanup(context.close)
    endpoint = context.enter_context(local_hub(*options, folder=folder))
    environment = {"HF_ENDPOINT": endpoint, "HF_META_CACHE": "off", "HF_HUB_CACHE": "/nonexistent"}
    context.enter_context(mock.patch.dict(os.environ, environment))
    return endpoint


@contextlib.contextmanager
def silent_server():
    """Yields a listening socket and its endpoint. It accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server, f"http://127.0.0.1:{server.getsockname()[1]}"


def list_models(manifest):
    """Lists the models of the Hub that have the tag `safetensors`."""
    command = [sys.executable, "-m", "hf_meta", "census", "list", "--filter", "safetensors", "-o", manifest]
    subprocess.run(command, check=True, capture_output=True)


def tables(folder):
    """Returns the rows of a census."""
    import pyarrow
    import pyarrow.parquet

    files = sorted(pathlib.Path(folder, "repos").glob("*.parquet"))
    return pyarrow.concat_tables(pyarrow.parquet.read_table(file) for file in files).sort_by("repo")
