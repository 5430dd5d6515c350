"""Inspect safetensors checkpoints on the Hugging Face Hub without downloading them.

    >>> import hf_meta
    >>> hf_meta.inspect("bigscience/bloom")["parameterTotal"]
    176247271424

Settings that are not passed as arguments come from the environment: `HF_ENDPOINT`, `HF_TOKEN` or the token from
`hf auth login`, and proxies. Calls release the GIL and can be interrupted. They also work after a fork: each process
creates its own clients.
"""

import json
import os

from ._native import Session

__all__ = ["HfMetaError", "census", "inspect", "read"]

# A client keeps connections open, so calls with the same settings share one.
_sessions = {}


class HfMetaError(Exception):
    """Raised when a repository cannot be read.

    `code` is an error code as in the JSON output of the command, such as `repoNotFound`. `status` is the HTTP status of
    the last response, and `retry_after` the number of seconds until the server accepts requests again; both can be None.
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
    memory=None,
    endpoint=None,
    token=None,
    timeout=None,
    cache=True,
):
    """Reads the headers of a repository, a URL or a local path. Returns the JSON of `hf-meta --json --summary` as a dict.

    `revision`, `path`, `plan`, `endpoint`, `token` and `timeout` (in seconds) correspond to the command-line options.
    With `headers=True`, the dict also contains `header`, or `index` and `headers`. With `cache=False`, the header cache
    is neither read nor written. With `memory`, a context length in tokens or 0 for the maximum of the model, the dict
    contains `memory`: the bytes of the weights and the cache.

    Raises HfMetaError if the source cannot be read, and ValueError if `plan` or `timeout` is invalid.
    """
    session = _session(endpoint, token, timeout, cache, None)
    # `"gpt2"` is a repository, and `Path("gpt2")` a local folder.
    source = os.path.abspath(source) if isinstance(source, os.PathLike) else source
    return json.loads(session.inspect(source, revision, path, plan, headers, memory))


def read(repos, *, jobs=32, quota_share=1.0, endpoint=None, token=None, timeout=None):
    """Reads many repositories. Returns a pyarrow.RecordBatch with one row per repository, in the same order.

    `repos` is a list of names, or a table with the names in a column `repo`, `id`, `modelId` or `repository`: a pyarrow,
    Polars or pandas table, a DuckDB relation, or any other object that supports the Arrow PyCapsule interface. Further
    columns of `hf-meta census list`, such as `commit` and `files`, save requests.

    At most `jobs` repositories are read concurrently, using up to the fraction `quota_share` of the Hub's quota. A
    repository that cannot be read is a row whose `status` and `error_kind` give the reason. Requires pyarrow.

    Raises ValueError if there is no column of names or `timeout` is invalid.
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
    """Reads the repositories of a manifest into tables, like `hf-meta census read`. Resumes an interrupted census.

    `manifest` is a file, and `target` a folder or a URL such as `s3://bucket/census`. `slice=(k, n)` reads every n-th
    part, starting with part k (counted from 0). `previous` is an earlier census, from which the rows of unchanged
    repositories are copied.

    Returns a dict: `rows` maps pairs of status and error kind to numbers of rows, `existing` is the number of rows that
    an earlier call had read, and `carried_over` is the number of copied rows.

    Raises ValueError if the manifest, `slice` or `timeout` is invalid, and RuntimeError if the target or a file cannot
    be read or written.
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
    # The process ID is part of the key because the threads of a client do not survive a fork.
    key = (os.getpid(), *settings)
    session = _sessions.get(key)
    if session is None:
        session = _sessions.setdefault(key, Session(*settings))
    return session
