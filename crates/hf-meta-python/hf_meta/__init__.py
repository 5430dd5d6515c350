"""Inspect safetensors, GGUF and PyTorch models on the Hugging Face Hub without downloading them.

    >>> import hf_meta
    >>> hf_meta.inspect("bigscience/bloom").parameter_total
    176247271424

Settings that are not passed as arguments come from the environment: `HF_ENDPOINT`, `HF_TOKEN` or the token from
`hf auth login`, and proxies. Calls release the GIL and can be interrupted. They also work after a fork: each process
has its own threads and connections. The functions in `hf_meta.aio` are to be awaited.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from . import _inspect, _native, aio, census
from ._calls import BatchProgress, HfMetaError, Progress, Settings, blocking
from ._lists import tables
from ._results import (
    Breakdown,
    CensusChange,
    CensusSummary,
    CountReport,
    Diff,
    DiffSide,
    FetchStats,
    Finding,
    MemoryUsage,
    MixtureOfExperts,
    ModelDescription,
    QuantizedModules,
    SafetensorsFileMetadata,
    SafetensorsRepoMetadata,
    TensorChange,
    TensorGroup,
    TensorInfo,
    VerifiedSet,
    VerifyReport,
    WeightSet,
)

if TYPE_CHECKING:
    import pyarrow
    from typing_extensions import Unpack

__version__: str = _native.__version__

__all__ = [
    "Breakdown",
    "CensusChange",
    "CensusSummary",
    "CountReport",
    "Diff",
    "DiffSide",
    "FetchStats",
    "Finding",
    "HfMetaError",
    "MemoryUsage",
    "MixtureOfExperts",
    "ModelDescription",
    "Progress",
    "QuantizedModules",
    "SafetensorsFileMetadata",
    "SafetensorsRepoMetadata",
    "Settings",
    "TensorChange",
    "TensorGroup",
    "TensorInfo",
    "VerifiedSet",
    "VerifyReport",
    "WeightSet",
    "__version__",
    "aio",
    "census",
    "diff",
    "edit_metadata",
    "get_safetensors_metadata",
    "inspect",
    "read",
    "read_batches",
    "verify",
]

inspect = blocking(_inspect.inspect, __name__)
verify = blocking(_inspect.verify, __name__)
diff = blocking(_inspect.diff, __name__)
get_safetensors_metadata = blocking(_inspect.get_safetensors_metadata, __name__)
read = blocking(_inspect.read, __name__)


def read_batches(
    repos: Any, *, batch_size: int = 1_000, **settings: Unpack[Settings]
) -> Iterator[pyarrow.RecordBatch]:
    """Reads many repositories, and yields the rows of `batch_size` repositories at a time, in the same order.

    The arguments are those of `read`. An iterator, such as `huggingface_hub.list_models()`, is read as far as needed.
    """
    with contextlib.closing(BatchProgress(repos, settings)) as progress:
        for table in tables(repos, batch_size):
            rows = read(table, **settings)
            progress.add(rows)
            yield rows


def edit_metadata(
    path: str | os.PathLike[str],
    *,
    set: Mapping[str, str] | None = None,
    delete: Iterable[str] = (),
    delete_all: bool = False,
    reserve: int = 0,
) -> bool:
    """Edits the metadata in the header of a local safetensors file. Returns whether the file changed.

    First deletes keys: all except `format` with `delete_all=True`, then those that match a pattern in `delete`, such as
    `"ss_*"`. Then sets keys, in order. A header that fits into the old one is written in place, in a time that does not
    depend on the size of the file; otherwise, a new file with `reserve` bytes for further edits replaces the old one. An
    edit that was interrupted is completed first.

    Raises OSError if the file cannot be changed, and ValueError if it is not a valid safetensors file or a value is too
    long.
    """
    patterns = [delete] if isinstance(delete, str) else list(delete)
    entries = list((set or {}).items())
    changed: bool = _native.edit_metadata(os.fspath(path), entries, patterns, delete_all, reserve)
    return changed


# Where users find the classes.
for _name in __all__:
    if isinstance(_class := globals()[_name], type):
        _class.__module__ = __name__
