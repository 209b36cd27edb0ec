"""The address guard blocks internal addresses, applies allow lists and resolves a name once."""

from __future__ import annotations

import asyncio
import pathlib
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from rune.errors import NodeFailure
from rune.nodes.io.http_client.ssrf import AddressGuard, AllowListError, Policy, is_public, join_url, target
from rune.nodes.redaction import redacted
from tests.support.io_nodes import ScriptedResolver

LINES = (pathlib.Path(__file__).parent / "ssrf.txt").read_text(encoding="utf-8").split("\n")
BLOCKED_URLS = [line.replace("\\t", "\t") for line in LINES if line and not line.startswith("# ")]
PRIVATE_ADDRESS = "10.0.0.7"


def resolved_addresses(guard: AddressGuard, url: str) -> list[str]:
    """The addresses that the client would connect to."""
    found = guard.check(url)
    if found.literal is not None:
        return [str(found.literal)]
    return [str(each) for each in asyncio.run(guard.addresses(found.host, found.port))]


def test_blocked_url_list_is_complete() -> None:
    assert len(set(BLOCKED_URLS)) >= 300


@pytest.mark.parametrize("url", BLOCKED_URLS)
def test_blocked_url_is_rejected(url: str) -> None:
    with pytest.raises(NodeFailure) as failure:
        resolved_addresses(AddressGuard(resolve=ScriptedResolver([PRIVATE_ADDRESS])), url)

    assert failure.value.code == "HTTP_BLOCKED"


@pytest.mark.parametrize(
    ("url", "requested"),
    [
        ("http://example.com", "http://example.com/"),
        ("HTTPS://Example.COM:443/a?b=c#d", "https://example.com/a?b=c"),
        ("http://example.com:8080/a b".replace(" ", "%20"), "http://example.com:8080/a%20b"),
        ("https://example.com./", "https://example.com/"),
        ("https://bücher.example/ü?q=ä", "https://xn--bcher-kva.example/%C3%BC?q=%C3%A4"),
        ("http://8.8.8.8/", "http://8.8.8.8/"),
        ("http://[2606:4700:4700::1111]:8443/x", "http://[2606:4700:4700::1111]:8443/x"),
        ("http://a_b.example.com/x@y:z", "http://a_b.example.com/x@y:z"),
        ("http://example.com?next=http://127.0.0.1/", "http://example.com/?next=http://127.0.0.1/"),
        ("http://1.2.3.4.example.com/", "http://1.2.3.4.example.com/"),
    ],
)
def test_public_url_is_accepted_and_normalized(url: str, requested: str) -> None:
    guard = AddressGuard(resolve=ScriptedResolver(["93.184.216.34", "2606:2800:220:1::1"]))

    assert resolved_addresses(guard, url)
    assert guard.check(url).url == requested


@pytest.mark.parametrize("bad", ["10.0.0.1", "::1", "::ffff:8.8.8.8", "fe80::1%eth0", "169.254.169.254"])
def test_one_private_address_blocks_name(bad: str) -> None:
    guard = AddressGuard(resolve=ScriptedResolver(["93.184.216.34", bad]))

    with pytest.raises(NodeFailure, match="is not a public address"):
        resolved_addresses(guard, "http://example.com/")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://internal.example:18790/x", "internal.example:18790"),
        ("https://internal.example/x", "internal.example"),
    ],
)
@pytest.mark.parametrize("policy", ["public_only", "allow"])
def test_message_names_host_and_port_but_not_the_address(url: str, shown: str, policy: Policy) -> None:
    guard = AddressGuard(policy, ["192.0.2.0/24"], ScriptedResolver([PRIVATE_ADDRESS]))

    with pytest.raises(NodeFailure) as failure:
        resolved_addresses(guard, url)

    assert failure.value.message.startswith(
        f"{shown} is blocked: its name resolves to an address that is not"
    )
    assert PRIVATE_ADDRESS not in failure.value.message


def test_name_is_resolved_once() -> None:
    resolver = ScriptedResolver(["93.184.216.34"], [PRIVATE_ADDRESS])

    assert resolved_addresses(AddressGuard(resolve=resolver), "http://example.com/") == ["93.184.216.34"]
    assert resolver.hosts == ["example.com"]


def test_name_without_addresses_raises() -> None:
    with pytest.raises(OSError, match="no address"):
        resolved_addresses(AddressGuard(resolve=ScriptedResolver([])), "http://example.com/")


@pytest.mark.parametrize(
    ("policy", "allow", "url", "passes"),
    [
        ("public_only", ["127.0.0.1"], "http://127.0.0.1:9/", True),
        ("public_only", ["127.0.0.1"], "http://127.0.0.2/", False),
        ("public_only", ["127.0.0.0/8"], "http://127.0.0.2/", True),
        ("public_only", ["127.0.0.0/8"], "http://[::ffff:127.0.0.1]/", False),
        ("public_only", ["127.0.0.0/8"], "http://127.1/", False),
        ("public_only", ["[::1]"], "http://[::1]/", True),
        ("public_only", ["vault.internal"], "http://vault.internal/", True),
        ("public_only", ["vault.internal"], "http://VAULT.internal./", True),
        ("public_only", ["vault.internal"], "http://a.vault.internal/", False),
        ("public_only", ["*.internal"], "http://a.vault.internal/", True),
        ("public_only", ["*.internal"], "http://internal/", False),
        ("public_only", ["10.0.0.0/24"], "http://any.example/", True),
        ("public_only", ["localhost"], "http://localhost/", True),
        ("public_only", [" ", "10.0.0.7 "], "http://10.0.0.7/", True),
        ("public_only", [], "http://8.8.8.8/", True),
        ("allow", [], "http://8.8.8.8/", False),
        ("allow", ["8.8.8.0/24"], "http://8.8.8.8/", True),
        ("allow", ["8.8.8.0/24"], "http://any.example/", False),
        ("allow", ["api.example"], "http://api.example/", True),
        ("allow", ["api.example"], "http://any.example/", False),
        ("open", [], "http://127.0.0.1/", True),
        ("open", [], "http://localhost/", True),
        ("open", [], "http://any.example/", True),
        ("open", [], "http://user@example.com/", False),
        ("open", [], "file:///etc/passwd", False),
        ("open", [], "http://0x7f.0.0.1/", False),
    ],
)
def test_policy_and_allow_list_decide(policy: Policy, allow: list[str], url: str, passes: bool) -> None:
    guard = AddressGuard(policy, allow, ScriptedResolver([PRIVATE_ADDRESS]))
    try:
        resolved_addresses(guard, url)
        passed = True
    except NodeFailure:
        passed = False

    assert passed is passes


@pytest.mark.parametrize("entry", ["http://x", "a b", "127.1", "10.0.0.0/99", "*", "*.", "x:80", "exa$mple"])
def test_invalid_allow_list_entry_is_rejected(entry: str) -> None:
    with pytest.raises(AllowListError):
        AddressGuard(allow=[entry])


@pytest.mark.parametrize("url", ["http://a.example/x", "https://a.example/x"])
@pytest.mark.parametrize(
    "location", ["//127.0.0.1/", "http://[::1]/", "\\\\127.0.0.1/", "http://x@y/", "file:///x"]
)
def test_redirect_target_is_checked(url: str, location: str) -> None:
    with pytest.raises(NodeFailure):
        AddressGuard().check_target(join_url(target(url), location))


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/y", "https://a.example/y"),
        ("y?z", "https://a.example/b/y?z"),
        ("//c.example", "https://c.example/"),
    ],
)
def test_relative_redirect_is_joined(location: str, url: str) -> None:
    assert join_url(target("https://a.example/b/x"), location).url == url


@pytest.mark.parametrize(
    "text", ["1.1.1.1", "9.9.9.9", "172.32.0.1", "100.128.0.1", "2a00:1450::1", "2600::1"]
)
def test_public_address_is_public(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:p@example.com/x", "https://***@example.com/x"),
        ("https://u:p@q@example.com/x@y", "https://***@example.com/x@y"),
        ("https://e.com/?a=1&api_key=s3&B=2", "https://e.com/?a=1&api_key=***&B=2"),
        (
            "https://e.com/?X-Amz-Signature=s3#access_token=t",
            "https://e.com/?X-Amz-Signature=***#access_token=***",
        ),
        ("https://e.com/\x1b[31m", "https://e.com/ [31m"),
    ],
)
def test_redacted_url_hides_secrets(url: str, shown: str) -> None:
    assert redacted(url) == shown


def test_rejection_message_hides_secrets() -> None:
    with pytest.raises(NodeFailure) as failure:
        target("http://user:hunter2@example.com/?token=abc")

    assert "hunter2" not in failure.value.message
    assert "abc" not in failure.value.message
    assert "example.com" in failure.value.message


ODD_HOSTS = st.text(st.sampled_from(list("0127.:[]@%#?/\\xaf-_é①。 ")), max_size=24)


@given(ODD_HOSTS, st.sampled_from(["http://", "https://", "HTTP://", ""]), st.text(max_size=8))
def test_accepted_url_parses_equally_in_yarl(host: str, scheme: str, rest: str) -> None:
    try:
        found = target(f"{scheme}{host}/{rest}")
    except NodeFailure:
        return

    assert target(found.url) == found
    url = URL(found.url, encoded=True)
    assert (url.scheme, url.raw_host, url.port, url.user) == (found.scheme, found.host, found.port, None)
