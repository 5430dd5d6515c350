"""Calls that run on the threads of an engine, and their two faces: functions that block, and functions to await."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import inspect
import os
import queue
import warnings
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypedDict, TypeVar

from ._arguments import check
from ._native import Engine, NativeCall, complete_edits
from ._results import WeightSet, to_weight_sets

if TYPE_CHECKING:
    import pyarrow
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")
C = TypeVar("C")
R = TypeVar("R")

_DEFAULTS = {
    "endpoint": None,
    "token": None,
    "timeout": None,
    "jobs": 32,
    "quota_share": 1.0,
    "contact": None,
    "max_outage": 600.0,
}

# The time between two reports of progress, in seconds. A timeout also lets Windows handle Ctrl-C.
_INTERVAL = 0.1

# The time between two checks for an outage of an awaited call without progress, in seconds.
_OUTAGE_INTERVAL = 5.0

# The threads of an engine do not survive a fork, so each process has its own.
_engines: dict[int, Engine] = {}


class HfMetaError(Exception):
    """Raised when a repository cannot be read.

    `code` is an error code as in the JSON, such as `repoNotFound`. `status` is the HTTP status of the last response, and
    `retry_after` the number of seconds until the server accepts requests again; both can be None. `help` says what to do,
    if that is known; a traceback shows it as a note. `other_sets` are the weight sets to choose from, if `code` is
    `severalSets`.
    """

    def __init__(
        self,
        message: str,
        code: str,
        status: int | None = None,
        retry_after: float | None = None,
        help: str | None = None,
        other_sets: list[WeightSet] | None = None,
    ) -> None:
        super().__init__(message, code, status, retry_after, help, other_sets)
        self.code = code
        self.status = status
        self.retry_after = retry_after
        self.help = help
        self.other_sets = other_sets
        if help:
            _add_help(self, help)

    def __str__(self) -> str:
        return str(self.args[0])


def _add_help(error: BaseException, help: str) -> None:
    # Python 3.10 has no notes.
    if hasattr(error, "add_note"):
        error.add_note(f"help: {help}")


def to_error(
    message: str, code: str, status: int | None, retry_after: float | None, help: str | None, sets: str | None
) -> HfMetaError:
    """Returns the error with these values. `sets` is JSON."""
    return HfMetaError(message, code, status, retry_after, help, None if sets is None else to_weight_sets(sets))


class Progress(NamedTuple):
    """The number of repositories that are done, the number in total (0 if it is unknown), and those that failed.

    In an outage of the Hub or the network, `outage` is the error code of the failures, and otherwise None.
    """

    done: int
    total: int
    failed: int
    outage: str | None = None


class Settings(TypedDict, total=False):
    """The settings of a call. The defaults of the first three come from the environment.

    `token` can be False, for none. `timeout` is in seconds. At most `jobs` repositories (32) are read concurrently, using
    up to the fraction `quota_share` (1.0) of the Hub's quota. The Hub sees `contact`, an email address or a URL. An
    outage of `max_outage` seconds (600) ends a call that reads many repositories. `progress` is called with a `Progress` now and then, or is True for a bar of tqdm.
    """

    endpoint: str | None
    token: str | bool | None
    timeout: float | None
    jobs: int
    quota_share: float
    contact: str | None
    max_outage: float
    progress: Callable[[Progress], object] | bool | None


def warn_of_completed_edits(source: str) -> None:
    """Completes or undoes interrupted edits of a local file, or of the files in a folder, and warns about them."""
    for description in complete_edits(source):
        warnings.warn(description, RuntimeWarning, stacklevel=5)


def engine() -> Engine:
    """Returns the engine of this process."""
    process = os.getpid()
    if process not in _engines:
        created = Engine()
        if _engines.setdefault(process, created) is not created:
            created.close()
    return _engines[process]


@atexit.register
def _close() -> None:
    if os.getpid() in _engines:
        engine().close()


class Call(Generic[T]):
    """A call of the engine, which starts when it is waited for or awaited, once."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        *arguments: object,
        convert: Callable[[Any], T] = lambda result: result,
    ) -> None:
        if unknown := settings.keys() - _DEFAULTS.keys() - {"progress"}:
            raise TypeError(f"unexpected settings: {', '.join(sorted(unknown))}")
        token, progress = settings.get("token"), settings.get("progress")
        # False is no token, and True is the default one.
        token = "" if token is False else None if token is True else token
        self._settings: dict[str, object] = {**_DEFAULTS, **settings, "token": token}
        if name in ("inspect", "verify", "diff", "edit_metadata", "open_tensors", "next_tensor"):
            self._settings["quota_share"] = None
        self._name, self._arguments, self._convert = name, arguments, convert
        self._progress = _Bar() if progress is True else progress or None  # type: ignore[assignment]
        self._outage: str | None = None

    def _start(self, done: Callable[..., None]) -> NativeCall:
        call: NativeCall = getattr(engine(), self._name)({**self._settings, "done": done}, *self._arguments)
        return call

    def wait(self) -> T:
        results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        call = self._start(lambda *result: results.put(result))
        result = None
        try:
            while result is None:
                with contextlib.suppress(queue.Empty):
                    result = results.get(timeout=_INTERVAL)
                self._report(call)
        except BaseException:
            # Ctrl-C, or an error of `progress`. A census stores its complete rows first, until the next Ctrl-C.
            try:
                while result is None and call.stop():
                    with contextlib.suppress(queue.Empty):
                        result = results.get(timeout=_INTERVAL)
            finally:
                call.cancel()
                self._close()
            raise
        return self._finish(*result)

    async def awaited(self) -> T:
        loop = asyncio.get_running_loop()
        finished: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

        def set_result(*result: Any) -> None:
            if not finished.done():
                finished.set_result(result)

        def done(*result: Any) -> None:
            with contextlib.suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(set_result, *result)

        call = self._start(done)
        try:
            while not finished.done():
                await asyncio.wait([finished], timeout=_INTERVAL if self._progress else _OUTAGE_INTERVAL)
                self._report(call)
            return self._finish(*finished.result())
        except BaseException:
            # A census stores its complete rows first.
            try:
                if call.stop():
                    await asyncio.wait([finished])
            finally:
                call.cancel()
                self._close()
            raise

    def _close(self) -> None:
        if isinstance(self._progress, _Bar):
            self._progress.close()

    def _finish(self, result: Any, error: BaseException | None) -> T:
        self._close()
        if error is not None:
            raise error
        return self._convert(result)

    def _report(self, call: NativeCall) -> None:
        progress = Progress(*call.progress())
        if progress.outage and not self._outage:
            message = f"the Hub does not answer ({progress.outage}): waiting for the end of the outage"
            warnings.warn(message, RuntimeWarning, stacklevel=5)
        self._outage = progress.outage
        if self._progress:
            self._progress(progress)


class _Bar:
    """A progress bar of tqdm, for terminals and notebooks."""

    def __init__(self) -> None:
        from tqdm.auto import tqdm

        self._bar = tqdm(unit="repo")
        self.close = self._bar.close

    def __call__(self, progress: Progress) -> None:
        self._bar.total = progress.total or None
        self._bar.set_postfix(failed=progress.failed, refresh=False)
        self._bar.update(progress.done - self._bar.n)


class BatchProgress:
    """The progress of a call in batches, which is reported after each."""

    def __init__(self, repos: Any, settings: Settings) -> None:
        progress = settings.pop("progress", None)
        self._report = _Bar() if progress is True else progress or None
        has_rows = hasattr(repos, "__len__") and not isinstance(repos, Mapping)
        self._progress = Progress(0, len(repos) if has_rows else 0, 0)

    def add(self, rows: pyarrow.RecordBatch) -> None:
        done, total, failed, _ = self._progress
        failed += rows["status"].to_pylist().count("failed")
        self._progress = Progress(done + rows.num_rows, total, failed)
        if self._report:
            self._report(self._progress)

    def close(self) -> None:
        if isinstance(self._report, _Bar):
            self._report.close()


def blocking(call: Callable[P, Call[T]], module: str) -> Callable[P, T]:
    """Returns a function of a module that starts a call and waits for its result."""
    returned = call.__annotations__["return"].removeprefix("Call[").removesuffix("]")
    return exported(call, module, Call.wait, returned)


def awaitable(call: Callable[P, Call[T]], module: str) -> Callable[P, Coroutine[Any, Any, T]]:
    """Returns a function of a module that starts a call, to await its result. Cancelling the task cancels the call."""

    @functools.wraps(call)
    async def function(*args: P.args, **kwargs: P.kwargs) -> T:
        check(call, args, kwargs)
        return await call(*args, **kwargs).awaited()

    returned = call.__annotations__["return"].removeprefix("Call[").removesuffix("]")
    describe(function, call, module, returned)
    return function


def exported(call: Callable[P, C], module: str, result: Callable[[C], R], returned: str) -> Callable[P, R]:
    """Returns a function of a module that starts a call and returns a result of it."""

    @functools.wraps(call)
    def function(*args: P.args, **kwargs: P.kwargs) -> R:
        check(call, args, kwargs)
        return result(call(*args, **kwargs))

    describe(function, call, module, returned)
    return function


def describe(function: Any, call: Callable[..., Any], module: str, returned: str) -> None:
    """Sets the module of a function, and its signature, in which its result takes the place of the call."""
    function.__module__, function.__annotations__ = module, {**call.__annotations__, "return": returned}
    function.__signature__ = inspect.signature(call).replace(return_annotation=returned)
