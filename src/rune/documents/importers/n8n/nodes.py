"""The node types of n8n: which reader imports each, and the readers of its triggers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rune.documents.importers.draft import sequence, slug
from rune.documents.importers.javascript import UntranslatableError
from rune.documents.importers.n8n import items, lists, requests
from rune.documents.importers.n8n.reader import Output, StepReader, whole_number


def read_manual(step: StepReader) -> list[Output]:
    step.add("manual")
    return step.out("$trigger")


def read_called(step: StepReader) -> list[Output]:
    step.add("input")
    step.note("approximated", "", "type", "a call passes one start payload, not a list of items")
    for key in step.parameters:
        step.note("changed", key, "", "the start payload is not described", "describe it under `inputs`")
    return step.out("$trigger")


def read_schedule(step: StepReader) -> list[Output]:
    intervals = step.at("rule.interval")
    first = (
        intervals[0] if isinstance(intervals, list) and intervals and isinstance(intervals[0], dict) else {}
    )
    parameters, exact = _interval(first)
    if "cron" in parameters and step.importer.timezone:
        parameters["timezone"] = step.importer.timezone
    step.add("schedule", parameters)
    for key in first:
        path = f"rule.interval[0].{key}"
        if not exact:
            step.note("approximated", path, "parameters", "the interval starts anew with each month or year")
        else:
            step.carried(path, "parameters.cron" if "cron" in parameters else "parameters.amount")
    for at in range(1, len(intervals) if isinstance(intervals, list) else 0):
        step.note(
            "by_hand",
            f"rule.interval[{at}]",
            "",
            "a schedule has one interval",
            "add a second `schedule` node",
        )
    if "cron" in parameters and not step.importer.timezone:
        step.note("approximated", "", "parameters.cron", "without a time zone in the export, UTC is used")
    return step.out("$trigger")


def _interval(given: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the parameters of a schedule, and whether they mean the same."""
    field = given.get("field") or "days"
    minute = whole_number(given.get("triggerAtMinute"), 0)
    hour = whole_number(given.get("triggerAtHour"), 0)
    every = whole_number(
        given.get(f"{field}Interval"), 5 if field == "minutes" else 30 if field == "seconds" else 1
    )
    every = max(1, min(every, 100_000))
    if field == "cronExpression":
        return {"cron": _cron(str(given.get("expression") or ""))}, True
    if field == "seconds":
        return {"amount": every, "unit": "seconds"}, True
    if field == "minutes":
        return {"cron": f"*/{every} * * * *" if every > 1 else "* * * * *"}, 60 % every == 0
    if field == "hours":
        return {"cron": f"{minute} {f'*/{every}' if every > 1 else '*'} * * *"}, 24 % every == 0
    if field == "days":
        return {"cron": f"{minute} {hour} {f'*/{every}' if every > 1 else '*'} * *"}, every == 1
    if field == "weeks":
        days = sequence(given.get("triggerAtDay")) or [0]
        return {
            "cron": f"{minute} {hour} * * {','.join(str(whole_number(each, 0)) for each in days)}"
        }, every == 1
    if field == "months":
        day = whole_number(given.get("triggerAtDayOfMonth"), 1)
        return {"cron": f"{minute} {hour} {day} {f'*/{every}' if every > 1 else '*'} *"}, 12 % every == 0
    raise UntranslatableError(f"schedules by `{field}` have no counterpart")


def _cron(text: str) -> str:
    fields = text.removeprefix("=").split()
    if len(fields) == 6 and fields[0] == "0":
        fields = fields[1:]
    if len(fields) != 5 or "{{" in text:
        raise UntranslatableError(f"`{text[:60]}` is not a cron expression with five fields")
    return " ".join(fields)


def read_webhook(step: StepReader) -> list[Output]:
    parameters: dict[str, Any] = {}
    if isinstance(step.at("path"), str):
        parameters["path"] = slug(step.at("path"), fallback="hook").replace("_", "-")
        step.note(
            "changed",
            "path",
            "parameters.path",
            "the address of the webhook differs",
            "give callers the address that `rune triggers` shows",
        )
    method = step.at("httpMethod") or "GET"
    if method not in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        raise UntranslatableError("a webhook accepts one of the methods GET, POST, PUT, PATCH and DELETE")
    parameters["method"] = method
    step.carried("httpMethod", "parameters.method")
    mode = step.at("responseMode") or "onReceived"
    if mode != "onReceived":
        parameters["respond"] = "result"
        step.note(
            "approximated",
            "responseMode",
            "parameters.respond",
            "the response is the result of the execution",
        )
    else:
        step.carried("responseMode", "")
    if step.at("authentication") == "headerAuth":
        parameters["auth"] = "header"
        step.note(
            "changed",
            "authentication",
            "parameters.auth",
            "the header and its value are those of the credential",
            "see `rune triggers`",
        )
    elif step.at("authentication") in (None, "none"):
        step.carried("authentication", "")
    else:
        raise UntranslatableError(f"webhooks with `{step.at('authentication')}` have no counterpart")
    step.add("webhook", parameters)
    return step.out("$trigger")


_STEPS: Mapping[str, Callable[[StepReader], list[Output]]] = {
    "manualTrigger": read_manual,
    "start": read_manual,
    "executeWorkflowTrigger": read_called,
    "scheduleTrigger": read_schedule,
    "webhook": read_webhook,
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
