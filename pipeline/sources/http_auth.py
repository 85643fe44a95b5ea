"""Answers to what an HTTP server asks for in ``WWW-Authenticate``: Digest, or else Basic."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable

__all__ = ["answer", "schemes"]

_ITEM = re.compile(
    r"(?P<name>[^\s,=\"]++)\s*+=(?!=)\s*+(?:\"(?P<quoted>(?:[^\"\\]|\\.)*+)\"?+|(?P<plain>[^\s,\"]*+))"
    r"|(?P<scheme>[^\s,=\"]++)|.",
    re.DOTALL,
)
_HASHES = {"SHA-256": hashlib.sha256, "MD5": hashlib.md5}  # the strongest first
_Challenge = tuple[str, dict[str, str]]


def answer(headers: Iterable[str], user: bytes, password: bytes, target: str) -> bytes | None:
    """Value of ``Authorization`` for a GET of ``target``; None if nothing known is asked for.

    Of several kinds of Digest it answers the strongest. Basic reveals the password, so it is
    answered only where no Digest is asked for that can be answered (RFC 7616, RFC 7617).
    """
    challenges = _parse(headers)
    digests = [given for scheme, given in challenges if scheme == "digest" and _is_known(given)]
    if digests:
        order = list(_HASHES)
        strongest = min(digests, key=lambda given: order.index(_algorithm(given)[0]))
        return _digest(strongest, user, password, target)
    if any(scheme == "basic" for scheme, _ in challenges):
        return b"Basic " + base64.b64encode(user + b":" + password)
    return None


def schemes(headers: Iterable[str]) -> list[str]:
    """Names of what is asked for, as far as they are plain words."""
    return [scheme for scheme, _ in _parse(headers) if re.fullmatch(r"[a-z0-9-]{1,20}", scheme)]


def _parse(headers: Iterable[str]) -> list[_Challenge]:
    """The challenges; several may stand in one header."""
    found: list[_Challenge] = []
    for header in headers:
        for item in _ITEM.finditer(re.sub(r"[\x00-\x1f\x7f]", " ", header)):
            if item["scheme"]:
                found.append((item["scheme"].lower(), {}))
            elif item["name"] and found:
                quoted = item["quoted"]
                value = item["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
                found[-1][1].setdefault(item["name"].lower(), value)
    return found


def _algorithm(given: dict[str, str]) -> tuple[str, bool]:
    """Name of the hash, and True if the session is hashed, too."""
    name = given.get("algorithm", "MD5").upper()
    return name.removesuffix("-SESS"), name.endswith("-SESS")


def _is_known(given: dict[str, str]) -> bool:
    known = _algorithm(given)[0] in _HASHES and "nonce" in given and "realm" in given
    return known and ("qop" not in given or "auth" in _words(given["qop"]))


def _words(text: str) -> list[str]:
    return [word.strip().lower() for word in text.split(",")]


def _digest(given: dict[str, str], user: bytes, password: bytes, target: str) -> bytes:
    name, of_session = _algorithm(given)

    def hashed(*words: bytes) -> bytes:
        return _HASHES[name](b":".join(words)).hexdigest().encode()

    # Names and texts of a header are bytes that http.client has read as Latin-1.
    realm, nonce = (given[key].encode("latin-1", "replace") for key in ("realm", "nonce"))
    uri, count, own = target.encode(), b"00000001", secrets.token_hex(16).encode()
    secret = hashed(user, realm, password)
    if of_session:
        secret = hashed(secret, nonce, own)
    used = [count, own, b"auth"] if "qop" in given else []
    response = hashed(secret, nonce, *used, hashed(b"GET", uri))
    fields = {"username": user, "realm": realm, "nonce": nonce, "uri": uri, "response": response}
    if "opaque" in given:
        fields["opaque"] = given["opaque"].encode("latin-1", "replace")
    if used or of_session:
        fields["cnonce"] = own
    told = [b'%s="%s"' % (key.encode(), _escaped(value)) for key, value in fields.items()]
    if "algorithm" in given:
        told.append(b"algorithm=%s%s" % (name.encode(), b"-sess" if of_session else b""))
    told += [b"qop=auth", b"nc=" + count] if used else []
    return b"Digest " + b", ".join(told)


def _escaped(value: bytes) -> bytes:
    """Text of a quoted string that cannot end the header."""
    return re.sub(rb'(["\\])', rb"\\\1", re.sub(rb"[\x00-\x1f\x7f]", b" ", value))
