"""``python -m pipeline``."""

from __future__ import annotations

import sys

from pipeline.signals import StopRequests

__all__ = ["main"]


def main() -> int:
    """Run the command line; signals are heard before anything else is imported."""
    requests = StopRequests().__enter__()
    try:
        from pipeline.cli import main as cli
        from pipeline.cli import terminal

        terminal.log_stray_errors()
        return cli.main(requests=requests)
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return 1
    finally:
        requests.ignore()


if __name__ == "__main__":
    sys.exit(main())
