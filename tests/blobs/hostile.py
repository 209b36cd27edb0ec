"""Keys that somebody would try."""

from __future__ import annotations

HOSTILE = (
    "../outside",
    "../../outside/a",
    "./a",
    "x/../../outside",
    "x/..",
    "x/.",
    "x//../../outside",
    "x/%2e%2e/%2F",
    "x/..%2f..%2foutside",
    "x/\\..\\outside",
    "x/a\0b",
    "x/a\nb",
    "x/.hidden",
    "x/+aaaa",
    "x/ ",
    "x/ünïcode ☃",
    "x/lone \udc80 surrogate",
    "x/" + "long" * 500,
    "..%2f/a",
    "~/a",
    "C:/a",
)
"""Each is a key like any other: it is kept and found, and nothing else is touched."""

NO_KEYS = ("", "x", "x/", "/", "/x", "/etc/passwd")
