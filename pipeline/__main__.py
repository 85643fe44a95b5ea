"""``python -m pipeline``."""

from __future__ import annotations

import sys

from pipeline.signals import StopRequests

__all__ = ["main"]


def main() -> int:
    """Run the command line; signals are heard before anything else is imported."""
    with StopRequests() as requests:
        try:
            from pipeline import cli

            return cli.main(requests=requests)
        except KeyboardInterrupt:
            sys.stderr.write("error: interrupted\n")
            return 1


if __name__ == "__main__":
    sys.exit(main())
