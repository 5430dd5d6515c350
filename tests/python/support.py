"""A local Hub with the fixtures, and servers that never answer."""

import contextlib
import os
import pathlib
import socket
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def local_hub(*options):
    """Runs `examples/local_hub`, which `LOCAL_HUB` names. Yields its endpoint."""
    command = [os.environ["LOCAL_HUB"], str(ROOT / "fixtures"), *options]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            yield process.stdout.readline().strip().removeprefix("HF_ENDPOINT=")
        finally:
            process.terminate()


@contextlib.contextmanager
def silent_server():
    """Yields a listening socket and its endpoint. It accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server, f"http://127.0.0.1:{server.getsockname()[1]}"
