"""A node that tells where it ran."""

from __future__ import annotations

import os

from rune.nodes.custom import node


@node("place.process")
def process() -> int:
    """The process that ran it."""
    return os.getpid()
