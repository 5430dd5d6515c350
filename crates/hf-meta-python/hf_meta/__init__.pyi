import os
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

if TYPE_CHECKING:
    import pyarrow

__all__ = ["HfMetaError", "census", "inspect", "read"]

class HfMetaError(Exception):
    code: str
    status: Optional[int]
    retry_after: Optional[float]
    def __init__(
        self,
        message: str,
        code: str,
        status: Optional[int] = None,
        retry_after: Optional[float] = None,
    ) -> None: ...

def inspect(
    source: Union[str, "os.PathLike[str]"],
    *,
    revision: Optional[str] = None,
    path: Optional[str] = None,
    plan: Literal["exact", "prefetch", "hub"] = "exact",
    headers: bool = False,
    memory: Optional[int] = None,
    endpoint: Optional[str] = None,
    token: Optional[str] = None,
    timeout: Optional[float] = None,
    cache: bool = True,
) -> dict[str, Any]: ...
def read(
    repos: Any,
    *,
    jobs: int = 32,
    quota_share: float = 1.0,
    endpoint: Optional[str] = None,
    token: Optional[str] = None,
    timeout: Optional[float] = None,
) -> "pyarrow.RecordBatch": ...
def census(
    manifest: Union[str, "os.PathLike[str]"],
    target: Union[str, "os.PathLike[str]"],
    *,
    slice: tuple[int, int] = (0, 1),
    previous: Union[str, "os.PathLike[str]", None] = None,
    jobs: int = 32,
    quota_share: float = 1.0,
    endpoint: Optional[str] = None,
    token: Optional[str] = None,
    timeout: Optional[float] = None,
) -> dict[str, Any]: ...
