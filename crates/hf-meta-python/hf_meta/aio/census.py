"""The functions of `hf_meta.census` to await."""

from .. import _census
from .._calls import awaitable

__all__ = ["count", "diff", "list", "pack", "publish", "read", "retry", "verify"]

list = awaitable(_census.list, __name__)
read = awaitable(_census.read, __name__)
retry = awaitable(_census.retry, __name__)
count = awaitable(_census.count, __name__)
pack = awaitable(_census.pack, __name__)
diff = awaitable(_census.diff, __name__)
publish = awaitable(_census.publish, __name__)
verify = awaitable(_census.verify, __name__)
