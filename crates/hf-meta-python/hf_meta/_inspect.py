"""The calls of `hf_meta` and `hf_meta.aio`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from ._calls import Call, Settings, warn_of_completed_edits
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
    memory: bool | int | str | None = None,
    fit: int | str | None = None,
    batch: int | None = None,
    cache_dtype: str | None = None,
    engine: Literal["stored", "vllm", "sglang", "transformers", "llama.cpp", "mlx-lm"] | None = None,
    gpu: str | None = None,
    tp: int | None = None,
    pp: int | None = None,
    max_num_batched_tokens: int | None = None,
    gpu_memory_utilization: float | None = None,
    reserve: int | str | None = None,
    endpoint: str | None = None,
    token: str | bool | None = None,
    timeout: float | None = None,
    cache: bool = True,
) -> Call[CountReport]:
    """Reads the headers of a repository, a URL or a local path, and counts the parameters.

    `revision`, `path`, `weights`, `plan`, `endpoint`, `token` and `timeout` (in seconds) correspond to the command-line options.
    `metadata` has the texts in the headers, and `model_spec` the fields of the SAI Model Spec.
    With `headers=True`, the result also contains `header`, or `index` and `headers`. With `cache=False`, the header cache
    is neither read nor written. With `memory=True`, the result contains `memory`: the bytes of the weights and the cache at
    the maximum context of the model; a number of tokens, or text such as "32k", selects another context. With `fit`, a
    size in bytes or a text such as "24GB", `memory.fits` is the answer whether the model fits; with `gpu`, such as "2xH100",
    whether it fits on these GPUs. `engine` is the program that stores the cache. `batch`, `cache_dtype`, `tp`, `pp`,
    `max_num_batched_tokens`, `gpu_memory_utilization` and `reserve` correspond to the command-line options, too, and need
    `memory`, `fit` or `gpu`.

    Raises HfMetaError if the source cannot be read, OSError if a local file cannot be read, and ValueError if an argument
    is invalid.
    """
    settings: Settings = {"endpoint": endpoint, "token": token, "timeout": timeout}
    has_memory = memory is not None and memory is not False
    # The maximum of the model is the default, as in the command.
    context = memory if has_memory and memory is not True else None
    given = _conditions(fit, gpu, context, batch, cache_dtype, engine, tp, pp, max_num_batched_tokens, gpu_memory_utilization, reserve)
    return Call("inspect", settings, source_name(source), revision, path, weights, plan, headers, has_memory, given, cache, convert=to_report)


def verify(
    source: str | os.PathLike[str],
    *,
    revision: str | None = None,
    path: str | None = None,
    weights: Literal["safetensors", "gguf", "pytorch"] | None = None,
    all: bool = False,
    base: str | os.PathLike[str] | None = None,
    values: Literal["sample", "all"] | None = None,
    engine: Literal["vllm", "sglang", "transformers", "llama.cpp", "mlx-lm"] | None = None,
    gpu: str | None = None,
    fit: int | str | None = None,
    context: int | str | None = None,
    batch: int | None = None,
    cache_dtype: str | None = None,
    tp: int | None = None,
    pp: int | None = None,
    max_num_batched_tokens: int | None = None,
    gpu_memory_utilization: float | None = None,
    reserve: int | str | None = None,
    draft: str | os.PathLike[str] | None = None,
    num_speculative_tokens: int | None = None,
    adapter: str | os.PathLike[str] | None = None,
    mmproj: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    token: str | bool | None = None,
    timeout: float | None = None,
) -> Call[VerifyReport]:
    """Checks the weights that a loader loads, or all weight sets with `all=True`, and returns all findings.

    An adapter is compared with its `base` model. With `values`, a sample of the values or all of them are checked, too. With
    `engine`, the report has `engine`, the answer whether this program loads
    the model, on GPUs such as `gpu="2xH100"`, together with a `draft` model (of `num_speculative_tokens` in each step), an `adapter` or a projector (`mmproj`). The other arguments and the errors are those of `inspect`. An invalid file is a
    finding, not an error.
    """
    settings: Settings = {"endpoint": endpoint, "token": token, "timeout": timeout}
    model = None if base is None else source_name(base)
    given = _conditions(fit, gpu, context, batch, cache_dtype, engine, tp, pp, max_num_batched_tokens, gpu_memory_utilization, reserve)
    if num_speculative_tokens is not None:
        given.append(("numSpeculativeTokens", str(num_speculative_tokens)))
    pairs = [None if pair is None else source_name(pair) for pair in (draft, adapter, mmproj)]
    return Call("verify", settings, source_name(source), revision, path, weights, all, model, pairs, given, values, convert=to_verification)


def _conditions(
    fit: int | str | None,
    gpu: str | None,
    context: int | str | None,
    batch: int | None,
    cache_dtype: str | None,
    engine: str | None,
    tp: int | None,
    pp: int | None,
    max_num_batched_tokens: int | None,
    gpu_memory_utilization: float | None,
    reserve: int | str | None,
) -> list[tuple[str, str]]:
    """Returns the names and the values of the conditions for memory, in the order in which Rust sets them."""
    options = {
        "budget": _size(fit),
        "gpu": gpu,
        "context": context,
        "batch": batch,
        "cacheDtype": cache_dtype,
        "engine": engine,
        "tp": tp,
        "pp": pp,
        "maxNumBatchedTokens": max_num_batched_tokens,
        "gpuMemoryUtilization": gpu_memory_utilization,
        "reserve": _size(reserve),
    }
    return [(name, str(value)) for name, value in options.items() if value is not None]


def _size(size: int | str | None) -> str | None:
    return size if size is None or isinstance(size, str) else f"{int(size)}B"


def diff(
    before: str | os.PathLike[str],
    after: str | os.PathLike[str],
    *,
    ignore_shards: bool = False,
    values: Literal["sample", "all"] | None = None,
    endpoint: str | None = None,
    token: str | bool | None = None,
    timeout: float | None = None,
) -> Call[Diff]:
    """Compares the names, dtypes, shapes and shards of all tensors of two sources, such as `org/name@revision`.

    With `ignore_shards=True`, the files of the tensors are not compared. With `values`, a sample of the values or all of them
    are compared, too. The errors are those of `inspect`.
    """
    settings: Settings = {"endpoint": endpoint, "token": token, "timeout": timeout}
    return Call("diff", settings, source_name(before), source_name(after), ignore_shards, values, convert=to_diff)


def source_name(source: str | os.PathLike[str]) -> tuple[str, str]:
    """Returns a source and its name in results. `"gpt2"` is a repository, and `Path("gpt2")` a local folder."""
    text, name = source, source
    if isinstance(source, os.PathLike):
        text, name = os.path.abspath(source), os.fspath(source)
    warn_of_completed_edits(text)
    return text, name


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
    return Call("inspect", settings, source_name(repo_id), revision, None, None, "exact", True, False, [], True, convert=to_repo_metadata)


def read(repos: Any, **settings: Unpack[Settings]) -> Call[pyarrow.RecordBatch]:
    """Reads many repositories. Returns a pyarrow.RecordBatch with one row per repository, in the same order.

    `repos` is an iterable of names, of rows or of `huggingface_hub.ModelInfo`s, or a table with the names in a column
    `repo`, `id`, `modelId` or `repository`, or a column of names: of pyarrow, Polars, pandas, DuckDB, `datasets`, or any
    other library with the Arrow PyCapsule interface. A name can be a local folder: a `pathlib.Path`, or text such as
    "folder/" or "./folder". Further columns of `census.list`, such as `commit` and `files`, save requests. Requires pyarrow. `hf_meta.Settings` describes the settings.

    A repository that cannot be read is a row whose `status` and `error_kind` give the reason. Raises ValueError if there
    is no column of names or a setting is invalid.
    """
    import pyarrow

    table = to_table(repos)
    columns = [column.combine_chunks() for column in table.columns]
    batch = pyarrow.record_batch(columns, schema=table.schema)
    return Call("read", settings, batch)
