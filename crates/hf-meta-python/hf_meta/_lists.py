"""Lists of repositories as Arrow tables."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

# The columns of a list, and the attributes of `huggingface_hub.ModelInfo` with their values.
_ATTRIBUTES = {
    "repo": "id",
    "commit": "sha",
    "files": "siblings",
    "author": "author",
    "created_at": "created_at",
    "last_modified": "last_modified",
    "downloads": "downloads",
    "gated": "gated",
    "pipeline_tag": "pipeline_tag",
    "library": "library_name",
    "likes": "likes",
    "tags": "tags",
}


def to_table(repos: Any) -> pyarrow.Table:
    """Returns a table of repositories: names, rows or `ModelInfo`s in any iterable, or a table or column of Arrow."""
    import pyarrow

    if isinstance(repos, (str, bytes)):
        raise TypeError("`repos` must be a list of names, not one name")
    if hasattr(repos, "collect"):  # A LazyFrame of Polars.
        repos = repos.collect()
    if hasattr(repos, "with_format"):  # A Dataset of `datasets`, with its selection.
        repos = repos.with_format("arrow")[:]
    if isinstance(repos, pyarrow.RecordBatchReader):
        return repos.read_all()
    if hasattr(repos, "__arrow_c_stream__") or hasattr(repos, "__arrow_c_array__"):
        is_stream = hasattr(repos, "__arrow_c_stream__")
        values = pyarrow.chunked_array(repos if is_stream else [pyarrow.array(repos)])
        if pyarrow.types.is_struct(values.type):
            # Without the schema, older versions of `pyarrow` fail if there are no rows.
            rows = map(pyarrow.RecordBatch.from_struct_array, values.chunks)
            return pyarrow.Table.from_batches(rows, pyarrow.schema(list(values.type)))
        return pyarrow.table({"repo": values})
    if isinstance(repos, Mapping) or hasattr(repos, "columns"):
        return pyarrow.table(repos)
    if not isinstance(repos, Iterable):
        raise TypeError(f"`repos` must be a list of names or a table, not {type(repos).__name__}")
    rows = [_row(repo) for repo in repos]
    columns = list(dict.fromkeys(itertools.chain(["repo"] if not rows else [], *rows)))
    table = {column: [row.get(column) for row in rows] for column in columns}
    return pyarrow.table({name: pyarrow.array(values, None if rows else pyarrow.string()) for name, values in table.items()})


def tables(repos: Any, rows: int) -> Iterator[pyarrow.Table]:
    """Yields a list in tables of at most this number of rows. An iterable is read as far as needed."""
    if rows < 1:
        raise ValueError("`batch_size` must be at least 1")
    if hasattr(repos, "__iter__") and not hasattr(repos, "__len__") and not hasattr(repos, "__arrow_c_stream__"):
        repos = iter(repos)
        while chunk := list(itertools.islice(repos, rows)):
            yield to_table(chunk)
    else:
        table = to_table(repos)
        for start in range(0, table.num_rows, rows):
            yield table.slice(start, rows)


def _row(repo: Any) -> Mapping[str, Any]:
    """Returns the columns of a name, a row or a `ModelInfo`."""
    if repo is None or isinstance(repo, str):
        return {"repo": repo}
    if isinstance(repo, os.PathLike):
        return {"repo": os.path.abspath(repo)}
    if isinstance(repo, Mapping):
        return repo
    if not hasattr(repo, "id"):
        raise TypeError(f"`repos` must contain names of repositories, not {type(repo).__name__}")
    values = {column: getattr(repo, attribute, None) for column, attribute in _ATTRIBUTES.items()}
    siblings: Iterable[Any] | None = values["files"]
    values["files"] = siblings and [sibling.rfilename for sibling in siblings]
    values["gated"] = values["gated"] or None
    return {column: value for column, value in values.items() if value is not None}
