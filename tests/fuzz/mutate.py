"""Spoilt data, the same for the same seed; and how many of them a run makes."""

from __future__ import annotations

import os
import random

__all__ = ["count_of", "mutated"]

_EXTREMES = (0, 1, 0x7F, 0x80, 0xFF)


def count_of(kind: str, default: int) -> int:
    """How many to try: ``FUZZ_MEDIA=2000`` for the kind ``media``."""
    return int(os.environ.get(f"FUZZ_{kind.upper()}", default))


def mutated(data: bytes, seed: int) -> bytes:
    """The data with one to eight faults: wrong, missing, doubled, moved or extreme bytes, or cut.

    Half of the faults lie in the first 2 KiB, where most formats keep what they announce.
    """
    chance = random.Random(seed)
    spoilt = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        if spoilt:
            _spoil(spoilt, chance)
    return bytes(spoilt)


def _spoil(data: bytearray, chance: random.Random) -> None:
    most = len(data) if chance.random() < 0.5 else min(len(data), 2048)
    at = chance.randrange(most)
    length = chance.choice((1, 2, 4, 8, 64, 1024))
    fault = chance.randrange(7)
    if fault == 0:
        data[at] ^= 1 << chance.randrange(8)
    elif fault == 1:
        size = min(length, len(data) - at)
        data[at : at + size] = chance.randbytes(size)
    elif fault == 2:
        del data[at : at + length]
    elif fault == 3:
        data[at:at] = data[at : at + length]
    elif fault == 4:
        size = min(chance.choice((1, 2, 4, 8)), len(data) - at)
        data[at : at + size] = bytes([chance.choice(_EXTREMES)]) * size
    elif fault == 5:
        piece = data[at : at + length]
        del data[at : at + length]
        to = chance.randrange(len(data) + 1)
        data[to:to] = piece
    elif chance.random() < 0.3:
        del data[at:]
