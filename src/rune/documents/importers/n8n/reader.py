"""Reads one node of an n8n export: translates its parameters and notes what became of each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from rune.core.definition.strict_json import join
from rune.documents.importers.draft import literal_text
from rune.documents.importers.javascript import UntranslatableError
from rune.documents.importers.n8n.scope import Flow, N8nScope
from rune.documents.importers.report import Status, is_empty
from rune.documents.importers.translate import Translation, quoted, translate

if TYPE_CHECKING:
    from rune.documents.importers.n8n.graph import N8nImporter, Region


TRIGGER_TYPES = frozenset({"manualTrigger", "scheduleTrigger", "webhook", "executeWorkflowTrigger", "start"})
LIST_TYPES = frozenset(
    {
        "sort",
        "limit",
        "aggregate",
        "splitOut",
        "removeDuplicates",
        "merge",
        "splitInBatches",
        "summarize",
        "itemLists",
    }
)
_RETRIED = [
    "HTTP_TIMEOUT", "HTTP_CONNECT", "HTTP_STATUS", "HTTP_TLS", "HTTP_PROTOCOL", "HTTP_BODY", "HTTP_REDIRECT",
    "HTTP_TOO_LARGE",
]  # fmt: skip


class Output(msgspec.Struct, frozen=True):
    """One output of an imported node: the node and outlet that edges leave from, and what they carry."""

    node: str
    flow: Flow
    label: str | None = None
    is_error: bool = False


def _templates(text: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each `{{ … }}` after the first character."""
    end = 1
    while (start := text.find("{{", end)) >= 0 and (close := text.find("}}", start + 2)) >= 0:
        end = close + 2
        yield start, end


class StepReader:
    """Reads one node: translates its parameters and notes what became of each."""

    def __init__(
        self,
        importer: N8nImporter,
        name: str,
        node: dict[str, Any],
        node_id: str,
        flow: Flow,
        region: Region | None,
    ) -> None:
        self.importer = importer
        self.name = name
        self.node = node
        self.id = node_id
        self.flow = flow
        self.region = region
        self.parameters: dict[str, Any] = (
            node["parameters"] if isinstance(node.get("parameters"), dict) else {}
        )
        self.version = float(node["typeVersion"]) if isinstance(node.get("typeVersion"), int | float) else 1.0
        self.entry = node_id
        self.notes: list[tuple[Status, str, str, str, str]] = []

    # Notes

    def note(self, status: Status, key: str, target: str = "", message: str = "", hint: str = "") -> None:
        """Note what became of a parameter; `key` and `target` are relative to the nodes."""
        self.notes.append((status, f"parameters.{key}" if key else "type", target, message, hint))

    def carried(self, key: str, target: str = "", message: str = "") -> None:
        if not is_empty(self.at(key)):
            self.note("carried", key, target, message)

    def at(self, key: str) -> Any:
        """Return the parameter at a path such as `options.timeout` or `rules.values[0]`."""
        value: Any = self.parameters
        for part in re.findall(r"[^.\[\]]+", key):
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
                value = value[int(part)]
            else:
                return None
        return value

    # Values

    def scope(self, *, element: bool = False) -> N8nScope:
        return N8nScope(self.importer, self.flow, self.region, element=element)

    def value(self, key: str, target: str, *, element: bool = False) -> Any:
        """Return a parameter as a template and note it."""
        found, notes = self.template(self.at(key), element=element)
        self.noted(key, target, notes)
        return found

    def noted(self, key: str, target: str, notes: tuple[str, ...]) -> None:
        """Note a parameter as carried, or as approximated if its translation differs."""
        if notes:
            self.note("approximated", key, target, "; ".join(notes))
        else:
            self.carried(key, target)

    def template(self, value: Any, *, element: bool = False) -> tuple[Any, tuple[str, ...]]:
        """Translate a value: texts that begin with `=` are expressions, everything else is literal."""
        notes: list[str] = []

        def walk(each: Any) -> Any:
            if isinstance(each, str):
                text, found = self._text(each, element=element)
                notes.extend(found)
                return text
            if isinstance(each, list):
                return [walk(one) for one in each]
            if isinstance(each, dict):
                return {key: walk(one) for key, one in each.items()}
            return each

        found = walk(value)
        return found, tuple(dict.fromkeys(notes))

    def _text(self, text: str, *, element: bool) -> tuple[str, tuple[str, ...]]:
        if not text.startswith("="):
            return literal_text(text), ()
        notes: list[str] = []
        pieces: list[str] = []
        at = 1
        for start, end in _templates(text):
            pieces.append(literal_text(text[at:start]))
            found = self._translate(text[start + 2 : end - 2], element=element)
            notes += found.notes
            pieces.append(f"{{{{ {found.text} }}}}")
            at = end
        pieces.append(literal_text(text[at:]))
        return "".join(pieces), tuple(notes)

    def _translate(self, source: str, *, element: bool) -> Translation:
        try:
            return translate(source, self.scope(element=element))
        except UntranslatableError as error:
            raise UntranslatableError(f"the expression `{source.strip()[:200]}`: {error.message}") from None

    def expression(self, value: Any, *, element: bool = False) -> Translation:
        """Translate a value to an expression."""
        if not isinstance(value, str):
            return Translation(quoted(value), (), "number" if isinstance(value, int | float) else "")
        if not value.startswith("="):
            return Translation(quoted(value), (), "text")
        parts = list(_templates(value))
        if len(parts) == 1 and not (value[1 : parts[0][0]] + value[parts[0][1] :]).strip():
            return self._translate(value[parts[0][0] + 2 : parts[0][1] - 2], element=element)
        notes: list[str] = []
        texts: list[str] = []
        at = 1
        for start, end in parts:
            found = self._translate(value[start + 2 : end - 2], element=element)
            notes += found.notes
            texts += [quoted(value[at:start])] if value[at:start] else []
            texts.append(f"str({found.text})")
            at = end
        texts += [quoted(value[at:])] if value[at:] or not texts else []
        return Translation(" + ".join(texts), tuple(notes), "text")

    # Nodes

    def add(self, kind: str, parameters: dict[str, Any] | None = None, **fields: Any) -> None:
        self.importer.draft.add_node(self.id, kind, parameters, **fields)

    def out(self, text: str = "", *, many: bool = False) -> list[Output]:
        """Return the only output of the node."""
        return [Output(self.id, Flow(many, text or f"${self.id}"))]

    def same(self) -> list[Output]:
        """Return the output of a node that passes its items on."""
        return [Output(self.id, self.flow)]

    def disabled(self) -> list[Output]:
        self.add("noop")
        self.note("carried", "", "type", "a disabled node passes its items on")
        if not is_empty(self.parameters):
            self.notes.append(
                ("carried", "parameters", "metadata.n8n", "without effect in a disabled node", "")
            )
        return self.same()

    def read_policies(self, target: dict[str, Any], place: str, *, in_region: bool) -> None:
        """Read what happens on failures, and the credentials."""
        path, record, node = self.importer.paths[self.name], self.importer.record, self.node
        self._read_retry(target, place, path)
        mode = node.get("onError") or ("continueRegularOutput" if node.get("continueOnFail") else "")
        key = "onError" if "onError" in node else "continueOnFail"
        if mode == "continueErrorOutput":
            record.approximated(
                f"{path}.{key}",
                place,
                "the item on the error output has the code and message of Rune's error under `error`",
            )
        elif mode == "continueRegularOutput":
            target["error"] = {"type": "ignore"}
            record.approximated(
                f"{path}.{key}",
                f"{place}.error",
                "the nodes behind a failed node find no output of it; expressions see null",
            )
        else:
            if (
                in_region
                and target["type"] not in ("noop", "conditional", "switch", "wait")
                and "error" not in target
            ):
                # Inside a split a failed item is collected by default; n8n stops the workflow.
                target["error"] = {"type": "halt"}
            if key in node:
                record.carried(f"{path}.{key}", f"{place}.error" if "error" in target else place)
        if node.get("executeOnce") is not None:
            record.carried(f"{path}.executeOnce", place)
        if node.get("alwaysOutputData") is not None:
            if node["alwaysOutputData"]:
                record.approximated(
                    f"{path}.alwaysOutputData", place, "no empty item is made where there is none"
                )
            else:
                record.carried(f"{path}.alwaysOutputData", place)
        self._read_credentials(target, place, path)

    def _read_retry(self, target: dict[str, Any], place: str, path: str) -> None:
        record, node = self.importer.record, self.node
        if node.get("retryOnFail"):
            delay = (
                node["waitBetweenTries"] if isinstance(node.get("waitBetweenTries"), int | float) else 1000
            )
            tries = node["maxTries"] if isinstance(node.get("maxTries"), int) else 3
            target["retry"] = {
                "max_attempts": max(1, tries),
                "initial_delay": delay / 1000,
                "backoff": 1,
                "jitter": False,
            }
            if target["type"] == "http":
                target["retry"]["on"] = _RETRIED
        for key in ("retryOnFail", "maxTries", "waitBetweenTries"):
            if node.get(key) is not None:
                record.carried(f"{path}.{key}", f"{place}.retry" if "retry" in target else place)

    def _read_credentials(self, target: dict[str, Any], place: str, path: str) -> None:
        given = self.node.get("credentials")
        listed = list(given.items()) if isinstance(given, dict) else []
        for at, (kind, reference) in enumerate(listed):
            source = join(f"{path}.credentials", kind)
            name = reference.get("name") if isinstance(reference, dict) else reference
            name = str(name or kind)
            if at or target["type"] not in ("http", "smtp", "webhook", "llm_service"):
                self.importer.record.by_hand(
                    source, "the node takes no such credential", f"`{name}` was used by n8n", place
                )
                continue
            target["credentials"] = {"name": name}
            self.importer.record.changed(
                source,
                f"{place}.credentials",
                "exports contain no secrets; the node names the credential",
                f"create the credential `{name}` (in n8n of the type {kind}) with `rune credentials`",
            )


def parsed_json(value: Any) -> Any:
    """Return the value of a JSON text; texts with expressions stay texts."""
    if isinstance(value, str) and not value.startswith("="):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def error_output(step: StepReader) -> list[Output]:
    """Return the error output of a node that continues there."""
    if step.node.get("onError") != "continueErrorOutput":
        return []
    text = f'merge({step.flow.text}, {{"error": $error.message}})'
    return [Output(step.id, Flow(False, text), is_error=True)]


def whole_number(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default
