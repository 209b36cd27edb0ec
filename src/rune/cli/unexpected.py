"""The end of every exception that a command does not expect: one sentence, a report in a file, and exit code 70."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback

import rune
from rune.cli.output import UNEXPECTED, clean, print_error, print_unexpected
from rune.errors import RuneError
from rune.nodes.redaction import SECRETS_IN_USE

SHOW_TRACEBACK = "RUNE_TRACEBACK"
"""If this variable of the environment is set, the traceback is printed to stderr."""

MAX_MESSAGE = 200


def report(error: Exception) -> int:
    """Report an exception and return the exit code. The exception of a file or a folder names it and exits like a store
    that cannot be used, and so does any exception while the database file is damaged."""
    as_json = "--json" in sys.argv
    if os.environ.get(SHOW_TRACEBACK):
        traceback.print_exception(error)
    if isinstance(error, RuneError):
        return print_error(error, as_json=as_json)
    if isinstance(error, OSError) and error.filename is not None:
        reason = (error.strerror or str(error)).lower()
        unusable = RuneError(f"cannot use {os.fsdecode(error.filename)}: {reason}", code="STORE_AWAY")
        return print_error(unusable, as_json=as_json)
    damaged = _damage()
    if damaged is not None:
        return print_error(damaged, as_json=as_json)
    path = _write_report(error)
    where = f"the details are in {path}" if path else "its details could not be written"
    print_unexpected(
        f"unexpected error, a defect of Rune: {_summary(error)}; {where}",
        f"{SHOW_TRACEBACK}=1 prints them",
        as_json=as_json,
    )
    return UNEXPECTED


def _damage() -> RuneError | None:
    """Return the error for a damaged database file, whose content no command can expect; None if it is intact."""
    from rune.bootstrap import inspect_file  # noqa: PLC0415 - slow to import
    from rune.settings import load_settings  # noqa: PLC0415

    try:
        settings = load_settings()
        if settings.clustered or settings.url:
            return None
        seen = inspect_file(settings)
    except Exception:
        return None  # it is not known; the first error is reported
    if not seen.damage:
        return None
    return RuneError(
        f"{seen.database} is damaged: {clean(seen.damage)}; `rune restore BACKUP --replace` replaces it with a backup",
        code="STORE_DAMAGED",
    )


def _summary(error: Exception) -> str:
    lines = SECRETS_IN_USE.text(str(error)).splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return clean(text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…")


def _write_report(error: Exception) -> str:
    """Write the traceback to a new file that only this user can read; return its path, empty if it cannot be written.

    Arguments are left out, since they may hold data and secrets; so are the values of variables.
    """
    command = next((each for each in sys.argv[1:] if not each.startswith("-")), "")
    head = f"rune {rune.__version__}, Python {platform.python_version()}, {platform.platform()}\ncommand: {command}\n\n"
    text = SECRETS_IN_USE.text("".join(traceback.format_exception(error)))
    try:
        handle, path = tempfile.mkstemp(prefix="rune-error-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(head + text)
    except OSError:
        return ""
    return path
