"""Each service gets the request that it understands, and an address that is none is refused."""

from __future__ import annotations

import json

import pytest
from webhook import webhook

from safelight.errors import UsageError
from safelight.pages.notify.address import parse

MESSAGE = {"event": "died", "run": "dïgits", "text": "Died at step 5."}


@pytest.mark.parametrize(
    ("url", "service", "body"),
    [
        ("https://hooks.slack.com/services/T/B/x", "slack", {"text": "dïgits: Died at step 5."}),
        ("https://discord.com/api/webhooks/1/x", "discord", {"content": "dïgits: Died at step 5."}),
        ("https://example.org/hook?key=1", "json", MESSAGE),
        ("http://127.0.0.1:8080/", "json", MESSAGE),
    ],
)
def test_json_services(url: str, service: str, body: object) -> None:
    found = parse(url)
    request = found.request(MESSAGE)
    assert (found.service, request.full_url, request.get_method()) == (service, url, "POST")
    assert json.loads(request.data or b"") == body  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["ntfy:my-runs", "https://ntfy.sh/my-runs"])
def test_ntfy(url: str) -> None:
    request = parse(url).request(MESSAGE)
    assert (request.full_url, request.data) == ("https://ntfy.sh/my-runs", b"Died at step 5.")
    assert request.get_header("Priority") == "urgent"
    assert (request.get_header("Title") or "").isascii()


@pytest.mark.parametrize(
    "url",
    ["", "me@example.org", "ftp://x/y", "file:///etc/passwd", "https://", "ntfy:", "http://a b", "https://x/\n",
     "https://[::1", "http://x:port/"],
)  # fmt: skip
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(UsageError, match="--notify"):
        parse(url)


def test_what_a_server_answers_is_put_into_words_without_the_secret_part() -> None:
    with webhook(200, 404, 302) as (url, received):
        address = parse(url)
        assert address.send(MESSAGE) is None
        assert address.send(MESSAGE) == "127.0.0.1 answered 404 Not Found"
        assert (address.send(MESSAGE) or "").startswith("127.0.0.1 answered 302")
        assert [received.get_nowait()[0] for _ in range(3)] == ["/hook"] * 3
        assert received.empty(), "no other address was asked"
    gone = address.send(MESSAGE)
    assert gone is not None
    assert "hook" not in gone
