"""The function `read_tensors` of `hf_meta` and `hf_meta.aio`."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ._calls import Call, Settings, exported
from ._inspect import source_name
from ._native import TensorStream

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

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


class Reading:
    """A read of tensors, which starts with its first tensor: the call that opens it, and the one for each tensor."""

    def __init__(self, source: tuple[str, str], settings: Settings, *arguments: object) -> None:
        self._settings, self._source = settings, source
        self._open: Call[TensorStream] = Call("open_tensors", settings, source, *arguments)

    def _next(self, stream: TensorStream) -> Call[tuple[str, Any] | None]:
        return Call("next_tensor", self._settings, self._source, stream, convert=_to_array)

    def tensors(self) -> Iterator[tuple[str, Any]]:
        stream = self._open.wait()
        try:
            while (tensor := self._next(stream).wait()) is not None:
                yield tensor
        finally:
            stream.close()

    async def awaited(self) -> AsyncIterator[tuple[str, Any]]:
        stream = await self._open.awaited()
        try:
            while (tensor := await self._next(stream).awaited()) is not None:
                yield tensor
        finally:
            stream.close()


def read_tensors(
    source: str | os.PathLike[str],
    names: str | Iterable[str],
    *,
    revision: str | None = None,
    path: str | None = None,
    weights: Literal["safetensors", "gguf", "pytorch"] | None = None,
    max_memory: int | None = None,
    endpoint: str | None = None,
    token: str | bool | None = None,
    timeout: float | None = None,
) -> Reading:
    """Reads tensors by their byte ranges, without the rest of the model. Yields their names and arrays as they arrive.

    `names` are names, patterns such as "model.layers.0.*", and rows such as "lm_head.weight[0:128]". Tensors arrive in the
    order of their files. An array is one of numpy, if it is installed and has the type; `ml_dtypes` adds BF16 and types of
    8 bits. Otherwise, it is a `RawTensor` with a `memoryview`, such as blocks of GGML. At most `max_memory` bytes (64 MiB)
    are in flight or wait, besides the tensor that is yielded. `timeout` applies to each range. The other arguments and the
    errors are those of `inspect`.
    """
    patterns = [names] if isinstance(names, str) else list(names)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(f"`names`: names must be text, not {type(pattern).__name__}")
    if max_memory is not None and max_memory < 0:
        raise ValueError("`max_memory` must be at least 0")
    settings: Settings = {"endpoint": endpoint, "token": token, "timeout": timeout}
    return Reading(source_name(source), settings, patterns, revision, path, weights, max_memory)


def blocking(call: Callable[P, Reading], module: str) -> Callable[P, Iterator[tuple[str, Any]]]:
    """Returns a function of a module that yields the tensors of a read."""
    return exported(call, module, Reading.tensors, "Iterator[tuple[str, Any]]")


def awaitable(call: Callable[P, Reading], module: str) -> Callable[P, AsyncIterator[tuple[str, Any]]]:
    """Returns a function of a module that yields the tensors of a read, for `async for`."""
    return exported(call, module, Reading.awaited, "AsyncIterator[tuple[str, Any]]")


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
