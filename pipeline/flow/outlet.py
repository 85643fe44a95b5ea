"""Outlet of results to one receiver: a channel, and the buffers its results may hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import numpy as np

from pipeline.errors import ClosedError
from pipeline.flow.channel import Channel, ChannelClosed
from pipeline.memory.frame import Frame, Image
from pipeline.memory.results import RawOutput, Result, end_loan, lend, share

__all__ = ["Outlet"]


class Outlet:
    """A receiver of results. ``lost`` is called for each that it can take no more.

    ``needs_image`` false: it gets results without the frame. ``spares``: where results keep
    the model's outputs, they are copied into that many sets of buffers made once, so that a
    receiver that lags or is stuck holds no slot of the ring; 0: it gets the slot itself.
    """

    def __init__(
        self,
        channel: Channel[Result],
        *,
        needs_image: bool,
        lost: Callable[[], None] = lambda: None,
        spares: int = 0,
    ) -> None:
        self.channel = channel
        self._needs_image = needs_image
        self.lost = lost
        self._copies = spares > 0
        self._spares = spares
        self._free: list[list[RawOutput]] = []

    async def give(self, result: Result, frame: Frame) -> None:
        """Hand over a result, or what of it this receiver is to hold."""
        given: Result | None = None
        try:
            if self.channel.lossy and len(self.channel) >= self.channel.capacity:
                # Results may come in one go; none is to be lost for want of a turn to take it.
                await asyncio.sleep(0)
            given = self._fitted(result, frame)
            if given is None:
                self.lost()
            else:
                await self.channel.put(given)
        except BaseException as error:
            self.lost()
            if given is not None:
                end_loan(given)
            if not isinstance(error, ChannelClosed):  # this receiver takes nothing any more
                raise

    def _fitted(self, result: Result, frame: Frame) -> Result | None:
        # Outputs are made when looked at, so that is done only where it matters.
        if self._copies and (outputs := result.outputs):
            return self._detached(result, frame, outputs)
        if self._needs_image or result.outputs:
            return share(result)
        return lend(result, _nothing, _refuse, tuple)

    def _detached(
        self, result: Result, frame: Frame, outputs: Sequence[RawOutput]
    ) -> Result | None:
        """The same with copies of the outputs; None when all sets are in use."""
        if self._free:
            copies = self._free.pop()
        elif self._spares > 0:
            self._spares -= 1
            copies = [RawOutput(name, np.empty_like(array)) for name, array in outputs]
        else:
            return None
        for copy, (_, array) in zip(copies, outputs, strict=True):
            np.copyto(copy.array, array)
        image = frame.view if self._needs_image else _refuse
        if self._needs_image:
            frame.retain()

        def give_back() -> None:
            self._free.append(copies)
            if self._needs_image:
                frame.release()

        return lend(result, give_back, image, lambda: copies)


def _nothing() -> None:
    pass


def _refuse() -> Image:
    raise ClosedError("this receiver asked for results without the frame (needs_image)")
