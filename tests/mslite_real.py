"""The real runtime of MindSpore Lite 2.0.0, out of its Python wheel, behind the C names.

The wheel is for Python 3.7, so it is not installed but unzipped::

    pip download --no-deps --python-version 3.7 --only-binary :all: mindspore_lite==2.0.0
    python -m zipfile -e mindspore_lite-2.0.0-*.whl FOLDER

``MINDSPORE_LITE_WHEEL`` names FOLDER; without it, it is looked for in the user's cache.
"""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

from tests.standins import NATIVE, compiler, scratch

__all__ = ["WheelMissingError", "convert", "library"]

_FOLDER = NATIVE / "tests/vendor/mindspore_lite"
_VARIABLE = "MINDSPORE_LITE_WHEEL"


class WheelMissingError(Exception):
    """The wheel is not on this machine."""


def _root() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get(_VARIABLE) or cache / "npu-pipeline/mindspore_lite-2.0.0")
    root = folder / "mindspore_lite"
    if not (root / "lib/libmindspore_converter.so").is_file():
        raise WheelMissingError(
            f"the wheel mindspore_lite==2.0.0 is not unzipped at {folder}; {_VARIABLE} can name "
            "another folder"
        )
    return root


@functools.cache
def _build(source: str, name: str, *flags: str) -> Path:
    root, target = _root(), scratch() / "mslite-real" / name
    target.parent.mkdir(exist_ok=True)
    libraries = [str(root / "lib" / f"libmindspore_{part}.so") for part in ("converter", "core")]
    # The wheel has the std::string of before C++11. An RPATH, unlike a RUNPATH, also serves the
    # libraries that these need.
    command = [compiler(), "-std=c++20", "-O1", "-D_GLIBCXX_USE_CXX11_ABI=0", *flags]
    command += [f"-I{NATIVE}", "-isystem", str(root), str(_FOLDER / source), *libraries]
    command += [f"-Wl,--disable-new-dtags,-rpath,{root / 'lib'}", "-Wl,--allow-shlib-undefined"]
    done = subprocess.run(
        [*command, "-o", str(target)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{source}: cannot be built:\n{done.stderr}")
    return target


def library() -> Path:
    """The shim over the real runtime, built once. WheelMissingError, NoCompilerError."""
    return _build("shim.cpp", "libmindspore_lite_shim.so", "-fPIC", "-shared")


def convert(model: Path, output: Path, input_name: str, shape: tuple[int, ...]) -> Path:
    """An ONNX model as ``.ms``, its input of this shape, by the wheel's own converter."""
    program = _build("convert.cpp", "convert")
    command = [str(program), str(model), str(output.with_suffix("")), input_name, *map(str, shape)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{model}: cannot be converted:\n{done.stdout}{done.stderr}")
    return output.with_suffix(".ms")
