"""TLS: what an address of Redis says about certificates.

`rediss://user:password@host:port/0?option=value`, every part percent-encoded. Options, as clients of Redis name them:
`ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_cert_reqs` (`required` or `none`), `ssl_check_hostname` (`true` or
`false`). Without `ssl_ca_certs` the authorities of the system are trusted.
"""

from __future__ import annotations

import ssl
from urllib.parse import SplitResult, parse_qsl

from rune.errors import RuneError

CHOICES = {"ssl_cert_reqs": ("required", "none"), "ssl_check_hostname": ("true", "false")}
FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class BadAddress(RuneError):
    """An address that cannot be used."""

    code = "BAD_ADDRESS"


def context(url: SplitResult) -> ssl.SSLContext | None:
    """How the connection is encrypted; None if it is not."""
    if url.scheme != "rediss":
        return None
    given = _options(url.query)
    try:
        made = ssl.create_default_context(cafile=given.get("ssl_ca_certs") or None)
        if given.get("ssl_certfile"):
            made.load_cert_chain(given["ssl_certfile"], given.get("ssl_keyfile") or None)
    except OSError as error:
        raise BadAddress(f"{place(url)}: the certificates cannot be read: {error}") from None
    unchecked = given.get("ssl_cert_reqs") == "none"
    if unchecked or given.get("ssl_check_hostname") == "false":
        made.check_hostname = False
    if unchecked:
        made.verify_mode = ssl.CERT_NONE
    return made


def _options(query: str) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in given.items():
        if name not in FILES and name not in CHOICES:
            raise BadAddress(f"`{name}` is no option of a `rediss://` address")
        if name in CHOICES and value not in CHOICES[name]:
            raise BadAddress(f"{name}={value}: {' or '.join(CHOICES[name])}")
    return given


def place(url: SplitResult) -> str:
    """Where a server is, without what must not be shown."""
    if url.scheme == "unix":
        return f"unix://{url.path}"
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"


def trouble(url: SplitResult, error: BaseException) -> str:
    """Why a server cannot be reached, in words that say what to change."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"{place(url)}: the certificate of Redis is not trusted: {error.verify_message};"
            " name its authority with ?ssl_ca_certs=FILE"
        )
    if isinstance(error, ssl.SSLError):
        return f"{place(url)}: no TLS with Redis: {error.reason or error}"
    return f"Redis cannot be reached: {error}"
