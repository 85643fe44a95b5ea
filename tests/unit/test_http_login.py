"""User and password over HTTP: who gets them, and in which form."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import socket
import ssl
from collections.abc import Callable

import pytest

from pipeline.errors import SourceError
from pipeline.sources import http_auth as challenge
from pipeline.sources.http_stream import HttpStream
from tests.servers.raw import RawServer, header, read_head

USER, PASSWORD = "mü ler", 'p@ß:w/"#%'
URL_USER = "m%C3%BC%20ler:p%40%C3%9F%3Aw%2F%22%23%25@"
_HASH = {"MD5": hashlib.md5, "SHA-256": hashlib.sha256}


def fields(told: bytes) -> dict[str, str]:
    """Parameters of a Digest header."""
    found = re.findall(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|([^,\s]+))', told.decode())
    return {name: re.sub(r"\\(.)", r"\1", quoted) or plain for name, quoted, plain in found}


def is_right(told: bytes, path: str) -> bool:
    """Check a Digest answer of the user for realm c and nonce n, as RFC 7616 has it."""
    if not told.startswith(b"Digest "):
        return False
    given = fields(told)
    algorithm = given.get("algorithm", "MD5")
    make = _HASH[algorithm.removesuffix("-sess")]

    def hashed(text: str) -> str:
        return make(text.encode()).hexdigest()

    secret = hashed(f"{USER}:c:{PASSWORD}")
    if algorithm.endswith("-sess"):
        secret = hashed(f"{secret}:n:{given['cnonce']}")
    middle = f"{given['nc']}:{given['cnonce']}:{given['qop']}:" if "qop" in given else ""
    wanted = hashed(f"{secret}:n:{middle}{hashed(f'GET:{path}')}")
    return given["response"] == wanted and given["username"] == USER and given["uri"] == path


class Door:
    """Asks for a login by ``asked`` headers; keeps what it was told."""

    def __init__(self, *asked: str) -> None:
        self._asked = "".join(f"WWW-Authenticate: {each}\r\n" for each in asked)
        self.told: list[bytes] = []

    def __call__(self, link: socket.socket) -> None:
        head = read_head(link)
        told = header(head, b"Authorization")
        self.told.append(told)
        path = head.split(b" ")[1].decode()
        basic = b"Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode())
        if told == basic or is_right(told, path):
            link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        else:
            answer = f"HTTP/1.1 401 No\r\n{self._asked}Content-Length: 0\r\n\r\n"
            link.sendall(answer.encode("latin-1"))


def enter(door: Callable[[socket.socket], None], user: str = URL_USER) -> None:
    with RawServer(door) as server:
        stream = HttpStream(f"http://{user}127.0.0.1:{server.port}/live?x=1", "cam")
        try:
            stream.open(10)
        finally:
            stream.close()


@pytest.mark.parametrize(
    ("asked", "kind", "algorithm"),
    [
        (['Basic realm="c"'], b"Basic", None),
        (['Digest realm="c", nonce="n"'], b"Digest", None),
        (['Digest realm="c", nonce="n", algorithm=MD5, qop="auth"'], b"Digest", "MD5"),
        (['Digest realm="c", nonce="n", algorithm=MD5-sess, qop="auth"'], b"Digest", "MD5-sess"),
        (['Digest realm="c", nonce="n", algorithm=MD5-sess'], b"Digest", "MD5-sess"),
        (['Digest realm="c", nonce="n", algorithm=SHA-256, qop=auth'], b"Digest", "SHA-256"),
        (
            ['Digest realm="c", nonce="n", algorithm=SHA-256-sess, qop="auth"'],
            b"Digest",
            "SHA-256-sess",
        ),
        (['Digest realm="c", nonce="n", qop="auth-int,auth"'], b"Digest", None),
        (
            ['Digest realm="c", nonce="n", algorithm=SHA-256', 'Digest realm="c", nonce="n"'],
            b"Digest",
            "SHA-256",
        ),
        (
            ['Digest realm="c", nonce="n"', 'Digest realm="c", nonce="n", algorithm=SHA-256'],
            b"Digest",
            "SHA-256",
        ),
        (['Basic realm="c", Digest realm="c", nonce="n", qop="auth"'], b"Digest", None),
        (['Basic realm="c"', 'Digest nonce="n" , realm = "c"'], b"Digest", None),
        (['Digest realm="c", nonce="n", algorithm=SHA-512-256', 'Basic realm="c"'], b"Basic", None),
        (['Negotiate, Bearer realm="Basic, Digest", Basic realm="c"'], b"Basic", None),
        (['bASIC realm="c", charset="UTF-8"'], b"Basic", None),
    ],
)
def test_a_login_is_answered_as_it_is_asked_for(
    asked: list[str], kind: bytes, algorithm: str | None
) -> None:
    door = Door(*asked)
    enter(door)
    first, second = door.told
    assert first == b""  # nothing before it is asked for
    assert second.startswith(kind)
    assert fields(second).get("algorithm") == algorithm


def test_the_example_of_rfc_2617_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "0a4f113b")
    asked = (
        'Digest realm="testrealm@host.com", qop="auth,auth-int", '
        'nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093", opaque="5ccc069c403ebaf9f0171e9517f40e41"'
    )
    told = challenge.answer([asked], b"Mufasa", b"Circle Of Life", "/dir/index.html")
    assert told is not None
    assert fields(told)["response"] == "6629fae49393a05397450978507c4ef1"
    assert fields(told)["opaque"] == "5ccc069c403ebaf9f0171e9517f40e41"


@pytest.mark.parametrize(
    ("asked", "user", "blame"),
    [
        ([], URL_USER, r"a kind of login that is not known here \(none\)"),
        (["Bearer"], URL_USER, r"not known here \(bearer\)"),
        (["Digest foo"], URL_USER, "not known here"),
        (['Digest realm=, nonce="x", algorithm=SHA-512-256'], URL_USER, r"not known .*digest"),
        (['Digest realm="x", nonce="y", qop="auth-int"'], URL_USER, r"not known here \(digest\)"),
        (['Digest realm="x', '"""===,,,=\x80"'], URL_USER, "not known here"),
        (['Basic realm="c"'], "", "it asks for a user and a password"),
        (['Basic realm="c"'], "somebody:else@", "the user or the password is wrong"),
        (['Digest realm=, nonce="x"'], URL_USER, "the user or the password is wrong"),
    ],
)
def test_the_right_thing_is_blamed(asked: list[str], user: str, blame: str) -> None:
    with pytest.raises(SourceError, match=f"^cam: .*{blame}"):
        enter(Door(*asked), user)


def test_hostile_challenges_take_no_time_and_end_no_header() -> None:
    hostile = ['Digest realm="' + '\\"' * 30_000, "a=" * 30_000, ", " * 30_000, '"' * 60_000]
    assert challenge.answer(hostile, b"u", b"p", "/") is None
    asked = 'Digest realm="a\r\n b\x00\\"", nonce="n"'
    told = challenge.answer([asked], b"u\r\nX: 1", b"p", "/")
    assert told is not None
    assert not re.search(rb"[\x00-\x1f]", told)
    assert rb'realm="a   b \""' in told


def leads_to(url: str) -> Callable[[socket.socket], None]:
    def answer(link: socket.socket) -> None:
        read_head(link)
        link.sendall(f"HTTP/1.1 302 F\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n".encode())

    return answer


def test_another_port_is_not_told_the_password() -> None:
    door = Door('Basic realm="c"')
    with RawServer(door) as other:
        target = f"http://{URL_USER}127.0.0.1:{other.port}/live"
        with pytest.raises(SourceError, match=r"another address, which asks for a user"):
            enter(leads_to(target))
    assert door.told == [b""]


def test_http_is_not_told_the_password_of_https(
    monkeypatch: pytest.MonkeyPatch, certificate: tuple[str, str]
) -> None:
    """The scheme belongs to the origin, even where the host and the port are the same."""
    door = Door('Basic realm="c"')
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    monkeypatch.setenv("SSL_CERT_FILE", certificate[0])

    def either(link: socket.socket) -> None:
        # A handshake begins with 0x16, a request with a letter.
        if link.recv(1, socket.MSG_PEEK) == b"\x16":
            with context.wrap_socket(link, server_side=True) as secure:
                leads_to(f"http://127.0.0.1:{server.port}/live")(secure)
        else:
            door(link)

    with RawServer(either) as server:
        stream = HttpStream(f"https://{URL_USER}127.0.0.1:{server.port}/live", "cam")
        with pytest.raises(SourceError, match="another address, which asks for a user"):
            stream.open(10)
    assert door.told == [b""]


@pytest.mark.parametrize(
    ("target", "blame"),
    [
        ("http://[", "no HTTP address"),
        ("http://127.0.0.1:99999999/", "no HTTP address"),
        ("http://a..b/", "cannot be reached: no host can have this name"),
        ("http://" + "a" * 70 + ".com/", "cannot be reached"),
        ("file:///etc/passwd", "no HTTP address"),
        ("", "HTTP status 302"),
        ("/again", "from one address to another"),
    ],
)
def test_a_redirect_to_nowhere_is_told(target: str, blame: str) -> None:
    with pytest.raises(SourceError, match=blame):
        enter(leads_to(target))
