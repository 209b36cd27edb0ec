"""The node types of n8n: which reader imports each, and the readers of its triggers and of its nodes that use the
network: requests, mails, other workflows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from rune.core.definition.strict_json import join
from rune.documents.importers.draft import literal_text, sequence, slug
from rune.documents.importers.javascript import UntranslatableError
from rune.documents.importers.n8n import items
from rune.documents.importers.n8n.reader import (
    LIST_TYPES,
    Flow,
    Output,
    StepReader,
    error_output,
    parsed_json,
    pinned_items,
    whole_number,
)
from rune.documents.importers.source import ignore

_LIST_RESPONSE = "n8n makes an item of each element if the response is a list; here the list is one value"


def read_http(step: StepReader) -> list[Output]:
    parameters: dict[str, Any] = {
        "method": str(step.at("method") or step.at("requestMethod") or "GET").upper()
    }
    for key in ("method", "requestMethod"):
        step.carried(key, "parameters.method")
    if not step.at("url"):
        raise UntranslatableError("the request has no URL")
    parameters["url"] = step.value("url", "parameters.url")
    _pairs(step, parameters, "query", "sendQuery", "queryParameters", "specifyQuery", "jsonQuery")
    _pairs(step, parameters, "headers", "sendHeaders", "headerParameters", "specifyHeaders", "jsonHeaders")
    _body(step, parameters)
    for key in ("authentication", "genericAuthType", "nodeCredentialType"):
        step.carried(key, "", "see the credentials")
    full = _http_options(step, parameters)
    step.add("http", parameters)
    if not full and parameters.get("response") != "text":
        outputs = _http_list(step)
        if not outputs[0].flow.many:
            step.note(
                "approximated", "", "type", _LIST_RESPONSE, "put a `split` behind the node if it is one"
            )
        return [*outputs, *error_output(step)]
    shaped = step.importer.draft.new_id(f"{step.id}_response")
    property_name = "options.response.response.outputPropertyName"
    step.carried(property_name, "type")
    fields: tuple[tuple[str, str], ...] = (("body", "body"), ("headers", "headers"), ("statusCode", "status"))
    if not full:
        fields = ((step.key(property_name, "data"), "body"),)
    assignments = [
        {"name": literal_text(name), "value": f"{{{{ ${step.id}.{key} }}}}"} for name, key in fields
    ]
    step.importer.draft.add_node(shaped, "edit", {"mode": "keep_only", "assignments": assignments})
    step.importer.draft.add_edge(step.id, shaped)
    return [Output(shaped, Flow(False, f"${shaped}")), *error_output(step)]


def _http_list(step: StepReader) -> list[Output]:
    """Return the output of a request: a list of items if nodes that work on lists follow, else one item."""
    body = f"${step.id}.body"
    importer = step.importer
    followers = [link.dst for link in importer.links.out(step.name) if link.output == 0]
    kinds = {str(importer.nodes[each].get("type")).rpartition(".")[2] for each in followers}
    # Pins of a node that runs per item are one for each item, and tell nothing of one response.
    listed = step.region is None and len(pinned_items(importer.source, step.name)) > 1
    if (kinds and kinds <= LIST_TYPES | {"filter"} - {"merge"}) or listed:
        return step.out(f'({body} if type({body}) == "array" else [{body}])', many=True)
    return step.out(body)


def _pairs(
    step: StepReader,
    parameters: dict[str, Any],
    target: str,
    send: str,
    listed: str,
    specify: str,
    as_json: str,
) -> None:
    """Read names and values: a list of pairs, or a JSON text."""
    step.carried(send, f"parameters.{target}" if step.at(send) else "")
    if not step.at(send) and step.version >= 3:
        for key in (listed, specify, as_json):
            step.carried(key, "", f"without effect: `{send}` is off")
        return
    found: dict[str, Any] = {}
    if step.at(specify) == "json":
        step.carried(specify, f"parameters.{target}")
        value, notes = step.template(parsed_json(step.at(as_json)))
        step.noted(as_json, f"parameters.{target}", notes)
        if not isinstance(value, dict):
            raise UntranslatableError(f"`{as_json}` is not an object of names and values")
        found = value
    else:
        step.carried(specify, f"parameters.{target}")
        pairs = step.at(f"{listed}.parameters")
        for at in range(len(sequence(pairs))):
            name = step.key(f"{listed}.parameters[{at}].name")
            step.carried(f"{listed}.parameters[{at}].name", f"parameters.{target}")
            found[name] = step.value(f"{listed}.parameters[{at}].value", join(f"parameters.{target}", name))
    if found:
        parameters[target] = found


def _body(step: StepReader, parameters: dict[str, Any]) -> None:
    step.carried("sendBody", "parameters.body" if step.at("sendBody") else "")
    keys = ("contentType", "specifyBody", "bodyParameters", "jsonBody", "body", "rawContentType")
    if not step.at("sendBody"):
        for key in keys:
            step.carried(key, "", "without effect: `sendBody` is off")
        return
    kind = step.at("contentType") or "json"
    types = {"json": "json", "form-urlencoded": "form", "multipart-form-data": "multipart", "raw": "text"}
    if kind not in types:
        raise UntranslatableError(f"a request body of the type `{kind}` has no counterpart")
    step.carried("contentType", "parameters.body_type")
    step.carried("specifyBody", "parameters.body")
    if kind == "raw":
        parameters["body"], parameters["body_type"] = step.value("body", "parameters.body"), "text"
        if step.at("rawContentType"):
            content_type = step.value("rawContentType", "parameters.headers")
            parameters["headers"] = {"Content-Type": content_type, **parameters.get("headers", {})}
        return
    if step.at("specifyBody") == "json":
        value, notes = step.template(parsed_json(step.at("jsonBody")))
        step.noted("jsonBody", "parameters.body", notes)
        parameters["body"] = value
        if isinstance(value, str) and not _iswhole_number(value):
            parameters["headers"] = {"Content-Type": "application/json", **parameters.get("headers", {})}
            return
        parameters["body_type"] = types[kind]
        if isinstance(value, str) and re.match(r"\{\{ json\(", value):
            parameters["body"] = "{{ parse_json(" + value[3:-3] + ") }}"
        return
    pairs = step.at("bodyParameters.parameters")
    body: dict[str, Any] = {}
    for at in range(len(sequence(pairs))):
        name = step.key(f"bodyParameters.parameters[{at}].name")
        step.carried(f"bodyParameters.parameters[{at}].name", "parameters.body")
        body[name] = step.value(f"bodyParameters.parameters[{at}].value", join("parameters.body", name))
    parameters["body"], parameters["body_type"] = body, types[kind]


def _iswhole_number(text: str) -> bool:
    return text.startswith("{{ ") and text.endswith(" }}") and "}}" not in text[3:-3]


def _http_options(step: StepReader, parameters: dict[str, Any]) -> bool:
    """Read the options; return whether the item is the whole response."""
    parameters["timeout"] = 300
    if isinstance(step.at("options.timeout"), int | float):
        parameters["timeout"] = step.at("options.timeout") / 1000
    step.carried("options.timeout", "parameters.timeout")
    response = "options.response.response"
    if not step.at(f"{response}.neverError"):
        parameters["raise_on_status"] = "4xx,5xx"
    step.carried(
        f"{response}.neverError", "parameters.raise_on_status" if "raise_on_status" in parameters else ""
    )
    wanted = step.at(f"{response}.responseFormat")
    if wanted in ("json", "text"):
        parameters["response"] = wanted
        step.carried(f"{response}.responseFormat", "parameters.response")
    elif wanted == "autodetect":
        step.carried(f"{response}.responseFormat", "")
    elif wanted == "file":
        parameters["response"] = "blob"
        step.note(
            "approximated",
            f"{response}.responseFormat",
            "parameters.response",
            "the file is a reference to a blob under `body`",
        )
    step.carried(f"{response}.fullResponse", "type")
    if step.at("options.allowUnauthorizedCerts") is not None:
        parameters["ignore_ssl"] = bool(step.at("options.allowUnauthorizedCerts"))
        step.carried("options.allowUnauthorizedCerts", "parameters.ignore_ssl")
    redirects = "options.redirect.redirect"
    if step.at(f"{redirects}.followRedirects") is not None:
        parameters["follow_redirects"] = bool(step.at(f"{redirects}.followRedirects"))
        step.carried(f"{redirects}.followRedirects", "parameters.follow_redirects")
    if step.at(f"{redirects}.maxRedirects") is not None:
        step.note(
            "approximated", f"{redirects}.maxRedirects", "parameters", "at most five redirects are followed"
        )
    return bool(step.at(f"{response}.fullResponse"))


def read_mail(step: StepReader) -> list[Output]:
    parameters: dict[str, Any] = {}
    names = {
        "fromEmail": "from",
        "toEmail": "to",
        "ccEmail": "cc",
        "bccEmail": "bcc",
        "subject": "subject",
        "text": "body",
        "html": "html",
    }
    for key, target in names.items():
        if step.at(key):
            parameters[target] = step.value(key, f"parameters.{target}")
    for key in ("emailFormat", "operation", "resource"):
        if step.at(key) in ("text", "html", "both", "send", "email"):
            step.carried(key, "type")
    for key, target in (("options.ccEmail", "cc"), ("options.bccEmail", "bcc")):
        if step.at(key):
            parameters[target] = step.value(key, f"parameters.{target}")
    step.add("smtp", parameters)
    step.note(
        "approximated",
        "",
        "type",
        "the item behind it is the result of Rune's mail: `sent`, `message_id`, `accepted`, `rejected`",
    )
    return [*step.out(), *error_output(step)]


def read_workflow(step: StepReader) -> list[Output]:
    given = step.at("workflowId")
    wanted = (given.get("cachedResultName") or given.get("value")) if isinstance(given, dict) else given
    if step.at("source") not in (None, "database") or not isinstance(wanted, str):
        raise UntranslatableError("only workflows that are stored can be called")
    if step.at("mode") == "each" or step.region is None:
        step.carried("mode", "type")
    else:
        key = "mode" if step.at("mode") is not None else ""
        step.note(
            "approximated", key, "type", "n8n calls the workflow once with all items; here once with each"
        )
    child = slug(wanted, fallback="workflow").replace("_", "-").lower()
    parameters: dict[str, Any] = {"workflow": child, "input": f"{{{{ {step.flow.text} }}}}"}
    step.note(
        "changed",
        "workflowId",
        "parameters.workflow",
        f"the workflow is called by its id `{child}`",
        f"import it too and deploy it as `{child}`",
    )
    step.carried("source", "type")
    inputs = step.at("workflowInputs.value")
    if isinstance(inputs, dict) and inputs:
        parameters["input"], notes = step.template(inputs)
        step.noted("workflowInputs.value", "parameters.input", notes)
        for key in step.at("workflowInputs"):
            if key != "value":
                ignore(step.at("workflowInputs"), key)
                step.carried(f"workflowInputs.{key}", "parameters.input")
    if step.at("options.waitForSubWorkflow") is not None:
        parameters["wait"] = bool(step.at("options.waitForSubWorkflow"))
        step.carried("options.waitForSubWorkflow", "parameters.wait")
    step.add("workflow", parameters)
    step.note("approximated", "", "type", "the item behind it is the output of the called workflow")
    return [*step.out(), *error_output(step)]


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
    parameters, difference = _interval(first)
    if "cron" in parameters and step.importer.timezone:
        parameters["timezone"] = step.importer.timezone
    step.add("schedule", parameters)
    for key in first:
        path = f"rule.interval[0].{key}"
        if difference:
            step.note("approximated", path, "parameters", difference)
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


_ANEW = "the interval starts anew with each {}"


def _interval(given: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the parameters of a schedule, and what differs."""
    field = given.get("field") or "days"
    minute = whole_number(given.get("triggerAtMinute"), 0)
    hour = whole_number(given.get("triggerAtHour"), 0)
    every = whole_number(
        given.get(f"{field}Interval"), 5 if field == "minutes" else 30 if field == "seconds" else 1
    )
    every = max(1, min(every, 100_000))
    if field == "cronExpression":
        return {"cron": _cron(str(given.get("expression") or ""))}, ""
    if field == "seconds":
        return {"amount": every, "unit": "seconds"}, ""
    if field == "minutes":
        return {
            "cron": f"*/{every} * * * *" if every > 1 else "* * * * *"
        }, "" if 60 % every == 0 else _ANEW.format("hour")
    if field == "hours":
        return {
            "cron": f"{minute} {f'*/{every}' if every > 1 else '*'} * * *"
        }, "" if 24 % every == 0 else _ANEW.format("day")
    if field == "days":
        return {
            "cron": f"{minute} {hour} {f'*/{every}' if every > 1 else '*'} * *"
        }, "" if every == 1 else _ANEW.format("month")
    if field == "weeks":
        days = sequence(given.get("triggerAtDay")) or [0]
        return {
            "cron": f"{minute} {hour} * * {','.join(str(whole_number(each, 0)) for each in days)}"
        }, "" if every == 1 else f"the schedule runs in each week, not in every {every} weeks"
    if field == "months":
        day = whole_number(given.get("triggerAtDayOfMonth"), 1)
        return {
            "cron": f"{minute} {hour} {day} {f'*/{every}' if every > 1 else '*'} *"
        }, "" if 12 % every == 0 else _ANEW.format("year")
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
    "httpRequest": read_http,
    "emailSend": read_mail,
    "executeWorkflow": read_workflow,
    "set": items.read_set,
    "if": items.read_if,
    "filter": items.read_filter,
    "switch": items.read_switch,
    "wait": items.read_wait,
    "noOp": items.read_noop,
    "stopAndError": items.read_stop,
    "respondToWebhook": items.read_respond,
    "sort": items.read_sort,
    "limit": items.read_limit,
    "splitOut": items.read_split_out,
    "aggregate": items.read_aggregate,
    "removeDuplicates": items.read_remove_duplicates,
    "merge": items.read_merge,
    "splitInBatches": items.read_loop,
}


def read_step(step: StepReader, kind: str) -> list[Output]:
    """Add the nodes of one step to the draft and return its outputs."""
    reader = _STEPS.get(kind)
    if reader is None:
        if kind in ("code", "function", "functionItem"):
            raise UntranslatableError("code cannot be imported")
        raise UntranslatableError(f"the node type `{kind}` has no counterpart")
    return reader(step)
