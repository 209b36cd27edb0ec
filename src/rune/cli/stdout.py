"""Keeps standard output for what the command prints. Other writers of this process get standard error: the child
processes and the threads that custom nodes start, and modules of node types while they are imported.
"""

from __future__ import annotations

import io
import os
import sys
import threading

STDOUT, STDERR = 1, 2


class CommandOutput(io.TextIOWrapper):
    """Takes what the main thread prints."""

    def write(self, text: str, /) -> int:
        if threading.current_thread() is not threading.main_thread():
            return sys.stderr.write(text)
        return super().write(text)


def keep_stdout() -> None:
    """Move standard output to another descriptor, which child processes do not inherit.

    Nothing happens if standard output was replaced or is closed.
    """
    given = sys.stdout
    if not isinstance(given, io.TextIOWrapper) or isinstance(given, CommandOutput):
        return
    try:
        if given.fileno() != STDOUT:
            return
        given.flush()
        own = os.dup(STDOUT)
        os.dup2(STDERR, STDOUT)
    except OSError:
        return
    buffer = io.BufferedWriter(io.FileIO(own, "w"))
    sys.stdout = CommandOutput(buffer, given.encoding, given.errors, line_buffering=given.line_buffering)
