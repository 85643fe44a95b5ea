"""The house: imports go down only, public names are told, the core knows no Python."""

from __future__ import annotations

import ast
import importlib
import pickle
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pipeline
from pipeline.config.loading import load

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pipeline"

# From the ground up: a floor imports from those below it only. The parts of one floor do not know
# one another, and within a folder there is no circle.
FLOORS = (
    ("errors", "clock", "text", "worker", "redact", "signals"),
    ("paths", "problems"),
    ("parts",),
    ("_native", "memory"),
    ("contracts",),
    ("sources", "preprocess", "engines", "postprocess", "sinks"),
    ("config",),
    ("flow",),
    ("machine",),
    ("pipeline",),
    ("bench", "testing"),
    ("service",),
    ("cli",),
    ("__main__",),
)
MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """Dotted name below the package."""
    parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {f"pipeline.{name_of(path)}" for path in MODULES} | {"pipeline._native"}


def imports_of(path: Path) -> set[str]:
    """Dotted names below the package that a module imports, wherever it does, but for types."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in NAMES else node.module for name in inner}
    return {name.removeprefix("pipeline.") for name in found if name.startswith("pipeline.")}


def floor_of(part: str) -> int:
    """On which floor a top-level part stands."""
    return next(i for i, floor in enumerate(FLOORS) if part in floor)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down_only(path: Path) -> None:
    name = name_of(path)
    if not name:
        return  # the public face, which loads what it is asked for
    part = name.partition(".")[0]
    for imported in imports_of(path):
        other = imported.partition(".")[0]
        below = other == part or floor_of(other) < floor_of(part)
        assert below, f"{name} imports {imported}, which is not below"


def test_no_imports_go_in_a_circle() -> None:
    TopologicalSorter({name_of(path): imports_of(path) for path in MODULES}).prepare()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_tells_its_public_names(path: Path) -> None:
    if path.name == "__main__.py":
        return
    module = importlib.import_module(f"pipeline.{name_of(path)}".rstrip("."))
    assert module.__doc__
    if not hasattr(module, "__all__"):
        assert path.name == "__init__.py"  # nothing but the folder's description
        assert ast.get_docstring(ast.parse(path.read_text()))
        return
    for name in module.__all__:
        assert hasattr(module, name), name


def test_importing_the_package_needs_numpy_only() -> None:
    program = (
        "import sys, threading; before = set(sys.modules); import pipeline;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "heavy = new & {'cv2', 'av', 'pydantic', 'openvino', 'uvloop', 'yaml', 'asyncio'};"
        "assert not heavy, heavy; assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_little_is_imported_before_signals_are_heard() -> None:
    program = (
        "import sys; import pipeline.signals;"
        "slow = {'typing', 're', 'pkgutil', 'inspect', 'asyncio', 'numpy'} & set(sys.modules);"
        "assert not slow, slow"
    )
    # Without the environment's packages, which may import anything as Python starts.
    subprocess.run([sys.executable, "-S", "-c", program], check=True, timeout=60, cwd=ROOT)


def test_public_names_show_the_package_as_their_home() -> None:
    assert dir(pipeline) == sorted(pipeline.__all__)
    for name in pipeline.__all__:
        found = getattr(pipeline, name)
        assert found.__module__ == "pipeline", name
        assert pickle.loads(pickle.dumps(found)) is found


@pytest.mark.parametrize("path", [ROOT / "README.md", *(ROOT / "docs").glob("*.md")], ids=str)
def test_what_the_documents_name_is_public(path: Path) -> None:
    classes = {
        node.name
        for module in MODULES
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    code = " ".join(re.findall(r"```python.*?```|`[^`\n]+`", path.read_text(), re.DOTALL))
    named = set(re.findall(r"(?<![\w.])[A-Z]\w+", code)) & classes
    imported = re.findall(r"from pipeline import ([\w, ]+)", code)
    named |= {name.strip() for each in imported for name in each.split(",")}
    assert named <= set(pipeline.__all__)


def test_unknown_names_are_refused() -> None:
    package = importlib.import_module("pipeline")
    with pytest.raises(AttributeError, match="no attribute 'Pipelin'"):
        package.Pipelin  # noqa: B018


def test_the_core_knows_no_python() -> None:
    sources = [path for path in (ROOT / "native").rglob("*.?pp") if path.parent.name != "bind"]
    assert len(sources) > 20
    for path in sources:
        assert not re.search(r"Python\.h|pybind11|PyObject", path.read_text()), path


def test_nothing_native_is_made_by_hand() -> None:
    """What ``new`` makes is owned in the same line; ``delete`` and ``malloc`` are not written."""
    for path in (ROOT / "native").rglob("*.?pp"):
        if "vendor" in path.parts:
            continue  # stand-ins give out handles as their C interface demands
        for line in re.sub(r"//.*", "", path.read_text()).splitlines():
            if re.search(r"(?<![\w\"])new [A-Za-z_:]+[({\[]", line):
                assert re.search(r"(shared|unique)_ptr<", line), f"{path}: {line}"
            by_hand = re.search(r"(?<![\w\"])(?<!operator )delete\b(?!;)|std::malloc", line)
            assert not by_hand, f"{path}: {line}"


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.name)
def test_every_configuration_loads(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").touch()  # for engines whose models no package brings
    for name in ("MODEL", "RKNN_MODEL"):
        if f"${{{name}}}" in path.read_text() or f"${{{name}:-../" in path.read_text():
            monkeypatch.setenv(name, str(tmp_path / "model"))
    assert load(path).sinks


@pytest.mark.parametrize(
    "path",
    [*MODULES, *(ROOT / "native").rglob("*.?pp")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_file_is_a_hall(path: Path) -> None:
    limit = 800 if "tests" in path.parts else 500  # a test file is a list
    assert len(path.read_text().splitlines()) <= limit
