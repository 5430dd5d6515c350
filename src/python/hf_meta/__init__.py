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

__all__ = ["HfMetaError", "inspect"]

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
    session = _session(endpoint, token, timeout, cache)
    return json.loads(session.inspect(os.fspath(source), revision, path, plan, headers))


def _session(*settings):
    # The process is a part of the key, because a fork has no threads of the client of its parent.
    key = (os.getpid(), *settings)
    session = _sessions.get(key)
    if session is None:
        session = _sessions.setdefault(key, Session(*settings))
    return session
