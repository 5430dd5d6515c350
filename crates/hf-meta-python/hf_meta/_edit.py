"""The call `edit_metadata` of `hf_meta` and `hf_meta.aio`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from ._calls import Call, warn_of_completed_edits
from ._native import data_url
from ._results import EditedFile, to_edited_files

# The key of the thumbnail in the SAI Model Spec.
_THUMBNAIL = "modelspec.thumbnail"


def edit_metadata(
    path: str | os.PathLike[str],
    *,
    set: Mapping[str, str | os.PathLike[str]] | None = None,
    delete: str | Iterable[str] = (),
    delete_all: bool = False,
    reserve: int | None = None,
    dry_run: bool = False,
) -> Call[list[EditedFile]]:
    """Edits the metadata of a local safetensors file, or of all shards of a folder or an index.

    First, `delete_all` deletes all keys except `format`, and `delete` deletes keys and patterns such as "ss_*". Then `set`
    sets keys. A value that is a `pathlib.Path` is the content of that file; an image for `modelspec.thumbnail` becomes a
    data URL. Only the header changes: in place, if it fits into the old one, and otherwise in a new file, which has
    `reserve` free bytes for further edits in place. With `dry_run=True`, nothing is written.

    Raises OSError if a file must not or cannot be changed, such as a link or a file in a download cache, HfMetaError if it
    is not a valid safetensors file, and ValueError if a value is too long. Then no file was changed, unless a later file of
    several cannot be written.
    """
    name = os.path.expanduser(path)
    patterns = [delete] if isinstance(delete, str) else list(delete)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(f"`delete`: keys must be text, not {type(pattern).__name__}")
    if reserve is not None and reserve < 0:
        raise ValueError("`reserve` must be at least 0")
    arguments = {
        "path": name,
        "delete": patterns,
        "delete_all": delete_all,
        "set": [(key, _value(key, value)) for key, value in (set or {}).items()],
        "reserve": reserve,
        "dry_run": dry_run,
    }
    source = os.path.abspath(name)
    warn_of_completed_edits(source)
    return Call("edit_metadata", {}, (source, name), arguments, convert=to_edited_files)


def _value(key: str, value: str | os.PathLike[str]) -> str:
    """Returns a value, or the content of its file."""
    if not isinstance(key, str):
        raise TypeError(f"`set`: keys must be text, not {type(key).__name__}")
    if isinstance(value, str):
        return value
    if not isinstance(value, os.PathLike):
        raise TypeError(f"`set`: the value of `{key}` must be text or a `pathlib.Path`, not {type(value).__name__}")
    with open(value, "rb") as file:
        # One byte more than an edit accepts.
        content = file.read(1_000_001)
    image = data_url(content) if key == _THUMBNAIL else None
    if image is not None:
        return image
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        kind = "an image (PNG, JPEG, WebP, GIF) or UTF-8 text" if key == _THUMBNAIL else "UTF-8 text"
        raise ValueError(f"`set`: `{os.fspath(value)}` is not {kind}") from error
