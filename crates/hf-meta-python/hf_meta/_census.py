"""The calls of `hf_meta.census` and `hf_meta.aio.census`, which equal the subcommands of `hf-meta census`."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from datetime import date, datetime, time, timezone
from typing import TYPE_CHECKING, Any

from ._calls import Call, Settings
from ._lists import to_table
from ._results import CensusChange, CensusSummary

if TYPE_CHECKING:
    import builtins

    from typing_extensions import Unpack

    StrPath = str | os.PathLike[str]


def list(
    output: StrPath,
    *,
    filter: str | None = None,
    author: str | None = None,
    since: date | StrPath | None = None,
    **settings: Unpack[Settings],
) -> Call[int]:
    """Lists the models on the Hub in a Parquet file, and returns their number. Resumes an interrupted listing.

    `filter` is a tag such as `safetensors`, and `author` a user or an organization. With `since`, a date or a time, only
    models that changed since then are listed; a date may be text, as in "2026-01-31". A time without a zone is local time. If `since` is the file of an earlier
    list, the models that changed since then are requested, and its other models are added.
    """
    millis = None
    if isinstance(since, str):
        with contextlib.suppress(ValueError):
            since = date.fromisoformat(since)
    if isinstance(since, date):
        start = since if isinstance(since, datetime) else datetime.combine(since, time.min, timezone.utc)
        millis, since = int(start.timestamp() * 1_000), None
    return Call("census_list", settings, os.fspath(output), filter, author, millis, since)


def read(
    repos: Any,
    target: StrPath,
    *,
    column: str | None = None,
    slice: tuple[int, int] = (0, 1),
    previous: StrPath | None = None,
    **settings: Unpack[Settings],
) -> Call[CensusSummary]:
    """Reads repositories into tables of a folder or a URL such as `s3://bucket/census`. Resumes an interrupted census.

    `repos` is the path of a list, or a list as for `hf_meta.read`. `column` contains the names. `slice=(k, n)` reads
    every n-th part, starting with part k (counted from 0). `previous` is an earlier census, from which the rows of
    unchanged repositories are copied.

    Raises ValueError if the list or a setting is invalid, and OSError if a file cannot be read or written.
    """
    if not 0 <= slice[0] < slice[1]:
        raise ValueError("`slice` must be (k, n) with 0 <= k < n")
    folder = None
    if not isinstance(repos, (str, os.PathLike)):
        import pyarrow.parquet

        folder = tempfile.TemporaryDirectory()
        table, repos = to_table(repos), os.path.join(folder.name, "list")
        # A part is read from one or two row groups.
        pyarrow.parquet.write_table(table, repos, row_group_size=10_000)
    previous = None if previous is None else os.fspath(previous)

    def convert(result: Any) -> CensusSummary:
        if folder:
            folder.cleanup()
        return _summary(result)

    options = repos, column, os.fspath(target), slice, previous
    return Call("census_read", settings, *options, convert=convert)


def retry(target: StrPath, **settings: Unpack[Settings]) -> Call[CensusSummary]:
    """Reads the failed repositories of a census again, as `read` does."""
    return Call("census_retry", settings, os.fspath(target), convert=_summary)


def count(target: StrPath, **settings: Unpack[Settings]) -> Call[CensusSummary]:
    """Recounts the stored headers of a census, without sending requests."""
    return Call("census_count", settings, os.fspath(target), convert=_summary)


def pack(target: StrPath, output: StrPath, **settings: Unpack[Settings]) -> Call[int]:
    """Writes the rows of a census to one Parquet file or object, sorted by repository, and returns their number."""
    return Call("census_pack", settings, os.fspath(target), os.fspath(output))


def publish(
    target: StrPath,
    output: StrPath,
    *,
    title: str | None = None,
    license: str | None = None,
    tensors: bool = False,
    **settings: Unpack[Settings],
) -> Call[int]:
    """Writes a data set to a folder, for `datasets.load_dataset`, and returns the number of repositories.

    It has the tables `repos`, `files` and `runs`, and `tensors` if that is True, a data card and a schema page.
    `license` is the license of the counts, such as `cc0-1.0`.
    """
    return Call("census_publish", settings, os.fspath(target), os.fspath(output), title, license, tensors)


def verify(
    target: StrPath, *, sample: int = 100, seed: int = 0, **settings: Unpack[Settings]
) -> Call[builtins.list[CensusChange]]:
    """Reads a random sample of a census again from the Hub, at the same commits, and returns the differences."""
    return Call("census_verify", settings, os.fspath(target), sample, seed, convert=_changes)


def diff(before: StrPath, after: StrPath) -> Call[builtins.list[CensusChange]]:
    """Returns the differences between two censuses: folders, URLs or packed files."""
    return Call("census_diff", {}, os.fspath(before), os.fspath(after), convert=_changes)


def _summary(result: Any) -> CensusSummary:
    rows, *numbers = result
    return CensusSummary(dict(rows), *numbers)


def _changes(result: Any) -> builtins.list[CensusChange]:
    return [CensusChange(**change) for change in json.loads(result)]
