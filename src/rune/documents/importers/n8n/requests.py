"""n8n's nodes that use the network: requests, mails, other workflows."""

from __future__ import annotations

import re
from typing import Any

from rune.core.definition.strict_json import join
from rune.documents.importers.draft import slug
from rune.documents.importers.javascript import UntranslatableError
from rune.documents.importers.n8n.pins import pinned_items
from rune.documents.importers.n8n.reader import LIST_TYPES, Output, StepReader, error_output, parsed_json
from rune.documents.importers.n8n.scope import Flow

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
    if not full:
        outputs = _http_list(step)
        if not outputs[0].flow.many:
            step.note(
                "approximated", "", "type", _LIST_RESPONSE, "put a `split` behind the node if it is one"
            )
        return [*outputs, *error_output(step)]
    shaped = step.importer.draft.new_id(f"{step.id}_response")
    fields = (("body", "body"), ("headers", "headers"), ("statusCode", "status"))
    assignments = [{"name": name, "value": f"{{{{ ${step.id}.{key} }}}}"} for name, key in fields]
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
        for at, pair in enumerate(pairs if isinstance(pairs, list) else []):
            name = str(pair.get("name") if isinstance(pair, dict) else at)
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
    for at, pair in enumerate(pairs if isinstance(pairs, list) else []):
        name = str(pair.get("name") if isinstance(pair, dict) else at)
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
    if step.at("mode") == "each" or step.at("mode") is None:
        step.carried("mode", "type")
    else:
        step.note("approximated", "mode", "type", "the workflow is called with one item")
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
        parameters["input"] = {
            key: step.value(f"workflowInputs.value.{key}", f"parameters.input.{key}") for key in inputs
        }
        for key in step.at("workflowInputs"):
            if key != "value":
                step.carried(f"workflowInputs.{key}", "parameters.input")
    if step.at("options.waitForSubWorkflow") is not None:
        parameters["wait"] = bool(step.at("options.waitForSubWorkflow"))
        step.carried("options.waitForSubWorkflow", "parameters.wait")
    step.add("workflow", parameters)
    step.note("approximated", "", "type", "the item behind it is the output of the called workflow")
    return [*step.out(), *error_output(step)]
