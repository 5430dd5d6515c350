"""Inspect safetensors checkpoints on the Hugging Face Hub without downloading them.

    >>> import hf_meta
    >>> hf_meta.inspect("bigscience/bloom")["parameterTotal"]
    176247271424

Settings that a call does not name come from the environment: `HF_ENDPOINT`, `HF_TOKEN` or the token of `hf auth login`, and
proxies. Calls release the GIL and can be interrupted. They work in every process, also after a fork: each process makes
clients of its own.
"""

import json
import os

from ._native import Session

__all__ = ["HfMetaError", "census", "inspect", "read"]

# A client keeps connections, so calls with the same settings share one.
_sessions = {}


class HfMetaError(Exception):
    """A repository that could not be read.

    `code` is one of the codes of the command's JSON, such as `repoNotFound`. `status` is the HTTP status of the last
    response, and `retry_after` the number of seconds until the server accepts requests again; both may be None.
    """

    def __init__(self, message, code, status=None, retry_after=None):
        super().__init__(message, code, status, retry_after)
        self.code = code
        self.status = status
        self.retry_after = retry_after

    def __str__(self):
        return self.args[0]


def inspect(
    source,
    *,
    revision=None,
    path=None,
    plan="exact",
    headers=False,
    endpoint=None,
    token=None,
    timeout=None,
    cache=True,
):
    """Reads the headers of a repository, a URL or a local path. Returns the document of `hf-meta --json --summary`.

    `revision`, `path`, `plan`, `endpoint`, `token` and `timeout` (in seconds) are the options of the command. With
    `headers`, the document also has `header`, or `index` and `headers`. `cache=False` neither reads nor writes the
    cache of headers.

    Raises HfMetaError if the source cannot be read.
    """
    session = _session(endpoint, token, timeout, cache, None)
    # `gpt2` is a repository, and `Path("gpt2")` a local folder.
    source = os.path.abspath(source) if isinstance(source, os.PathLike) else source
    return json.loads(session.inspect(source, revision, path, plan, headers))


def read(repos, *, jobs=32, quota_share=1.0, endpoint=None, token=None, timeout=None):
    """Reads many repositories. Returns a pyarrow.RecordBatch with a row for each of them, in the same order.

    `repos` is a table with a column of names, `repo`, `id`, `modelId` or `repository`: a pyarrow, Polars or pandas table,
    a relation of DuckDB, or anything else with the Arrow PyCapsule interface. A list of names will do. More columns of
    `hf-meta census list`, such as `commit` and `files`, save requests.

    At most `jobs` repositories are read at once, with `quota_share` of the Hub's quota. A repository that cannot be read
    is a row with a `status` and an `error_kind`. Needs pyarrow.
    """
    session = _session(endpoint, token, timeout, False, quota_share)
    return session.read(_record_batch(repos), jobs)


def census(
    manifest,
    target,
    *,
    slice=(0, 1),
    previous=None,
    jobs=32,
    quota_share=1.0,
    endpoint=None,
    token=None,
    timeout=None,
):
    """Reads a manifest into tables, like `hf-meta census read`. Continues where an earlier call ended.

    `manifest` is a file, and `target` a folder or a URL such as `s3://bucket/census`. `slice=(k, n)` reads every n-th
    part, beginning with part k (from 0). `previous` is an earlier census, whose rows of unchanged repositories are copied.

    Returns a dictionary: `rows` has the number of rows by status and error kind, `existing` the number of rows that an
    earlier call had read, and `carried_over` that of copied rows.
    """
    session = _session(endpoint, token, timeout, False, quota_share)
    arguments = os.fspath(manifest), os.fspath(target), slice, previous and os.fspath(previous), jobs
    rows, existing, carried_over = session.census(*arguments)
    return {"rows": dict(rows), "existing": existing, "carried_over": carried_over}


def _record_batch(repos):
    import pyarrow

    if isinstance(repos, pyarrow.RecordBatch):
        return repos
    if hasattr(repos, "__arrow_c_array__"):
        return pyarrow.record_batch(repos)
    if isinstance(repos, (list, tuple)):
        return pyarrow.record_batch({"repo": pyarrow.array(repos, pyarrow.string())})
    table = pyarrow.table(repos)
    columns = [column.combine_chunks() for column in table.columns]
    return pyarrow.record_batch(columns, schema=table.schema)


def _session(*settings):
    # The process is a part of the key, because a fork has no threads of the client of its parent.
    key = (os.getpid(), *settings)
    session = _sessions.get(key)
    if session is None:
        session = _sessions.setdefault(key, Session(*settings))
    return session
