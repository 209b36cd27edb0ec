"""Reports: what statuses and completions are called on their way out."""

from __future__ import annotations

from rune.adapters.rabbitmq.frames import Stamp

STATUS = Stamp(persistent=False, type="NodeStatusMessage", app_id="rune")
STATUSES = Stamp(persistent=False, type="NodeStatusBatch", app_id="rune")
COMPLETION = Stamp(type="CompletionMessage", app_id="rune")
