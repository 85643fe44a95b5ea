"""Notifications of a service's state to systemd, if systemd started it (``Type=notify``)."""

from __future__ import annotations

import os
import socket

__all__ = ["notify", "watchdog_seconds"]


def notify(state: str) -> bool:
    """Send ``READY=1``, ``STOPPING=1``, ``WATCHDOG=1`` or ``STATUS=...``; True if sent."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.connect(address)
            sender.sendall(state.encode())
    except OSError:
        return False
    return True


def watchdog_seconds() -> float | None:
    """Interval of ``WATCHDOG=1``, seconds: half of what systemd allows; None if not asked for."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        allowed = int(os.environ.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return None
    return allowed / 2e6 if allowed > 0 else None
