"""The functions of `hf_meta` to await. Cancelling the task cancels the call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from .. import _edit, _inspect, _tensors
from .._calls import BatchProgress, awaitable
from .._lists import tables
from . import census

if TYPE_CHECKING:
    import pyarrow
    from typing_extensions import Unpack

    from .._calls import Settings

__all__ = ["census", "diff", "edit_metadata", "get_safetensors_metadata", "inspect", "read", "read_batches", "read_tensors", "verify"]

inspect = awaitable(_inspect.inspect, __name__)
verify = awaitable(_inspect.verify, __name__)
diff = awaitable(_inspect.diff, __name__)
get_safetensors_metadata = awaitable(_inspect.get_safetensors_metadata, __name__)
read = awaitable(_inspect.read, __name__)
edit_metadata = awaitable(_edit.edit_metadata, __name__)
read_tensors = _tensors.awaitable(_tensors.read_tensors, __name__)


async def read_batches(
    repos: Any, *, batch_size: int = 1_000, **settings: Unpack[Settings]
) -> AsyncIterator[pyarrow.RecordBatch]:
    """Reads many repositories, and yields a batch of rows at a time. See `hf_meta.read_batches`."""
    with contextlib.closing(BatchProgress(repos, settings)) as progress:
        batches = tables(repos, batch_size)
        # An iterator may send requests.
        while (table := await asyncio.to_thread(next, batches, None)) is not None:
            rows = await read(table, **settings)
            progress.add(rows)
            yield rows
