"""The scripts: one file per verb and a few that they share, loaded into the server as one library.

A library is compiled once, while a script that is sent by its hash defines all of its functions anew at every call: for
these verbs that is a third of the time. Its names carry a hash of its text, so two versions can be side by side.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "scripts"
SHARED = ("store", "transition", "waiting", "deciding", "timers", "holding")
VERBS = (
    "apply",
    "claim",
    "control",
    "end",
    "fire",
    "fold",
    "forget",
    "incarnation",
    "install",
    "later",
    "renew",
    "signal",
    "sweep",
    "yield",
)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_REGISTER = """
redis.register_function('{verb}_{sha}', function(keys, arguments)
  store.begin(keys, arguments)
  return verbs['{verb}']()
end)
"""


@cache
def library() -> tuple[str, bytes]:
    """The hash of the library, and its text as the server loads it."""
    parts = [(FOLDER / f"{name}.lua").read_text() for name in (*SHARED, *VERBS)]
    text = _COMMENT.sub("", "\n".join(parts))
    sha = hashlib.sha256(text.encode()).hexdigest()[:12]
    registered = "".join(_REGISTER.format(verb=verb, sha=sha) for verb in VERBS)
    return sha, f"#!lua name=rune_{sha}\n{text}{registered}".encode()


@cache
def function(verb: str) -> str:
    """The name of a verb's function in the server."""
    return f"{verb}_{library()[0]}"
