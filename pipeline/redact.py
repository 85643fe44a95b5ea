"""Secrets hidden in texts: what may be shown of URIs, headers and GStreamer pipelines."""

from __future__ import annotations

import re

__all__ = ["printable", "redact", "redact_uri"]

# What may be shown of a URI is listed here; all else in it is hidden, as nobody can list secrets.
_SCHEMES = r"(?:rtsps?|https?|rtmps?|srt|udp|tcp|rtp|mms[ht]?|ftps?|wss?)"
_START = re.compile(
    rf"(?<![\w.+-])(?:[A-Za-z][A-Za-z0-9+.-]*+://+|{_SCHEMES}:/{{0,3}}(?=[^\s/]))", re.IGNORECASE
)
_LOCAL = re.compile(r"(?:package://|file:///)", re.IGNORECASE)
# Passwords with an unescaped @, /, ?, # or blank do occur: a user ends at the last @ of the line.
_USERINFO = re.compile(r"(?:[^/?#@:\n]*:[^\n]*|[^/?#@\n]*)@")
_HOST = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[\w%]+)?\]|[\w.-]{1,253})(?::\d{1,5})?(?=[/?#]|$)"
)
_WORD = (
    r"(?:video|videos|live|livestream|streams?|streaming|channels?|ch|cams?|camera|media|main|sub|"
    r"minor|major|primary|secondary|preview|profile|onvif|axis|cgi|bin|mjpe?g|mjpg|jpe?g|image|"
    r"images|picture|snap|snapshot|still|h26[45]|hevc|av|mpeg|mp|hls|dash|rtsp|track|trackid|"
    r"unicast|multicast|udp|tcp|low|high|hd|sd|index|playlist|master|realmonitor|view|viewer|feed|"
    r"web|public|test|demo|clips?|files?|movies?|data|assets|static|recordings?|api|healthz|metrics|v|x|a|b)"
)
_PART = rf"(?:{_WORD}\d{{0,3}}|\d{{1,3}})"
_SUFFIX = (
    r"(?:m3u8?|mpd|mp4|m4v|mkv|mov|avi|webm|flv|ts|mjpe?g|mjpg|jpe?g|png|bmp|amp|cgi|fcgi|sdp|asp|"
    r"php|html?)"
)
_HARMLESS = re.compile(rf"{_PART}(?:[_-]{_PART}){{0,3}}(?:\.{_SUFFIX})?", re.IGNORECASE)
_MOST_WORDS = 8
_HIDDEN = "***"
_CLOSING = ".,:;)]}>'\"`"  # of the sentence that a URI stands in

_BARE_USER = re.compile(r"[^\s/@:'\"=*]++:")  # of a URI whose scheme is missing or misspelt
_HEADER = re.compile(r"\b((?:proxy-)?authorization|cookie)(['\"]?\s*[:=]).*", re.IGNORECASE)

_PIPELINE = "gstreamer:"
_TOKEN = re.compile(
    r"(?P<blank>\s++)|(?P<next>!)|"
    r"(?P<name>[\w-]++)(?P<equals>\s*+=\s*+)"
    r"(?P<value>\"(?:\\.|[^\"\\])*+(?:\"|$)|'(?:\\.|[^'\\])*+(?:'|$)|\S*+)|"
    r"(?P<word>\S++)",
    re.DOTALL,
)
_ELEMENT = re.compile(r"[A-Za-z][A-Za-z0-9_-]{1,40}")
_CAPS = re.compile(r"(?:video|image|application|audio)/[a-z0-9.-]{1,40}")
_PROPERTY = re.compile(
    r"allow-frame-drops|batch-size|camera-id|device|drop|drop-on-latency|fps|framerate|format|"
    r"height|interlace-mode|io-mode|is-live|latency|leaky|max-buffers|max-size-buffers|n-threads|"
    r"num-buffers|pattern|pixel-aspect-ratio|protocols|sensor-id|sync|width"
)
_VALUE = re.compile(r"(?:\(\w{1,12}\))?(?:/dev/)?[\w./+-]{1,24}")


def redact(text: str) -> str:
    """Hide all of each URI in a text but what is known to be harmless.

    That is the scheme, the host, the port and path words up to the first that is no plain word
    of a camera's address; ``***`` stands for the rest. Of a GStreamer pipeline the elements
    are shown, and the values of properties that cannot hold a secret. Paths stay whole.
    """
    return "\n".join(map(_redact_line, text.split("\n")))


def redact_uri(uri: str) -> str:
    """Hide all of one URI, up to the end of ``uri``, but what is harmless; a path stays whole."""
    if uri.startswith(_PIPELINE):
        return redact(uri)
    start = _START.match(uri)
    if start is None:
        return uri if uri.startswith(("/", ".", "~", "synthetic:")) else redact(uri)
    if _LOCAL.match(uri):
        return _redact_local(uri)
    rest = uri[start.end() :]
    userinfo = _USERINFO.match(rest.replace("\n", " "))
    user = f"{_HIDDEN}@" if userinfo else ""
    return start[0] + user + _redact_address(rest[userinfo.end() :] if userinfo else rest)


def printable(text: str) -> str:
    """One or more lines that are safe on a terminal: no secrets of URIs, no control characters."""
    kept = (char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
    return redact("".join(kept))


def _redact_line(line: str) -> str:
    if ":" not in line and "=" not in line:
        return line
    text, marker, pipeline = line.partition(_PIPELINE)
    starts = list(_START.finditer(text))
    ends = [*(start.start() for start in starts[1:]), len(text)]
    shown = [_redact_bare(text[: starts[0].start()] if starts else text)]
    for start, end in zip(starts, ends, strict=False):
        rest = text[start.end() : end]
        local = _LOCAL.match(start[0] + rest[:1])
        shown.append(start[0] + (_redact_local(rest) if local else _redact_rest(rest)))
    return "".join(shown) + (marker + _redact_pipeline(pipeline) if marker else "")


def _redact_local(text: str) -> str:
    return re.sub(r"([?#])\S+", rf"\1{_HIDDEN}", text)


def _redact_rest(text: str) -> str:
    """Redact the rest of a URI after its scheme, and the words of the sentence behind it."""
    userinfo = _USERINFO.match(text)
    user = f"{_HIDDEN}@" if userinfo else ""
    text = text[userinfo.end() :] if userinfo else text
    address, blank, sentence = _split_blank(text)
    kept = address.rstrip(_CLOSING)
    return user + _redact_address(kept) + address[len(kept) :] + blank + _redact_bare(sentence)


def _redact_address(address: str) -> str:
    """Host, port and the harmless part of a path."""
    host = _HOST.match(address)
    if host is None:
        return _HIDDEN if address else ""
    path = address[host.end() :]
    words = re.match(r"[^?#;&=\s]*", path)
    assert words is not None
    shown = host[0]
    for number, word in enumerate(words[0].split("/")):
        if number > _MOST_WORDS or (number and word and not _HARMLESS.fullmatch(word)):
            return f"{shown}/{_HIDDEN}"
        shown += f"/{word}" if number else ""
    more = path[words.end() :]
    return f"{shown}{more[0].strip()}{_HIDDEN}" if more else shown


def _redact_bare(text: str) -> str:
    """Text without URIs: no ``user:password@`` and no header that holds a credential."""
    text = _HEADER.sub(rf"\1\2 {_HIDDEN}", text)
    if "@" not in text:
        return text
    return re.sub(r"\S++", lambda word: _redact_word(word[0]), text)


def _redact_word(word: str) -> str:
    head, at, host = word.rpartition("@")
    is_path = word.lstrip("'\"(").startswith(("/", "./", "../", "~")) and "//" not in word[:4]
    user = _BARE_USER.search(head) if at and not is_path else None
    return word if user is None else f"{head[: user.start()]}{_HIDDEN}@{host}"


def _split_blank(text: str) -> tuple[str, str, str]:
    found = re.search(r"\s", text)
    return (
        (text, "", "") if found is None else (text[: found.start()], found[0], text[found.end() :])
    )


def _redact_pipeline(text: str) -> str:
    shown: list[str] = []
    first = True  # an element comes first, and after each !
    for token in _TOKEN.finditer(text):
        if token["name"]:
            shown.append(token["name"] + token["equals"] + _property(token["name"], token["value"]))
        elif token["word"]:
            word = token["word"]
            shown.append(_caps(word) or (word if first and _ELEMENT.fullmatch(word) else _HIDDEN))
        else:
            shown.append(token[0])
        first = bool(token["next"]) or (first and bool(token["blank"]))
    return "".join(shown)


def _property(name: str, value: str) -> str:
    plain = value.strip("'\"")
    if name == "location" and _START.match(plain):
        return redact_uri(plain)
    return value if _PROPERTY.fullmatch(name) and _VALUE.fullmatch(plain) else _HIDDEN


def _caps(word: str) -> str | None:
    """A filter such as ``video/x-raw,width=640``; None where it is something else."""
    kind, *fields = word.split(",")
    if not _CAPS.fullmatch(kind):
        return None
    pairs = (field.partition("=") for field in fields)
    return ",".join([kind, *(f"{name}={_property(name, value)}" for name, _, value in pairs)])
