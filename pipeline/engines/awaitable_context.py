"""Something that opens asynchronously: await it, or use it as ``async with``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["AwaitableContext"]


class _Closable(Protocol):
    async def close(self) -> object: ...


T = TypeVar("T", bound=_Closable)


class AwaitableContext(Generic[T]):
    """``await opening`` gives the open object; ``async with opening as it`` closes it, too."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._make = make
        self._begun = False
        self._open: T | None = None

    def __del__(self) -> None:
        if not self._begun:
            name = self._make.__qualname__.partition(".<locals>")[0]
            warnings.warn(f"{name} was never awaited", RuntimeWarning, stacklevel=2)

    def _begin(self) -> Coroutine[Any, Any, T]:
        self._begun = True
        return self._make()

    def __await__(self) -> Generator[Any, None, T]:
        return self._begin().__await__()

    async def __aenter__(self) -> T:
        self._open = await self._begin()
        return self._open

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._open is not None
        await self._open.close()
