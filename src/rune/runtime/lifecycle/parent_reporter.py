"""Reports the end of a child execution to its parent, as a signal."""

from __future__ import annotations

import logging

from rune.codec.facts import encode_value
from rune.core.execution.fact import CHILD_SIGNAL, ExecutionEnded, SignalReceived
from rune.core.execution.outcome import Error
from rune.errors import LimitExceededError
from rune.nodes.base import check_json
from rune.nodes.blobs import adopt
from rune.ports.journal import (
    BlobStore,
    ExecutionEndedError,
    ExecutionRecord,
    Journal,
    Parent,
    UnknownExecutionError,
)
from rune.runtime import failpoint
from rune.runtime.execution_data import ExecutionData
from rune.runtime.lifecycle.signals import SignalDelivery
from rune.runtime.queries.history import error_document, read_history
from rune.runtime.stored_values import store_value

log = logging.getLogger("rune.children")


class ParentReporter:
    """Reports the end of a child execution to its parent, as a signal."""

    def __init__(self, journal: Journal, blob: BlobStore, signals: SignalDelivery) -> None:
        self._journal = journal
        self._blob = blob
        self._signals = signals

    async def report(self, data: ExecutionData, parent: Parent, end: ExecutionEnded) -> None:
        """Deliver the end to the parent, then mark it as reported."""
        # crash here: the row of the child is still marked as not reported; `Children.recover` reports it
        failpoint.hit("reporting")
        child: ExecutionRecord = data.accepted
        history = await read_history(self._journal, self._blob, child, data.plan)
        report = {
            "execution_id": child.id,
            "status": end.status,
            "output": await adopt(self._blob, await history.output(), parent.execution),
            "error": error_document(end.error),
        }
        try:
            check_json(report["output"])
        except (
            LimitExceededError
        ) as error:  # the parts of the output are below the limit, all of them are not
            report |= {
                "status": "failed",
                "output": None,
                "error": error_document(Error(error.code, error.message)),
            }
        stored = await store_value(self._blob, f"{parent.execution}/signal/{child.id}", encode_value(report))
        signal = SignalReceived(end.at, child.id, f"{CHILD_SIGNAL}{child.id}", parent.path, stored)
        try:
            await self._signals.deliver(parent.execution, signal)
        except (ExecutionEndedError, UnknownExecutionError):
            log.debug("%s ended after its parent", child.id)
        await self._journal.mark_reported(child.id)
