"""Stand-in vendor libraries of ``native/tests/vendor``, built once for each test run."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["NATIVE", "NoCompilerError", "build_library", "compiler", "scratch"]

NATIVE = Path(__file__).parents[1] / "native"


class NoCompilerError(Exception):
    """There is no C++ compiler to build a stand-in with."""


@functools.cache
def scratch() -> Path:
    """A folder that goes when the tests end."""
    folder = tempfile.mkdtemp(prefix="standins-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@functools.cache
def compiler() -> str:
    """The C++ compiler. NoCompilerError."""
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        if (found := shutil.which(name)) is not None:
            return found
    raise NoCompilerError("no C++ compiler to build the stand-in libraries with")


def build_library(
    name: str,
    sources: Sequence[str],
    *,
    folder: str = "",
    defines: Sequence[str] = (),
    needs: Sequence[Path] = (),
    options: Sequence[str] = (),
) -> Path:
    """Compile ``sources``, paths under ``native/``, to a shared object ``folder/name``.

    ``needs`` are libraries that it depends on and finds beside itself, as a vendor's do, and
    ``options`` more of the compiler's.
    NoCompilerError where nothing can be compiled.
    """
    target = scratch() / folder / name
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler(), "-std=c++20", "-O1", "-fPIC", "-shared", "-pthread", f"-I{NATIVE}"]
    command += [*options, *(f"-D{define}" for define in defines)]
    command += [str(NATIVE / source) for source in sources]
    command += ["-Wl,--no-as-needed", *map(str, needs), "-Wl,-rpath,$ORIGIN"]
    command += [f"-Wl,-soname,{name}", "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: cannot be built:\n{done.stderr}")
    return target
