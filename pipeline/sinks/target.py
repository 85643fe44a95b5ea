"""What the sinks that write a file share: making its folder and naming why that failed."""

from __future__ import annotations

import os

from pipeline.errors import SinkError

__all__ = ["make_parent", "reason_of"]


def reason_of(error: OSError) -> str:
    """Why, in the system's words without number and path."""
    return error.strerror or type(error).__name__


def make_parent(kind: str, path: str) -> None:
    """Make the folders above ``path``; SinkError when that is not possible."""
    if os.path.isdir(path):
        raise SinkError(f"{kind}: {path}: is a folder, needed a file")
    parent = os.path.dirname(os.path.abspath(path))
    try:
        os.makedirs(parent, exist_ok=True)
    except FileExistsError:
        raise SinkError(f"{kind}: {path}: {parent} is not a folder") from None
    except OSError as error:
        raise SinkError(f"{kind}: {path}: cannot make its folder: {reason_of(error)}") from error
