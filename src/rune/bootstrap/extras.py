"""Optional packages: the extra that installs each of them, and the error if one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rune.errors import RuneError

EXTRAS = {
    "asyncpg": "cluster",
    "hiredis": "cluster",
    "pamqp": "cluster",
    "obstore": "cluster",
}
"""Top-level module -> the extra of this package that installs it."""


class MissingExtraError(RuneError):
    """An operation needs a package that is not installed."""

    code = "MISSING_EXTRA"


@contextmanager
def optional_imports(purpose: str) -> Iterator[None]:
    """Raise MissingExtraError if an import in the block fails because an extra is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingExtraError(
            f"{purpose} needs `{package}`: install `rune-engine[{EXTRAS[package]}]`"
        ) from None
