"""Requests that were made to do harm, from a seed: as the bytes that go over the socket.

Some are no HTTP, some no JSON, some of the wrong form at some depth; some name documents, corpora
and scopes that are not theirs, try the keys of others, or leave in the middle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hostile_values import WIDENING, Values

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    Body = dict[str, Any]

_WITH_KEY = 0.95


@dataclass(frozen=True, slots=True)
class Attack:
    """One request."""

    kind: str
    data: bytes
    leaves: bool = False
    """Whether the client goes away without reading the answer."""

    is_http: bool = True
    """Whether an application ever sees it; what is no HTTP is answered in plain text."""


class Attacker(Values):
    """Makes attacks.

    Args:
        chance: Where all randomness comes from.
        key: The attacker's own key.
        others: Hashes, beginnings and names of keys that are not the attacker's.
    """

    def __init__(self, chance: random.Random, key: str, others: tuple[str, ...]) -> None:
        super().__init__(chance)
        self._key = key
        self._others = others
        self._kinds: tuple[Callable[[], Attack], ...] = (
            *(self._form, self._form, self._form, self._scope, self._scope, self._form_bytes),
            *(self._path, self._head, self._chunks, self._upload, self._rows, self._key_of_others),
            *(self._no_http, self._leaving),
        )

    def attack(self) -> Attack:
        """Returns the next one."""
        return self.one(self._kinds)()

    # -- Bodies

    def _form(self) -> Attack:
        """A good body with values of any kind at some places, at any depth."""
        method, path, body = self.one(self._good)()
        broken: Any = body
        for _ in range(self._chance.randint(1, 4)):
            broken = self.broken(broken)
        return self._sent("form", method, path, self.json(broken))

    def _scope(self) -> Attack:
        """A good body that asks for more than its key may reach."""
        wide = [
            {"team": "y"},
            {"owner": "heliotrope"},
            {"key": "team", "op": "ne", "value": "x"},
            [{"key": "team", "op": "exists", "value": True}],
            [{"key": "team", "op": "in", "value": ["x", "y"]}],
            {"or": [{"team": "x"}, {"team": "y"}]},
            {"not": {"team": "x"}},
            {"$or": [{"team": {"$ne": "x"}}]},
        ]
        bounds = self.one([*wide, self.value(0)])
        widening = {name: self.one([bounds, "two", "*", None]) for name in self.some(WIDENING)}
        method, path, body = self.one(self._good)()
        if path == "/v1/chat/completions":
            body["ragchat"] = {"filter": bounds, **self.one([{}, widening])}
        elif method == "PUT":
            body["metadata"] = self.one([bounds, {"team": "y"}, {"TEAM": "y", "team ": "y"}])
        else:
            body["filter"] = bounds
        body |= self.one([{}, widening])
        return self._sent("scope", method, path, self.json(body))

    def _form_bytes(self) -> Attack:
        """Bytes that are no JSON, or JSON that hardly anybody expects."""
        good = self.json(self.one(self._good)()[2])
        deep = self.one([10, 500, 5000, 100_000])
        made = [
            good[: self._chance.randint(0, len(good))],
            bytes(self._chance.choices(range(256), k=self._chance.randint(0, 200))),
            b"[" * deep,
            b'{"messages":' * deep + b"1" + b"}" * deep,
            b'{"query":"' + b"x" * deep * 10 + b'"}',
            b'{"query":"leave","top_k":1%b}' % (b"0" * self.one([2, 30, 4400])),
            b'{"query":"leave","top_k":1e%d}' % self.one([1, 400, 10**9]),
            b'{"query":"leave","top_k":NaN}',
            b'{"query":"\\ud800","filter":{"\\udfff":"\\udc00"}}',
            good.replace(b"{", b'{"query":"a","query":"b","filter":{},"filter":{"team":"y"},', 1),
            b"\xef\xbb\xbf" + good,
            good.decode("utf-8").encode("utf-16"),
            good + b"\0" + good,
            b"null",
            b'"' + good.hex().encode() + b'"',
        ]
        method, path, _ = self.one(self._good)()
        return self._sent("bytes", method, path, self.one(made))

    @property
    def _good(self) -> tuple[Callable[[], tuple[str, str, Body]], ...]:
        return self._chat, self._chat, self._search, self._put, self._answer

    def _chat(self) -> tuple[str, str, Body]:
        asked = {"role": "user", "content": self.text()}
        called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        rounds = [
            asked,
            {"role": "assistant", "content": None, "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "c", "content": "11"},
        ]
        body = {
            "model": self.text(),
            "messages": self.one([[asked], rounds]),
            "stream": self.one([True, False]),
            "stream_options": {"include_usage": True},
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
            "n": 1,
            "ragchat": {"filter": {"n": 1}, "top_k": 3, "sources_event": True},
        }
        kept = {name: body[name] for name in self.some([*body])}
        return "POST", "/v1/chat/completions", {"messages": body["messages"], **kept}

    def _search(self) -> tuple[str, str, Body]:
        body = {"query": self.text(), "top_k": 3, "filter": {"n": 1}, "explain": True}
        kept = {name: body[name] for name in self.some([*body])}
        return "POST", "/v1/search", {"query": body["query"], **kept}

    def _answer(self) -> tuple[str, str, Body]:
        body: Body = {"messages": [{"role": "user", "content": self.text()}], "top_k": 2}
        return "POST", "/v1/ragchat/answer", body

    def _put(self) -> tuple[str, str, Body]:
        text = self.one([self.text(), "# A heading\n\nLeave of a year.\n\n" * 3])
        body: Body = {"text": text, "title": self.text(), "metadata": {"n": 1, "team": "x"}}
        return "PUT", f"/v1/documents/{quote(self.id(), safe=self.one(['', '/']))}", body

    # -- Everything around them

    def _path(self) -> Attack:
        """Paths that lead out, end early or name what is not theirs."""
        name = self.id()
        raw = [quote(name, safe=""), quote(name), quote(quote(name, safe=""), safe="")]
        named = self.one([*raw, "%2e%2e%2f" + raw[0], "..%5c" + raw[0], raw[0] + "%00", "%ff%fe"])
        about = f"start={self.number()}&end={self.number()}&around={self.number()}"
        paging = f"limit={self.number()}&after={quote(self.text())}"
        parts = [
            f"/v1/documents/{named}",
            f"/v1/documents/{named}?{about}",
            f"/v1/documents?{paging}",
            f"/v1/documents/../documents/{named}",
            f"//v1//documents//{named}",
            f"/V1/documents/{named}",
            f"/v1/documents;x=y/{named}",
            f"/v1/models/{named}",
            f"/static/page/{self.one(['..', '%2e%2e', '.%00', '%5c..'])}/app.py",
            f"/static/component/{'../' * 9}etc/passwd",
            f"/{named}",
            f"http://server/v1/documents/{named}",
            "/v1/ragchat/info?" + "a=b&" * self.one([1, 200]),
            "/metrics",
            "/openapi.json",
            "/v1",
            "*",
        ]
        methods = [
            "GET",
            "GET",
            "DELETE",
            "HEAD",
            "POST",
            "PUT",
            "PATCH",
            "OPTIONS",
            "TRACE",
            "get",
        ]
        body = self.one([b"", self.json(self.value(0))])
        return self._sent("path", self.one(methods), self.one(parts), body)

    def _head(self) -> Attack:
        """Headers twice, false, or huge."""
        odd = [
            (
                "content-type",
                self.one(["text/plain", "application/json; charset=utf-16", "", "a/" * 400]),
            ),
            ("content-encoding", self.one(["gzip", "br", "x" * 100])),
            ("host", self.one(["evil.example", "", "127.0.0.1:99999", "[::1", "a" * 3000])),
            ("origin", self.one(["https://evil.example", "null", "http://", "x"])),
            ("x-forwarded-for", "127.0.0.1"),
            ("x-forwarded-prefix", "/v1"),
            ("x-http-method-override", "DELETE"),
            ("x-original-url", "/v1/documents/foreign"),
            ("range", self.one(["bytes=0-", "bytes=-1", "bytes=9-1,0-0"])),
            ("accept", self.one(["text/event-stream", "*/*;q=x", "\x7f"])),
            ("content-length", self.one(["0", "1", "99999999999999999999", "-1", "1, 1", "+1"])),
            ("transfer-encoding", self.one(["gzip", "identity", "chunked, chunked"])),
            ("if-modified-since", "x"),
            ("connection", self.one(["upgrade", "keep-alive", ""])),
            ("upgrade", self.one(["websocket", "h2c"])),
            ("cookie", "x=" + "y" * self.one([1, 5000])),
            ("expect", self.one(["100-continue", "200-ok"])),
            ("x-" + "n" * 200, self.text().encode("unicode_escape").decode()),
            ("x", "v" * self.one([1, 70_000])),
        ]
        method, path, body = self.one(self._good)()
        chosen = [self.one(odd) for _ in range(self._chance.randint(1, 4))]
        return self._sent("headers", method, path, self.json(body), *chosen)

    def _chunks(self) -> Attack:
        """A body in pieces of any size, or with an end that is none."""
        method, path, body = self.one(self._good)()
        rest, pieces = self.json(body), []
        while rest:
            size = self._chance.randint(1, len(rest))
            pieces.append(b"%x\r\n%b\r\n" % (size, rest[:size]))
            rest = rest[size:]
        broken = [b"zz\r\n\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n", b"5\r\nabc", b"\r\n"]
        end = self.one([b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", self.one(broken)])
        extra = self.one([[], [], [("content-length", "5")]])
        usual = [("content-type", "application/json"), ("transfer-encoding", "chunked")]
        head = self._lines(method, path, [*usual, *extra])
        return Attack("chunks", head + b"".join(pieces) + end, is_http=False)

    def _upload(self) -> Attack:
        """A form with names that lead out, broken parts, or none."""
        names = [
            "../../etc/x.md",
            "/etc/x.md",
            "a\\..\\b.md",
            "x" * 300,
            "c:x",
            "a.md",
            "%00",
            "",
            "a/b/c.md",
            "..",
            ".",
            "nul\0.md",
            "foreign.md",
            "é日🙂.md",
            "a.pdf",
            "b.docx",
        ]
        content = [b"# A heading\n\nText.", b"\xff\xfe\x00", b"%PDF-1.7 broken", b"PK\3\4", b""]
        parts = b"".join(
            b'--x\r\nContent-Disposition: form-data; name="%b"; filename="%b"\r\n%b\r\n%b\r\n'
            % (
                self.one([b"file", b"file", b"files", b"root", b""]),
                self.one(names).encode(),
                self.one([b"", b"Content-Type: text/html\r\n", b"Content-Type\r\n"]),
                self.one(content),
            )
            for _ in range(self._chance.randint(0, 4))
        )
        root = self.one(["uploads", "..", "/", "foreign", "a/b", "", "\0", self.text()])
        field = b'--x\r\nContent-Disposition: form-data; name="root"\r\n\r\n%b\r\n'
        body = parts + self.one([b"", field % root.encode()]) + self.one([b"--x--\r\n", b"", b"--"])
        kind = self.one(
            ["; boundary=x", "; boundary=x", "", "; boundary=", "; boundary=x; charset=utf-7"]
        )
        told = self.one([[], [("accept", "text/event-stream")]])
        typed = ("content-type", "multipart/form-data" + kind)
        return self._sent("upload", "POST", "/v1/documents", body, typed, *told)

    def _rows(self) -> Attack:
        """An upload of records whose ids and metadata are not theirs to write."""
        rows = [
            {"_id": self.id(), "text": self.text(), "metadata": self.one([{"team": "y"}, {}])},
            {"_id": "../" + self.id(), "text": "leave", "metadata": self.value(0)},
            self.value(0),
        ]
        lines = b"\n".join(self.json(self.one(rows)) for _ in range(self._chance.randint(1, 4)))
        name = self.one(["r.jsonl", "foreign", "r.jsonl.gz"])
        head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        typed = ("content-type", "multipart/form-data; boundary=x")
        return self._sent(
            "rows", "POST", "/v1/documents", head.encode() + lines + b"\r\n--x--\r\n", typed
        )

    def _key_of_others(self) -> Attack:
        """Keys that are none, or what is known of others."""
        tried = self.one([*self._others, "", self._key[:-1], self._key + "x", "é", "x" * 5000])
        ways = ["Bearer ", "bearer  ", "Basic ", "", "Bearer\t", "Bearer Bearer "]
        method, path, body = self.one(self._good)()
        line = ("authorization", self.one(ways) + tried)
        return self._sent("keys", method, path, self.json(body), line)

    def _no_http(self) -> Attack:
        """Bytes that are no request."""
        made = [
            bytes(self._chance.choices(range(256), k=self._chance.randint(1, 300))),
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"POST /v1/search HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
            b"GET /\x00 HTTP/1.1\r\nhost: x\r\n\r\n",
            b"G" * 70_000,
            b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000,
            b"GET / HTTP/1.1\r\nhost: x\r\n a: folded\r\n\r\n",
        ]
        return Attack("no http", self.one(made), is_http=False)

    def _leaving(self) -> Attack:
        """A good request of which a part is sent, or whose answer nobody takes."""
        method, path, body = self.one(self._good)()
        data = self._sent("leaving", method, path, self.json(body)).data
        cut = self.one([len(data), self._chance.randint(1, len(data))])
        return Attack("leaving", data[:cut], leaves=True)

    def _sent(
        self, kind: str, method: str, path: str, body: bytes, *headers: tuple[str, str]
    ) -> Attack:
        names = {name for name, _ in headers}
        usual = [("content-type", "application/json"), ("content-length", str(len(body)))]
        lines = [*(line for line in usual if line[0] not in names), *headers]
        return Attack(kind, self._lines(method, path, lines) + body, is_http=kind != "headers")

    def _lines(self, method: str, path: str, headers: list[tuple[str, str]]) -> bytes:
        usual = {"host": "127.0.0.1", "connection": "close"}
        if self._chance.random() < _WITH_KEY:
            usual["authorization"] = f"Bearer {self._key}"
        named = {name for name, _ in headers}
        lines = [*((name, usual[name]) for name in usual if name not in named), *headers]
        text = "".join(f"{name}: {value}\r\n" for name, value in lines)
        return f"{method} {path} HTTP/1.1\r\n{text}\r\n".encode("utf-8", "replace")
