"""The function `read_tensors` of `hf_meta` and `hf_meta.aio`."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from ._arguments import check
from ._calls import Call, Settings
from ._inspect import source_name
from ._native import TensorStream

# The names of types in numpy, in little-endian order.
_NUMPY = {
    "BOOL": "?",
    "U8": "<u1",
    "I8": "<i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "C64": "<c8",
}

# The names of types in `ml_dtypes`. Types of less than a byte are packed in a file, but not in an array.
_ML_DTYPES = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}


class RawTensor(NamedTuple):
    """The bytes of a tensor that no installed library can represent, with the name of its dtype and its shape."""

    data: memoryview
    dtype: str
    shape: tuple[int, ...]


class _Reading:
    """A read of tensors: the call that opens it, and the one for each tensor."""

    def __init__(
        self,
        source: str | os.PathLike[str],
        names: str | Iterable[str],
        revision: str | None,
        path: str | None,
        weights: str | None,
        max_memory: int | None,
        settings: Settings,
    ) -> None:
        patterns = [names] if isinstance(names, str) else list(names)
        for pattern in patterns:
            if not isinstance(pattern, str):
                raise TypeError(f"`names`: names must be text, not {type(pattern).__name__}")
        if max_memory is not None and max_memory < 0:
            raise ValueError("`max_memory` must be at least 0")
        self._settings, self._source = settings, source_name(source)
        self.open: Call[TensorStream] = Call(
            "open_tensors", settings, self._source, patterns, revision, path, weights, max_memory
        )

    def next(self, stream: TensorStream) -> Call[tuple[str, Any] | None]:
        return Call("next_tensor", self._settings, self._source, stream, convert=_to_array)


def read_tensors(
    source: str | os.PathLike[str],
    names: str | Iterable[str],
    *,
    revision: str | None = None,
    path: str | None = None,
    weights: Literal["safetensors", "gguf"] | None = None,
    max_memory: int | None = None,
    endpoint: str | None = None,
    token: str | bool | None = None,
    timeout: float | None = None,
) -> Iterator[tuple[str, Any]]:
    """Reads tensors by their byte ranges, without the rest of the model. Yields their names and arrays as they arrive.

    `names` are names, patterns such as "model.layers.0.*", and rows such as "lm_head.weight[0:128]". Tensors arrive in the
    order of their files. An array is one of numpy, if it is installed and has the type; `ml_dtypes` adds BF16 and types of
    8 bits. Otherwise, it is a `RawTensor` with a `memoryview`. At most `max_memory` bytes (64 MiB) are in flight or wait,
    besides the tensor that is yielded. `timeout` applies to each range. The other arguments and the errors are those of
    `inspect`.
    """
    settings: Settings = {"endpoint": endpoint, "token": token, "timeout": timeout}
    given = {"revision": revision, "path": path, "weights": weights, "max_memory": max_memory}
    check(read_tensors, (source, names), {**given, **settings})
    return _blocking(_Reading(source, names, revision, path, weights, max_memory, settings))


def _blocking(reading: _Reading) -> Iterator[tuple[str, Any]]:
    stream = reading.open.wait()
    try:
        while (tensor := reading.next(stream).wait()) is not None:
            yield tensor
    finally:
        stream.close()


def read_tensors_async(
    source: str | os.PathLike[str],
    names: str | Iterable[str],
    *,
    revision: str | None = None,
    path: str | None = None,
    weights: Literal["safetensors", "gguf"] | None = None,
    max_memory: int | None = None,
    endpoint: str | None = None,
    token: str | bool | None = None,
    timeout: float | None = None,
) -> AsyncIterator[tuple[str, Any]]:
    """Reads tensors by their byte ranges, for `async for`. See `hf_meta.read_tensors`."""
    settings: Settings = {"endpoint": endpoint, "token": token, "timeout": timeout}
    given = {"revision": revision, "path": path, "weights": weights, "max_memory": max_memory}
    check(read_tensors, (source, names), {**given, **settings})
    return _awaited(_Reading(source, names, revision, path, weights, max_memory, settings))


async def _awaited(reading: _Reading) -> AsyncIterator[tuple[str, Any]]:
    stream = await reading.open.awaited()
    try:
        while (tensor := await reading.next(stream).awaited()) is not None:
            yield tensor
    finally:
        stream.close()


def _to_array(tensor: tuple[str, str, list[int], bytearray] | None) -> tuple[str, Any] | None:
    """Returns the name and the array of a tensor, or None after the last one."""
    if tensor is None:
        return None
    name, dtype, shape, data = tensor
    found = _dtype(dtype)
    if found is None or math.prod(shape) * found.itemsize != len(data):
        return name, RawTensor(memoryview(data), dtype, tuple(shape))
    import numpy

    return name, numpy.ndarray(shape, found, data)


def _dtype(dtype: str) -> Any:
    """Returns a dtype of numpy, or None if the libraries for it are not installed."""
    try:
        import numpy

        if dtype in _NUMPY:
            return numpy.dtype(_NUMPY[dtype])
        import ml_dtypes

        found = getattr(ml_dtypes, _ML_DTYPES.get(dtype, ""), None)
        return None if found is None else numpy.dtype(found)
    except ImportError:
        return None
