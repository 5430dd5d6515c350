"""The types of all arguments. An error names the argument: Rust would only name the type."""

from __future__ import annotations

import functools
import inspect
import numbers
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_PATH = ((str, os.PathLike), "text or a `pathlib.Path`")
_SOURCE = ((str, os.PathLike), "the name of a repository, a URL, or a path")
_TEXT = ((str,), "text")
_FLAG = ((bool,), "True or False")
_INTEGER = ((numbers.Integral,), "a whole number")
_NUMBER = ((numbers.Real,), "a number")

# The types of an argument, and their name for people. A bool is a number only where it is listed.
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("source", "before", "after", "base"), _SOURCE),
    **dict.fromkeys(("target", "output", "previous"), _PATH),
    **dict.fromkeys(("revision", "path", "weights", "plan", "engine", "gpu", "cache_dtype", "values"), _TEXT),
    **dict.fromkeys(("repo_id", "repo_type", "endpoint", "contact", "column", "title", "license", "filter", "author"), _TEXT),
    **dict.fromkeys(("headers", "cache", "all", "ignore_shards", "tensors", "delete_all", "dry_run"), _FLAG),
    **dict.fromkeys(("batch", "tp", "pp", "max_num_batched_tokens", "num_speculative_tokens", "jobs", "sample", "seed", "reserve", "max_memory"), _INTEGER),
    **dict.fromkeys(("timeout", "quota_share", "max_outage", "gpu_memory_utilization"), _NUMBER),
    "edit_metadata.path": _PATH,
    "names": ((str, Iterable), "a name, a pattern, or several"),  # type: ignore[type-abstract]
    "set": ((Mapping,), "a mapping of keys to values"),
    "delete": ((str, Iterable), "a key, a pattern, or several"),  # type: ignore[type-abstract]
    **dict.fromkeys(("fit", "inspect.reserve", "verify.reserve"), ((numbers.Integral, str), 'a number of bytes, or text such as "24GB"')),
    "context": ((numbers.Integral, str), 'a context length such as 32_768 or "32k"'),
    "memory": ((bool, numbers.Integral, str), 'True, or a context length such as 32_768 or "32k"'),
    "token": ((str, bool), "text, True or False"),
    "progress": ((bool, Callable), "a function, True or False"),  # type: ignore[dict-item]
}

# The values of arguments with few of them. Rust would name the value, but not the argument.
_VALUES = {
    "weights": ("safetensors", "gguf", "pytorch"),
    "repo_type": ("model", "dataset", "space"),
}


@functools.cache
def _signature(call: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(call)


def check(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises a TypeError that names the first argument of a call with a wrong type."""
    signature = _signature(call)
    bound = signature.bind(*args, **kwargs).arguments
    settings = bound.pop("settings", {})
    for name, value in {**bound, **settings}.items():
        known = _TYPES.get(f"{call.__name__}.{name}") or _TYPES.get(name)
        if not known or value is None and _may_be_none(signature, name):
            continue
        types, expected = known
        is_bool = isinstance(value, bool)
        if not isinstance(value, types) or is_bool and not {bool, Callable} & {*types}:
            raise TypeError(f"`{name}` must be {expected}, not {value if is_bool else type(value).__name__}")
        if name in _VALUES and value not in _VALUES[name]:
            *others, last = [f"`{known}`" for known in _VALUES[name]]
            raise ValueError(f"`{name}` must be {', '.join(others)} or {last}, not `{value}`")
        if name in ("revision", "path") and isinstance(value, str) and not value.strip():
            raise ValueError(f"`{name}` must not be empty")
        if name == "contact" and not (value.isascii() and value.isprintable()):
            raise ValueError("`contact` must be an email address or a URL in ASCII")


def _may_be_none(signature: inspect.Signature, name: str) -> bool:
    """Returns whether None is the default of an argument, or of a setting."""
    parameter = signature.parameters.get(name)
    return parameter.default is None if parameter else name not in ("jobs", "quota_share", "max_outage")
