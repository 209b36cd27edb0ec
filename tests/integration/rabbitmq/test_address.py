"""Parsing of broker URLs."""

from __future__ import annotations

from typing import Any

import pytest

from rune.adapters.rabbitmq.amqp.connection import parse_address
from rune.adapters.rabbitmq.amqp.errors import InvalidAddressError
from rune.bootstrap.rabbitmq import RabbitComponents
from rune.ports.processes import ProcessInfo
from rune.settings import Settings


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://", ("localhost", 5672, "guest", "guest", "/", False)),
        ("amqp://host", ("host", 5672, "guest", "guest", "/", False)),
        ("amqp://host/", ("host", 5672, "guest", "guest", "/", False)),
        ("amqps://u:p@host/v", ("host", 5671, "u", "p", "v", True)),
        ("amqp://we%2Fird:p%40ss%3A@h:1/a%2Fb", ("h", 1, "we/ird", "p@ss:", "a/b", False)),
        ("amqp://u:@[::1]:7/%2F", ("::1", 7, "u", "", "/", False)),
    ],
)
def test_url_parts_are_parsed(url: str, expected: tuple[object, ...]) -> None:
    found = parse_address(url)

    assert (found.host, found.port, found.user, found.password, found.vhost, found.secure) == expected


def test_url_options_are_parsed() -> None:
    found = parse_address("amqp://h/v?heartbeat=5&connection_timeout=700&frame_max=4096&channel_max=3")

    assert (found.heartbeat, found.connection_timeout, found.frame_max, found.channel_max) == (
        5,
        700,
        4096,
        3,
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://host",
        "host:5672",
        "amqp://h:port/",
        "amqp://h/a/b",
        "amqp://h/?heartbeat=soon",
        "amqp://h/?heartbeat=-1",
        "amqp://h/?frame_max=100",
        "amqp://h/?hartbeat=1",
        "amqps://h/?verify=maybe",
        "amqp://h/?connection_timeout=0",
        "amqp://[::1",
    ],
)
def test_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(InvalidAddressError):
        parse_address(url)


def test_address_repr_hides_password() -> None:
    found = parse_address("amqp://me:hunter2@host/v")

    assert "hunter2" not in f"{found} {found!r}"


def test_unreadable_certificates_are_rejected() -> None:
    with pytest.raises(InvalidAddressError, match="certificates"):
        parse_address("amqps://h/?cacertfile=nowhere.pem").context()


def test_process_rejects_unknown_url_option() -> None:
    member = ProcessInfo(name="w", host="h", pid=1, roles=("worker",), version="1", started_at=0)

    unused: Any = (None,) * 5

    with pytest.raises(InvalidAddressError, match="`speed` is no option"):
        RabbitComponents(Settings(queue="amqp://host/?speed=9"), member, *unused)
