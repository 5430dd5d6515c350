"""A census: many repositories in tables, as with the command `hf-meta census`."""

from . import _census
from ._calls import blocking

__all__ = ["count", "diff", "list", "pack", "publish", "read", "retry", "verify"]

list = blocking(_census.list, __name__)
read = blocking(_census.read, __name__)
retry = blocking(_census.retry, __name__)
count = blocking(_census.count, __name__)
pack = blocking(_census.pack, __name__)
diff = blocking(_census.diff, __name__)
publish = blocking(_census.publish, __name__)
verify = blocking(_census.verify, __name__)
