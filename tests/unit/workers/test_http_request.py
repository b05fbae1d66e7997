"""HTTP tasks: what is sent and signed, what an answer means, and which addresses are never connected to."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import aiohttp
import pytest
import standardwebhooks

from app.domain.addresses import is_allowed, networks
from app.domain.endpoint import Endpoint, new_secret
from tests.support.endpoint import Answer, Receiver, receiver
from workers.context import Context
from workers.signals import Rejected, Retry
from workers.tasks.http_request import RESPONSE_LIMIT, Client, seconds_of

JOB = "01a22b71-1d75-740f-a9c2-cdb05c1549c9"
LOOPBACK = ("127.0.0.1",)


@pytest.fixture(scope="module")
def shared() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture
def there(shared: Receiver) -> Receiver:
    shared.requests.clear()
    shared.answers[:] = [Answer()]
    return shared


def send(endpoint: Endpoint, parameters: dict[str, Any] | None = None, allowed: tuple[str, ...] = LOOPBACK) -> Any:
    """What the task returns, or raises."""
    context = Context(1_796_024_945_000_001, JOB, "hook", "ann", 2, None)

    async def run() -> Any:
        client = Client(networks(allowed))
        try:
            return await client.send(endpoint, context, parameters or {})
        finally:
            await client.close()

    return asyncio.run(run())


def test_parameters_are_posted_with_what_the_receiver_needs_to_know(there: Receiver) -> None:
    endpoint = Endpoint(url=there.url, secret=new_secret(), headers={"Authorization": "Bearer theirs", "X-Team": "a"})
    assert send(endpoint, {"to": "jöhn", "n": 1})["status"] == 200
    (request,) = there.requests
    assert (request.method, request.path) == ("POST", "/hook")
    assert json.loads(request.body) == {"to": "jöhn", "n": 1}
    for name, value in {
        "content-type": "application/json",
        "authorization": "Bearer theirs",
        "x-team": "a",
        "idempotency-key": f"1796024945000001-{JOB}",
        "pgtick-execution-id": f"1796024945000001-{JOB}",
        "pgtick-job-id": JOB,
        "pgtick-task-id": "hook",
        "pgtick-attempt": "2",
        "pgtick-scheduled-at": "2026-11-30T07:49:05.000001Z",
    }.items():
        assert request.headers[name] == value, name


def test_the_signature_is_that_of_standard_webhooks(there: Receiver) -> None:
    secret = new_secret()
    send(Endpoint(url=there.url, secret=secret), {"order": 7})
    (request,) = there.requests
    assert standardwebhooks.Webhook(secret).verify(request.body, request.headers) == {"order": 7}
    for other, body in ((new_secret(), request.body), (secret, request.body + b" ")):
        with pytest.raises(standardwebhooks.WebhookVerificationError):
            standardwebhooks.Webhook(other).verify(body, request.headers)


def test_a_request_without_a_body_has_the_parameters_in_its_query(there: Receiver) -> None:
    send(Endpoint(url=there.url + "?a=1", method="GET", secret=new_secret()), {"name": "ä b", "list": [1, 2]})
    (request,) = there.requests
    assert request.path == "/hook?a=1&name=%C3%A4+b&list=%5B1,+2%5D"
    assert request.body == b""


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, None),
        (204, None),
        (299, None),
        (400, Rejected),
        (401, Rejected),
        (404, Rejected),
        (304, Rejected),
        (303, Rejected),
        (408, Retry),
        (425, Retry),
        (429, Retry),
        (500, Retry),
        (503, Retry),
    ],
)
def test_a_status_is_success_or_tried_again_or_final(there: Receiver, status: int, outcome: type | None) -> None:
    there.answers[:] = [Answer(status, {}, b"" if status in (204, 304) else b'{"why": "so"}')]
    endpoint = Endpoint(url=there.url, secret=new_secret())
    if outcome is None:
        assert send(endpoint)["status"] == status
    else:
        with pytest.raises(outcome, match=f"HTTP {status} "):
            send(endpoint)
    assert len(there.requests) == 1


def test_what_a_status_means_can_be_said_otherwise(there: Receiver) -> None:
    endpoint = Endpoint(url=there.url, secret=new_secret(), expected=("404", "2xx"), retried=("409",))
    for status, outcome in ((404, None), (409, Retry), (500, Rejected)):
        there.answers[:] = [Answer(status)]
        if outcome is None:
            assert send(endpoint)["status"] == status
        else:
            with pytest.raises(outcome):
                send(endpoint)


def test_retry_after_is_honoured(there: Receiver) -> None:
    for header, after in (("7", 7.0), (formatdate(time.time() + 60, usegmt=True), 60.0), ("soon", None), (None, None)):
        there.answers[:] = [Answer(503, {} if header is None else {"Retry-After": header})]
        with pytest.raises(Retry) as caught:
            send(Endpoint(url=there.url, secret=new_secret()))
        assert caught.value.after == (after if after is None else pytest.approx(after, abs=2))
    assert seconds_of("Wed, 21 Oct 2015 07:28:00 GMT", time.time()) == 0
    assert seconds_of("-5", 0) is None


def test_the_answer_is_kept_cut_short(there: Receiver) -> None:
    there.answers[:] = [
        Answer(200, {"Content-Type": "application/json"}, b'{"id": 5}'),
        Answer(200, {"Content-Type": "text/plain; charset=latin-1"}, b"gr\xfc\xdfe"),
        Answer(200, {"Content-Type": "application/json"}, b'{"n": NaN}'),
        Answer(200, {"Content-Type": "text/plain"}, b"x" * (RESPONSE_LIMIT + 1)),
        Answer(200, {"Content-Type": "text/plain"}, b"x" * RESPONSE_LIMIT),
    ]
    kept = [send(Endpoint(url=there.url, secret=new_secret())) for _ in range(5)]
    assert [answer["body"] for answer in kept[:3]] == [{"id": 5}, "grüße", '{"n": NaN}']
    assert [(len(answer["body"]), answer["truncated"]) for answer in kept[3:]] == [
        (RESPONSE_LIMIT, True),
        (RESPONSE_LIMIT, False),
    ]


@pytest.mark.parametrize("charset", ["x-unknown", "hex", "idna", "undefined"])
def test_an_encoding_that_is_none_spoils_no_answer(there: Receiver, charset: str) -> None:
    there.answers[:] = [Answer(200, {"Content-Type": f"text/plain; charset={charset}"}, "grüße\xff".encode())]
    assert send(Endpoint(url=there.url, secret=new_secret()))["body"] == "grüße\xff"


def test_numbers_that_cannot_be_stored_are_kept_as_text(there: Receiver) -> None:
    there.answers[:] = [Answer(200, {"Content-Type": "application/json"}, b'{"n": 1e999}')]
    assert send(Endpoint(url=there.url, secret=new_secret()))["body"] == '{"n": 1e999}'


def test_no_connection_is_tried_again(there: Receiver) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(Retry, match="Cannot connect"):
            send(Endpoint(url=f"http://127.0.0.1:{nobody.getsockname()[1]}/", secret=new_secret()))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Names and the addresses they resolve to, instead of those of the real world."""
    known: dict[str, list[str]] = {}

    async def resolve(self: Any, host: str, port: int = 0, family: int = socket.AF_UNSPEC) -> list[dict[str, Any]]:
        if host not in known:
            raise OSError(f"{host} is not known")
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST,
            }
            for address in known[host]
        ]

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", resolve)
    return known


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0.0.0.0",
        "localhost",
        "169.254.169.254",
        "10.0.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00::1]",
    ],
)
def test_addresses_that_are_not_public_are_refused(there: Receiver, host: str) -> None:
    with pytest.raises((Rejected, Retry)) as caught:
        send(Endpoint(url=f"http://{host}:{there.port}/hook", secret=new_secret()), allowed=())
    assert there.requests == []
    if host not in ("127.1", "2130706433", "0x7f000001"):  # names to some resolvers, nothing to others
        assert isinstance(caught.value, Rejected)
        assert "PGTICK_HTTP_ALLOW" in str(caught.value)


def test_a_name_is_refused_for_what_it_resolves_to(there: Receiver, names: dict[str, list[str]]) -> None:
    names["metadata.example"] = ["169.254.169.254"]
    names["here.example"] = ["127.0.0.1", "::1"]
    for name in names:
        with pytest.raises(Rejected, match="PGTICK_HTTP_ALLOW"):
            send(Endpoint(url=f"http://{name}:{there.port}/hook", secret=new_secret()), allowed=())
    assert there.requests == []
    assert send(Endpoint(url=f"http://here.example:{there.port}/hook", secret=new_secret()))["status"] == 200


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_followed_with_the_same_request_but_not_to_where_none_may_go(
    there: Receiver, names: dict[str, list[str]], status: int
) -> None:
    names["other.example"] = ["127.0.0.1"]
    names["metadata.example"] = ["169.254.169.254"]
    endpoint = Endpoint(url=there.url, secret=new_secret(), headers={"Authorization": "only for you"})
    there.answers[:] = [Answer(status, {"Location": f"http://other.example:{there.port}/there"}), Answer(200)]
    assert send(endpoint, {"a": 1})["status"] == 200
    first, second = there.requests
    assert (second.method, second.path, second.body) == ("POST", "/there", first.body)
    assert "authorization" not in second.headers, "another host does not get to know it"
    for target in (
        "http://169.254.169.254/latest",
        "http://metadata.example/",
        "http://[::1]/",
        "file:///etc/passwd",
        "ftp://x/",
        "http://two..dots/",
        f"http://{'a' * 64}.com/",
    ):
        there.answers[:] = [Answer(status, {"Location": target}), Answer(200)]
        with pytest.raises(Rejected):
            send(endpoint)
    there.answers[:] = [Answer(status, {"Location": "/again"})]
    with pytest.raises(Rejected, match="more than 3 times"):
        send(endpoint)


def test_addresses_are_allowed_by_network() -> None:
    allowed = networks(("10.1.0.0/16", "fd00::/8"))
    for address, fine in (
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("10.2.0.1", False),
        ("fd00::1", True),
        ("127.0.0.1", False),
        ("93.184.216.34", True),
        ("2606:4700::1111", True),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("64:ff9b:1::1", False),
        ("fe80::1%eth0", False),
        ("example.com", False),
    ):
        assert is_allowed(address, allowed) == fine, address
