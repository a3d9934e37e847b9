"""Hostile requests: what a stranger, or a stranger's web page, might send to a dashboard."""

# ruff: noqa: SIM905  a table of words is read more easily than a list of strings

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from serving import request

CANARY = "CANARY-3f9a77"
SCRIPT = "<script>alert(1)</script>"

UP = r"""
../ ..%2f %2e%2e/ %2e%2e%2f .%2e/ %2e.%2f ..%5c %2e%2e%5c %252e%252e%252f ..%252f %25252e%25252e%25252f
%c0%ae%c0%ae/ ..%c0%af %c0%ae%c0%ae%c0%af %e0%80%ae%e0%80%ae/ %f0%80%80%ae%f0%80%80%ae/ %uff0e%uff0e/
%u002e%u002e%u2215 ..;/ ....// ..././ ..%00/ %00../ ..%0d%0a/ ..%09/ /../ //../ ./../ ..%ef%bc%8f
""".split()
UP += ["..\\", "ï¼\x8eï¼\x8e/"]
STARTS = ["/", "/static/", "/static/page/", "/api/runs/", "/api/runs/{run}/pictures/", "/api/runs/{run}/"]
HOSTS = r"""
evil.example evil.example:{port} localhost.evil.example 127.0.0.1.evil.example evil-localhost
localhost@evil.example evil.example#localhost localhost,evil.example 127.0.0.2 127.1 0.0.0.0:{port} 2130706433
0x7f000001 017700000001 [::ffff:127.0.0.1] [::] [::1 ::1 localhost. localhost:{port}:80 localhost:
localhost:port localhost:999999 localhost:-1 http://localhost / * . rebind.network:{port} 10.0.0.5
192.168.1.7:{port} 169.254.169.254 metadata.google.internal xn--lclhost-1za LOCALHOST.evil {run}
""".split()
HOSTS += ["localhost evil.example", "lo\x01calhost", "localhost\x7f", "lôcalhost"]
ORIGINS = r"""
http://evil.example https://localhost.evil.example null file:// http://localhost:1
http://localhost:{port}.evil.example http://evil.example:{port} https://127.0.0.1.nip.io
chrome-extension://abc data: javascript:alert(1) http://localhost:{port}@evil.example http://[::1
localhost:{port} http://127.0.0.1:1
""".split()
ORIGINS += [" "]
FETCHES = [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
           {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
           {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
           {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
           {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
           {"Sec-Fetch-Site": "made-up"}]  # fmt: skip
METHODS = r"""
POST PUT DELETE PATCH OPTIONS TRACE CONNECT PROPFIND MKCOL COPY MOVE LOCK PURGE BREW get Get GETS HEADER DEBUG
LINK
""".split()
WORDS = r"""
abc NaN inf -inf 1e999 1.5 0x10 1_000 %00 %0d%0aSet-Cookie:a=b null [] {} true
9999999999999999999999999999999999999999 -9999999999999999999999999999999999999999
%3Cscript%3Ealert(1)%3C/script%3E ../../etc/passwd %25s%25n $(id) `id` {{7*7}}
""".split()
WORDS += ["９", "1;DROP TABLE reading", "1' OR '1'='1"]
NAMES = r"""
<script>alert(1)</script> %3Cscript%3Ealert(1)%3C%2Fscript%3E
%27%20UNION%20SELECT%20sql%20FROM%20sqlite_schema-- ../../record.sqlite %00 %ff%fe loss/mean%00 % %zz
loss/mean;id ..%2f..%2fetc%2fpasswd file:///etc/passwd %0a%0aevent:%20delta * ?
""".split()
NAMES += ["' OR 1=1 --", "a" * 3000, "," * 2000, "\\\\host\\share"]

BROKEN = ["Content-Length: -1", "Content-Length: 1e9", "X y: 1", "X: a\rb", ": empty", "X\x00: 1"]
STATIC = """
index.html%00.png index.html/ index.html/.. INDEX.HTML .hidden __init__.py ../app.py ..%2fapp.py %2e%2e/guard.py
//etc/passwd style/../../app.py index.html::$DATA
""".split()


@dataclass(frozen=True, slots=True)
class Hostile:
    kind: str
    content: bytes
    """The request as it goes over the wire."""
    allowed: frozenset[int]
    """Codes that are an answer to it; 0: the connection is closed."""


REFUSED = frozenset({0, 400, 401, 403, 404, 405, 414, 431})


def table(port: int, run: str, outside: str) -> list[Hostile]:
    """`outside`: the absolute path of a folder with the canary, which lies above the runs."""
    fill = {"{port}": str(port), "{run}": run}

    def filled(words: str) -> str:
        for name, value in fill.items():
            words = words.replace(name, value)
        return words

    return [
        *_traversals(port, filled, outside),
        *_foreigners(port, filled),
        *_methods(port, filled),
        *_oversized(port, filled),
        *_parameters(port, run),
        *_garbage(port, run),
    ]


def _traversals(port: int, filled, outside: str) -> Iterator[Hostile]:
    for start in STARTS:
        for up in UP:
            for depth, target in ((1, "canary.txt"), (4, "canary.png"), (9, "etc/passwd")):
                yield Hostile("traversal", request(filled(start) + up * depth + target, port), REFUSED)
        coded = outside.replace("/", "%2f") + "%2fcanary.txt"
        places = [f"{outside}/canary.txt", f"/{outside}/canary.txt", f"%2f{coded}", f"file://{outside}/canary.txt"]
        for target in (*places, "~root/", ".git/config", "%2e%2e", "..", ".", "con.png"):
            yield Hostile("traversal", request(filled(start) + target, port), REFUSED)
    for name in STATIC:
        yield Hostile("traversal", request(f"/static/{name}", port), REFUSED)


def _foreigners(port: int, filled) -> Iterator[Hostile]:
    paths = ("/", "/api/runs", filled("/api/runs/{run}"))
    for host in HOSTS:
        for path in paths[:2]:
            yield Hostile("host", request(path, port, host=filled(host)), REFUSED)
    yield Hostile("host", request("/", port, host=None), REFUSED)
    yield Hostile("host", request("/", port, headers=[("Host", "evil.example")]), REFUSED)
    yield Hostile("host", request("/", port, host="evil.example", headers=[("X-Forwarded-Host", "localhost")]), REFUSED)
    yield Hostile("host", request("/", port, host="evil.example", headers=[("Forwarded", "host=localhost")]), REFUSED)
    for origin in ORIGINS:
        for path in paths[1:]:
            yield Hostile("origin", request(path, port, headers=[("Origin", filled(origin))]), REFUSED)
    for fetch in FETCHES:
        for path in paths[1:]:
            yield Hostile("origin", request(path, port, headers=list(fetch.items())), REFUSED)
    for path in paths[1:]:  # a link from another site may lead to the first page, and to nothing else
        visit = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]
        yield Hostile("origin", request(path, port, headers=visit), REFUSED)


def _methods(port: int, filled) -> Iterator[Hostile]:
    for method in METHODS:
        for path in ("/", filled("/api/runs/{run}")):
            yield Hostile("method", request(path, port, method=method), REFUSED)
    body = b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
    yield Hostile("method", body, REFUSED)
    override = [("X-HTTP-Method-Override", "DELETE"), ("X-HTTP-Method", "PUT")]
    yield Hostile("method", request("/?_method=DELETE", port, method="POST", headers=override), REFUSED)


def _oversized(port: int, filled) -> Iterator[Hostile]:
    for length in (4_200, 8_000, 30_000, 70_000, 1_000_000):
        yield Hostile("size", request("/" + "a" * length, port), REFUSED)
        yield Hostile("size", request("/api/runs?x=" + "a" * length, port), REFUSED)
        yield Hostile("size", request("/", port, headers=[("X-Long", "a" * length * 5)]), REFUSED)
        yield Hostile("size", request("/", port, headers=[("Cookie", "a=b;" * length * 2)]), REFUSED)
    yield Hostile("size", request("/", port, headers=[(f"X-{n}", "1") for n in range(100)]), REFUSED)
    yield Hostile("size", request("/", port, headers=[(f"X-{n}", "1") for n in range(5000)]), REFUSED)
    yield Hostile("size", request(filled("/api/runs/{run}/series?signals=") + "a," * 1900, port), REFUSED)
    yield Hostile("size", request(filled("/api/compare?runs=") + "0123456789ab," * 300, port), REFUSED)


def _parameters(port: int, run: str) -> Iterator[Hostile]:
    allowed = REFUSED | {200, 422}
    for word in WORDS:
        latin = word.encode().decode("latin-1").replace(" ", "%20")
        for name in ("first", "last", "pixels", "smooth"):
            yield Hostile(
                "parameter",
                request(f"/api/runs/{run}/series?signals=loss/mean&{name}={latin}", port),
                REFUSED if name != "smooth" else allowed,
            )
        yield Hostile("parameter", request(f"/api/delta?run={run}&after={latin}", port), REFUSED)
        yield Hostile("parameter", request(f"/api/delta?run={latin}", port), REFUSED)
        yield Hostile("parameter", request(f"/api/delta?run={run}&version={latin}", port), allowed)
        yield Hostile("parameter", request(f"/api/compare?runs={latin}", port), REFUSED)
    for name in NAMES:
        latin = name.encode().decode("latin-1").replace(" ", "%20")
        yield Hostile("parameter", request(f"/api/runs/{run}/series?signals={latin}", port), allowed)
        yield Hostile("parameter", request(f"/api/runs/{latin}", port), REFUSED)
        yield Hostile("parameter", request(f"/api/runs/{run}/pictures/{latin}", port), REFUSED)
        yield Hostile("parameter", request(f"/{latin}", port), REFUSED | {200})
    for query in (
        "pixels=0",
        "pixels=-5",
        "pixels=99999999",
        "first=5&last=1",
        "first=1&first=2",
        "smooth=-1",
        "smooth=1e300",
    ):
        yield Hostile("parameter", request(f"/api/runs/{run}/series?signals=loss/mean&{query}", port), REFUSED)
        yield Hostile("parameter", request(f"/api/runs/{run}/heatmap?{query}", port), REFUSED)


def _garbage(port: int, run: str) -> Iterator[Hostile]:
    """No HTTP at all, or HTTP that is broken. HOST stands for a right header."""
    host = f"Host: localhost:{port}\r\n"
    lines = [
        *("", "\r\n\r\n", "GET\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/0.9\r\n\r\n"),
        *(
            f"GET{target} HTTP/1.1\r\nHOST\r\n"
            for target in ("  /", " /\t", " /\x00", f" /api/runs/{run}\x00", " /\xff\xfe")
        ),
        *(f"GET / HTTP/1.1\r\nHOST{line}\r\n\r\n" for line in BROKEN),
        *(f"GET {target} HTTP/1.1\r\nHOST\r\n" for target in ("file:///etc/passwd", "*", "?x", "http://evil.example/")),
        "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET /%0d%0aSet-Cookie:%20a=b HTTP/1.1\r\nHOST\r\n",
        "GET / HTTP/1.1\r\nHOSTContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "\x00" * 100,
        *("SSH-2.0-OpenSSH_9\r\n", "\x00" * 500, "{" * 500, "EHLO localhost\r\n"),
    ]
    for line in lines:
        yield Hostile("garbage", line.replace("HOST", host, 1).encode("latin-1"), REFUSED)
