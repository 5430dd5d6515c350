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
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _edit, _inspect, _native, _tensors, aio, census
from ._calls import BatchProgress, HfMetaError, Progress, Settings, blocking
from ._lists import tables
from ._results import (
    Breakdown,
    CensusChange,
    CensusSummary,
    CountReport,
    Diff,
    DiffSide,
    EditedFile,
    EngineReport,
    FetchStats,
    Finding,
    MemoryUsage,
    MixtureOfExperts,
    ModelDescription,
    ModelSpec,
    QuantizedModules,
    Resolution,
    SafetensorsFileMetadata,
    SafetensorsRepoMetadata,
    TensorChange,
    TensorGroup,
    TensorInfo,
    Thumbnail,
    VerifiedSet,
    VerifyReport,
    WeightSet,
)
from ._tensors import RawTensor

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
    "EditedFile",
    "EngineReport",
    "FetchStats",
    "Finding",
    "HfMetaError",
    "MemoryUsage",
    "MixtureOfExperts",
    "ModelDescription",
    "ModelSpec",
    "Progress",
    "QuantizedModules",
    "RawTensor",
    "Resolution",
    "SafetensorsFileMetadata",
    "SafetensorsRepoMetadata",
    "Settings",
    "TensorChange",
    "TensorGroup",
    "TensorInfo",
    "Thumbnail",
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
    "read_tensors",
    "verify",
]

inspect = blocking(_inspect.inspect, __name__)
verify = blocking(_inspect.verify, __name__)
diff = blocking(_inspect.diff, __name__)
get_safetensors_metadata = blocking(_inspect.get_safetensors_metadata, __name__)
read = blocking(_inspect.read, __name__)
edit_metadata = blocking(_edit.edit_metadata, __name__)
read_tensors = _tensors.blocking(_tensors.read_tensors, __name__)


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


# Where users find the classes.
for _name in __all__:
    if isinstance(_class := globals()[_name], type):
        _class.__module__ = __name__
