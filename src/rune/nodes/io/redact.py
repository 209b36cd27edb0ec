"""Addresses as they may be shown: no userinfo, no values of telling names."""

from __future__ import annotations

import re

HIDDEN = "***"
_USERINFO = re.compile(r"(?<=//)[^/?#]*@")
_PAIR = re.compile(r"(?P<before>[?&;#])(?P<name>[^=&;#]*)=(?P<value>[^&;#]*)")
_TELLING = re.compile(
    r"token|secret|passw|pwd|api[-_.]?key|access[-_.]?key|auth|signature|credential|session|cookie|jwt|bearer"
    r"|^(sig|key|code|pass|pin|otp|sid)$",
    re.IGNORECASE,
)
_LONGEST = 400


def is_telling(name: str) -> bool:
    """Whether a parameter or header of this name is likely to be a secret."""
    return _TELLING.search(name) is not None


def redacted(url: str) -> str:
    """The address without what must not be seen; cut if it is long."""
    shown = _PAIR.sub(_pair, _USERINFO.sub(f"{HIDDEN}@", url))
    shown = "".join(each if each.isprintable() else " " for each in shown)
    return shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"


def _pair(found: re.Match[str]) -> str:
    value = HIDDEN if is_telling(found["name"]) else found["value"]
    return f"{found['before']}{found['name']}={value}"
