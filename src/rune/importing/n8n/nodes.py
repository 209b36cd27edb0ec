"""The node types of n8n: which reader imports each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rune.importing.javascript import UntranslatableError
from rune.importing.n8n import items, lists, requests, triggers
from rune.importing.n8n.reader import Output, StepReader

_STEPS: Mapping[str, Callable[[StepReader], list[Output]]] = {
    "manualTrigger": triggers.read_manual,
    "start": triggers.read_manual,
    "executeWorkflowTrigger": triggers.read_called,
    "scheduleTrigger": triggers.read_schedule,
    "webhook": triggers.read_webhook,
    "httpRequest": requests.read_http,
    "emailSend": requests.read_mail,
    "executeWorkflow": requests.read_workflow,
    "set": items.read_set,
    "if": items.read_if,
    "filter": items.read_filter,
    "switch": items.read_switch,
    "wait": items.read_wait,
    "noOp": items.read_noop,
    "stopAndError": items.read_stop,
    "respondToWebhook": items.read_respond,
    "sort": lists.read_sort,
    "limit": lists.read_limit,
    "splitOut": lists.read_split_out,
    "aggregate": lists.read_aggregate,
    "removeDuplicates": lists.read_remove_duplicates,
    "merge": lists.read_merge,
    "splitInBatches": lists.read_loop,
}


def read_step(step: StepReader, kind: str) -> list[Output]:
    """Add the nodes of one step to the draft and return its outputs."""
    reader = _STEPS.get(kind)
    if reader is None:
        if kind in ("code", "function", "functionItem"):
            raise UntranslatableError("code cannot be imported")
        raise UntranslatableError(f"the node type `{kind}` has no counterpart")
    return reader(step)
