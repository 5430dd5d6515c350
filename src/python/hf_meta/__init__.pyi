import os
from typing import Any, Literal, Optional, Union

__all__ = ["HfMetaError", "inspect"]

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
    endpoint: Optional[str] = None,
    token: Optional[str] = None,
    timeout: Optional[float] = None,
    cache: bool = True,
) -> dict[str, Any]: ...
