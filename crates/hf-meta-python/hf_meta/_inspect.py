"""The calls of `hf_meta` and `hf_meta.aio`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from ._calls import Call, Settings
from ._lists import to_table
from ._results import (
    CountReport,
    Diff,
    SafetensorsRepoMetadata,
    VerifyReport,
    to_diff,
    to_repo_metadata,
    to_report,
    to_verification,
)

if TYPE_CHECKING:
    import pyarrow
    from typing_extensions import Unpack


def inspect(
    source: str | os.PathLike[str],
    *,
    revision: str | None = None,
    path: str | None = None,
    weights: Literal["safetensors", "gguf", "pytorch"] | None = None,
    plan: Literal["exact", "prefetch", "hub"] = "exact",
    headers: bool = False,
    memory: int | None = None,
    fit: int | str | None = None,
    engine: Literal["stored", "vllm", "llama.cpp"] | None = None,
    endpoint: str | None = None,
    token: str | bool | None = None,
    timeout: float | None = None,
    cache: bool = True,
) -> Call[CountReport]:
    """Reads the headers of a repository, a URL or a local path, and counts the parameters.

    `revision`, `path`, `weights`, `plan`, `endpoint`, `token` and `timeout` (in seconds) correspond to the command-line options.
    With `headers=True`, the result also contains `header`, or `index` and `headers`. With `cache=False`, the header cache
    is neither read nor written. With `memory`, a context length in tokens or 0 for the maximum of the model, the result
    contains `memory`: the bytes of the weights and the cache. With `fit`, a size in bytes or a text such as "24GB",
    `memory.fits` is the answer whether the model fits. `engine` is the program that stores the cache.

    Raises HfMetaError if the source cannot be read, OSError if a local file cannot be read, and ValueError if an argument
    is invalid.
    """
    settings: Settings = {"endpoint": endpoint, "token": token, "timeout": timeout}
    size = f"{fit}B" if isinstance(fit, int) else fit
    return Call("inspect", settings, _name(source), revision, path, weights, plan, headers, memory, size, engine, cache, convert=to_report)


def verify(
    source: str | os.PathLike[str],
    *,
    revision: str | None = None,
    path: str | None = None,
    weights: Literal["safetensors", "gguf", "pytorch"] | None = None,
    all: bool = False,
    base: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    token: str | bool | None = None,
    timeout: float | None = None,
) -> Call[VerifyReport]:
    """Checks the weights that a loader loads, or all weight sets with `all=True`, and returns all findings.

    An adapter is compared with its `base` model. The other arguments and the errors are those of `inspect`. An invalid
    file is a finding, not an error.
    """
    settings: Settings = {"endpoint": endpoint, "token": token, "timeout": timeout}
    model = None if base is None else _name(base)
    return Call("verify", settings, _name(source), revision, path, weights, all, model, convert=to_verification)


def diff(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    *,
    ignore_shards: bool = False,
    endpoint: str | None = None,
    token: str | bool | None = None,
    timeout: float | None = None,
) -> Call[Diff]:
    """Compares the names, dtypes, shapes and shards of all tensors of two sources, such as `org/name@revision`.

    With `ignore_shards=True`, the files of the tensors are not compared. The errors are those of `inspect`.
    """
    settings: Settings = {"endpoint": endpoint, "token": token, "timeout": timeout}
    return Call("diff", settings, _name(before), _name(after), ignore_shards, convert=to_diff)


def _name(source: str | os.PathLike[str]) -> str:
    """Returns the text of a source. `"gpt2"` is a repository, and `Path("gpt2")` a local folder."""
    return os.path.abspath(source) if isinstance(source, os.PathLike) else source


def get_safetensors_metadata(
    repo_id: str,
    *,
    repo_type: str | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    timeout: float | None = None,
) -> Call[SafetensorsRepoMetadata]:
    """Reads the headers of a repository. A replacement for `huggingface_hub.get_safetensors_metadata`.

    The result has the same fields, and `report` with the true counts. `timeout` applies to the whole call. Raises
    HfMetaError where huggingface_hub raises its own errors.
    """
    if repo_type not in (None, "model"):
        repo_id = f"{repo_type}s/{repo_id}"
    settings: Settings = {"token": token, "timeout": timeout}
    return Call("inspect", settings, repo_id, revision, None, None, "exact", True, None, None, None, True, convert=to_repo_metadata)


def read(repos: Any, **settings: Unpack[Settings]) -> Call[pyarrow.RecordBatch]:
    """Reads many repositories. Returns a pyarrow.RecordBatch with one row per repository, in the same order.

    `repos` is an iterable of names, of rows or of `huggingface_hub.ModelInfo`s, or a table with the names in a column
    `repo`, `id`, `modelId` or `repository`, or a column of names: of pyarrow, Polars, pandas, DuckDB, `datasets`, or any
    other library with the Arrow PyCapsule interface. Further columns of `census.list`, such as `commit` and `files`, save
    requests. Requires pyarrow. `hf_meta.Settings` describes the settings.

    A repository that cannot be read is a row whose `status` and `error_kind` give the reason. Raises ValueError if there
    is no column of names or a setting is invalid.
    """
    import pyarrow

    table = to_table(repos)
    columns = [column.combine_chunks() for column in table.columns]
    batch = pyarrow.record_batch(columns, schema=table.schema)
    return Call("read", settings, batch)
