"""Import documents of the Go engine's canvas editor: nodes with `data`, edges with `source`, `target`, `sourceHandle`.

References in that format use the label of a node, written as a word: `$Fetch_users.body`. The label therefore becomes
the id. `$json` is the list or object that the last `edit`, `filter`, `sort` or `limit` before a node has made.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rune.core.definition.strict_json import join
from rune.documents.importers import javascript as js
from rune.documents.importers.draft import (
    Draft,
    Import,
    Recorder,
    Report,
    Status,
    is_empty,
    literal_text,
    mapping,
    sequence,
    slug,
)
from rune.documents.importers.javascript import Step, UntranslatableError
from rune.documents.importers.translate import Value, quoted, translate

_TRIGGERS = {"trigger": "manual", "webhookTrigger": "webhook", "scheduledTrigger": "schedule"}
_DATETIME = {
    "dateTimeNow": "now",
    "dateTimeAdd": "add",
    "dateTimeSubtract": "subtract",
    "dateTimeFormat": "format",
    "dateTimeParse": "parse",
}
_PASS = {
    "url",
    "method",
    "headers",
    "query",
    "body",
    "timeout",
    "retry",
    "retry_delay",
    "raise_on_status",
    "ignore_ssl",
}
_FORMER = {
    "retries": "retry",
    "retryDelay": "retry_delay",
    "raiseOnStatus": "raise_on_status",
    "ignoreSSL": "ignore_ssl",
}
_REFERENCE = re.compile(r"\$([A-Za-z0-9_-]+)((?:\.\$?[A-Za-z0-9_-]+|\[\d+\])*)")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?\Z")
_MAX_DIGITS = 18
_OPERATORS = ("==", "!=", ">", "<", ">=", "<=", "contains")
_DENIAL = re.compile(r"not\s+|!(?!=)\s*")
_DENIED = re.compile(r"(?:not\s+|!(?!=)\s*)+(?=.)", re.DOTALL)
_MAX_DENIALS = 20
_UNTYPED = "numbers and texts with the same digits are equal in the source engine; here they differ"
_GO_LAYOUT = re.compile(r"2006|15:04|Jan|Mon|MST")


class NoCounterpartError(Exception):
    """A node cannot be imported."""


class References(Protocol):
    """What the references of a node refer to."""

    def working_value(self, node_id: str) -> str:
        """Return the expression for `$json` in a node."""

    def reference(self, node_id: str, root: str, path: str) -> str | None:
        """Return the expression for `$root.path`; None if the root is no name of the document."""


class DataReader:
    """Reads the data of one node."""

    def __init__(
        self, canvas: References, path: str, node_id: str, kind: str, data: Mapping[str, Any]
    ) -> None:
        self._canvas = canvas
        self._path = f"{path}.data"
        self._id = node_id
        self._kind = kind
        self._data = data
        self.entries: list[tuple[str, Status, str, str, str]] = []

    def read(self) -> tuple[str, dict[str, Any]]:
        """Return the type and the parameters."""
        kind = self._kind
        if kind in _TRIGGERS:
            return _TRIGGERS[kind], self._trigger()
        if kind in _DATETIME:
            return "datetime", self._datetime()
        read: Callable[[], dict[str, Any]] | None = (
            getattr(self, f"_{kind}", None) if kind.isalpha() else None
        )
        if kind not in _STEPS or read is None:
            what = (
                "integrations have no counterpart"
                if kind.startswith("integration.")
                else f"no counterpart of the type `{kind}`"
            )
            raise NoCounterpartError("agents have no counterpart" if kind == "agent" else what)
        return _STEPS[kind], read()

    # Helpers

    def _note(self, key: str, status: Status, target: str, message: str = "", hint: str = "") -> None:
        self.entries.append((join(self._path, key), status, target, message, hint))

    def _take(self, key: str, target: str = "", value: Any = None, message: str = "") -> Any:
        """Return a value of the data and report it as carried."""
        found = self._data.get(key) if value is None else value
        self._note(key, "carried", f"parameters.{target or key}", message)
        return found

    def _given(self, key: str) -> bool:
        found = self._data.get(key)
        return found is not None and (not isinstance(found, str) or bool(found.strip()))

    def _text(self, text: str) -> str:
        """Translate the references in a text."""
        if "{{" in text:
            return literal_text(text)
        if re.fullmatch(_REFERENCE, text.strip()):
            match = _REFERENCE.fullmatch(text.strip())
            found = self._canvas.reference(self._id, match[1], match[2]) if match else None
            if found is None:
                raise NoCounterpartError(f"`{text.strip()[:60]}` refers to no node")
            return found

        def one(match: re.Match[str]) -> str:
            found = self._canvas.reference(self._id, match[1], match[2])
            return "$" + match[0] if found is None else f"{{{{ {found} }}}}"

        return _REFERENCE.sub(one, text)

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self._resolved(each) for each in value]
        if isinstance(value, dict):
            return {key: self._resolved(each) for key, each in value.items()}
        return value

    def operand(self, text: Any) -> Any:
        """Translate an operand of a rule: a reference, a quoted text, a number, a boolean, null or a text."""
        if not isinstance(text, str):
            return text
        text = text.strip()
        inner = re.fullmatch(r"\{\{(.*)\}\}", text)
        text = inner[1].strip() if inner else text
        if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
            return literal_text(text[1:-1])
        if text.startswith("$"):
            return self._text(text)
        if _NUMBER.match(text):
            return _number(text)
        return {"true": True, "false": False, "null": None, "nil": None}.get(text, literal_text(text))

    # Node types

    def _trigger(self) -> dict[str, Any]:
        if self._kind == "webhookTrigger":
            if not self._given("webhookGuid"):
                return {}
            self._note(
                "webhookGuid",
                "changed",
                "parameters.path",
                "the last part of the address is kept; the server and the beginning of the path differ",
                "give callers the address that `rune triggers` shows",
            )
            return {
                "path": re.sub(r"[^A-Za-z0-9._-]+", "-", str(self._data["webhookGuid"])).strip("-._")[:128]
                or "hook"
            }
        if self._kind == "scheduledTrigger":
            return {key: self._take(key) for key in ("amount", "unit") if self._given(key)} or {"amount": 1}
        return {}

    def _http(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in self._data:
            name = _FORMER.get(key, key)
            if name not in _PASS or not self._given(key) or name in found:
                continue
            value = self._data[key]
            if name == "method":
                value = str(value).upper()
            found[name] = self._resolved(value)
            self._note(key, "carried", f"parameters.{name}")
        if "url" not in found:
            raise NoCounterpartError("the request has no `url`")
        return found

    def _smtp(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in ("from", "to", "cc", "bcc", "subject", "body"):
            if self._given(key):
                value = self._resolved(self._take(key))
                if (
                    key in ("to", "cc", "bcc")
                    and isinstance(value, str)
                    and "," in value
                    and "{{" not in value
                ):
                    value = [each.strip() for each in value.split(",") if each.strip()]
                found[key] = value
        return found

    def _if(self) -> dict[str, Any]:
        if not self._given("expression"):
            raise NoCounterpartError("the condition has no `expression`")
        text = str(self._data["expression"])
        expression, loose = _Condition(self).translate(text)
        if loose:
            self._note("expression", "approximated", "parameters.expression", _UNTYPED)
        else:
            self._note("expression", "carried", "parameters.expression")
        return {"expression": expression}

    def _switch(self) -> dict[str, Any]:
        rules = self._data.get("rules")
        if not isinstance(rules, list) or not rules:
            raise NoCounterpartError("the switch has no `rules`")
        found = []
        for at, rule in enumerate(map(mapping, rules)):
            operator = rule.get("operator") if rule.get("operator") in _OPERATORS else "=="
            left, right = self.operand(rule.get("value")), self.operand(rule.get("compare"))
            found.append({"value": left, "operator": operator, "compare": right})
            self._rule(at, f"rules[{at}]", rule, loose=operator in ("==", "!=") and _is_loose(left, right))
        return {"rules": found}

    def _rule(self, at: int, target: str, rule: dict[str, Any], *, loose: bool) -> None:
        for key in rule:
            if key not in ("value", "operator", "compare", "field"):
                continue
            status: Status = "approximated" if loose and key in ("value", "compare") else "carried"
            place = f"parameters.{target}" if target == "expression" else f"parameters.{target}.{key}"
            self._note(f"rules[{at}].{key}", status, place, _UNTYPED if loose else "")

    def _filter(self) -> dict[str, Any]:
        rules = self._data.get("rules")
        if not isinstance(rules, list) or not rules:
            raise NoCounterpartError("the filter has no `rules`")
        joined = []
        for at, rule in enumerate(map(mapping, rules)):
            operator = rule.get("operator") if rule.get("operator") in _OPERATORS else "=="
            field, right = self._field(str(rule.get("field") or "")), self.operand(rule.get("value"))
            # A missing field matches nothing in the source engine; here it would be an error.
            joined.append(f"exists({field}) and {field} {operator} {_expression_of(right)}")
            self._rule(at, "expression", rule, loose=operator in ("==", "!=") and _is_loose("$item", right))
        word = " or " if self._data.get("match_mode") == "any" else " and "
        if "match_mode" in self._data:
            self._take("match_mode", "expression")
        return {**self._list(), "expression": word.join(f"({each})" for each in joined)}

    def _list(self) -> dict[str, Any]:
        if self._given("input_array"):
            text = str(self._data["input_array"]).strip()
            self._take("input_array")
            return {"input_array": self._text(text if text.startswith("$") else f"${text}")}
        return {"input_array": self._canvas.working_value(self._id)}

    def _field(self, text: str) -> str:
        """Return the expression for a field of an element."""
        text = text.strip()
        base = str(self._data.get("input_array") or "").strip()
        for prefix in ("$item.", f"{base}[0].", f"{base}.") if base else ("$item.",):
            if text.startswith(prefix):
                text = text.removeprefix(prefix)
                break
        text = text.lstrip("$.")
        return f"$item.{text}" if text else "$item"

    def _sort(self) -> dict[str, Any]:
        rules = self._data.get("rules")
        if not isinstance(rules, list) or not rules:
            raise NoCounterpartError("the sort has no `rules`")
        found = []
        for at, rule in enumerate(map(mapping, rules)):
            field = self._field(str(rule.get("field") or "")).removeprefix("$item").lstrip(".")
            if not field:
                raise NoCounterpartError("a rule of the sort has no `field`")
            down = str(rule.get("direction") or "asc").startswith("desc")
            found.append({"field": field, "direction": "desc" if down else "asc"})
            for key in rule:
                if key == "type" and rule[key] not in (None, "auto"):
                    message = f"values are compared as they are, not as {rule[key]}"
                    self._note(f"rules[{at}].type", "approximated", f"parameters.rules[{at}]", message)
                elif key in ("field", "direction", "type"):
                    self._note(f"rules[{at}].{key}", "carried", f"parameters.rules[{at}]")
        return {**self._list(), "rules": found}

    def _limit(self) -> dict[str, Any]:
        if not self._given("count"):
            raise NoCounterpartError("the limit has no `count`")
        count = self._take("count")
        if isinstance(count, str) and count.strip().isdecimal():
            count = _number(count.strip())
        return {**self._list(), "count": self._resolved(count)}

    def _edit(self) -> dict[str, Any]:
        given = self._data.get("assignments")
        if not isinstance(given, list) or not given:
            raise NoCounterpartError("the edit has no `assignments`")
        assignments: list[dict[str, Any]] = []
        for at, each in enumerate(map(mapping, given)):
            target = f"parameters.assignments[{at}]"
            kind = str(each.get("type") or "string")
            value, notes = self._assigned(each.get("value"))
            assignments.append({"name": str(each.get("name") or "value"), "value": value, "type": kind})
            for key in each:
                if key == "value" and notes:
                    self._note(
                        f"assignments[{at}].value", "approximated", f"{target}.value", "; ".join(notes)
                    )
                elif key in ("name", "value", "type"):
                    self._note(f"assignments[{at}].{key}", "carried", f"{target}.{key}")
        found: dict[str, Any] = {"assignments": assignments}
        if "mode" in self._data:
            found["mode"] = self._take("mode")
        if found.get("mode") != "keep_only":
            found["from"] = self._canvas.working_value(self._id)
        return found

    def _assigned(self, value: Any) -> tuple[Any, tuple[str, ...]]:
        if not isinstance(value, str):
            return value, ()
        inner = re.fullmatch(r"\s*\{\{(.+)\}\}\s*", value, re.DOTALL)
        if inner is None:
            return self._text(value), ()
        found = translate(inner[1], _CanvasScope(self._canvas, self._id))
        return f"{{{{ {found.text} }}}}", found.notes

    def _split(self) -> dict[str, Any]:
        if not self._given("array_field"):
            raise NoCounterpartError("the split has no `array_field`")
        text = str(self._take("array_field", "input_array"))
        return {"input_array": self._text(text)}

    def _aggregator(self) -> dict[str, Any]:
        return {}

    def _merge(self) -> dict[str, Any]:
        found = {"wait_mode": self._take("wait_mode")} if self._given("wait_mode") else {}
        if self._given("timeout"):
            found["timeout"] = self._data["timeout"]
            message = "the timeout counts from the first branch that is resolved, also one that is not taken"
            self._note("timeout", "approximated", "parameters.timeout", message)
        return found

    def _wait(self) -> dict[str, Any]:
        return {key: self._take(key) for key in ("amount", "unit") if self._given(key)}

    def _log(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self._given("message"):
            found["message"] = self._resolved(self._take("message"))
        if self._given("level"):
            found["level"] = {"warn": "warning"}.get(str(self._data["level"]), self._data["level"])
            self._take("level")
        return found

    def _datetime(self) -> dict[str, Any]:
        found: dict[str, Any] = {"operation": _DATETIME[self._kind]}
        for key in ("date", "amount", "timezone"):
            if self._given(key):
                found[key] = self._resolved(self._take(key))
        if self._given("unit"):
            found["unit"] = self._take("unit")
            if found["unit"] in ("months", "years"):
                message = "a day that the other month does not have becomes its last day"
                self._note("unit", "approximated", "parameters.unit", message)
        if self._given("format"):
            found["format"] = _strftime(str(self._data["format"]))
            self._take("format")
        return found


_STEPS = {
    "http": "http",
    "smtp": "smtp",
    "if": "conditional",
    "switch": "switch",
    "filter": "filter",
    "sort": "sort",
    "limit": "limit",
    "edit": "edit",
    "split": "split",
    "aggregator": "aggregator",
    "merge": "merge",
    "wait": "wait",
    "log": "log",
}

_GO_LAYOUTS = (
    ("2006", "%Y"), ("January", "%B"), ("Monday", "%A"), ("Jan", "%b"), ("Mon", "%a"), ("MST", "%Z"), ("-07:00", "%z"),
    ("-0700", "%z"), ("Z07:00", "%z"), ("15", "%H"), ("01", "%m"), ("02", "%d"), ("03", "%I"), ("04", "%M"),
    ("05", "%S"), ("06", "%y"), ("PM", "%p"),
)  # fmt: skip


def _strftime(layout: str) -> str:
    """Translate a date layout of Go to a strftime pattern; patterns of strftime are kept."""
    if "%" in layout or not _GO_LAYOUT.search(layout):
        return layout
    names = "|".join(re.escape(each) for each, _ in _GO_LAYOUTS)
    table = dict(_GO_LAYOUTS)
    return re.sub(names, lambda match: table[match[0]], layout)


def _number(text: str) -> float:
    """Return the number that these digits write, as a whole number if they have no point."""
    if len(text) > _MAX_DIGITS:
        raise NoCounterpartError(f"the number `{text[:20]}…` has more than {_MAX_DIGITS} characters")
    return float(text) if "." in text else int(text)


def _is_loose(left: Any, right: Any) -> bool:
    """Return whether two operands may be equal in the source engine but not here: a text and a number."""
    if any(isinstance(each, str) and _NUMBER.match(each) for each in (left, right)):
        return True
    return all(isinstance(each, str) and each.startswith("$") for each in (left, right))


def _expression_of(operand: Any) -> str:
    """Write an operand of a rule as an expression."""
    if isinstance(operand, str):
        if operand.startswith("$") and not operand.startswith("$$"):
            return operand
        operand = operand.replace("$$", "$")
    return quoted(operand)


class _CanvasScope:
    """Names of JavaScript expressions in an `edit`."""

    def __init__(self, canvas: References, node_id: str) -> None:
        self._canvas = canvas
        self._id = node_id

    def resolve(self, base: Any, steps: tuple[Step, ...]) -> tuple[Value, int] | None:
        if not isinstance(base, js.Name) or not base.name.startswith("$"):
            return None
        path = ".$json" if steps and steps[0].name == "$json" else ""
        if base.name == "$json":
            return Value("$item" if self._is_list() else self._canvas.working_value(self._id)), 0
        found = self._canvas.reference(self._id, base.name[1:], path)
        if found is None:
            raise UntranslatableError(f"`{base.name}` refers to no node")
        return Value(found), 1 if path else 0

    def _is_list(self) -> bool:
        return self._canvas.working_value(self._id).endswith(".items")


class _Condition:
    """Translates a condition: comparisons joined by `and`, `or` and `not`, without parentheses."""

    _LOGIC = re.compile(r"""("(?:[^"])*"|'(?:[^'])*')|(?<=\s)(and|or)(?=\s)""")

    def __init__(self, reader: DataReader) -> None:
        self._reader = reader
        self._loose = False

    def translate(self, text: str) -> tuple[str, bool]:
        parts: list[str] = []
        at = 0
        for match in self._LOGIC.finditer(text):
            if match[2]:
                parts += [self._comparison(text[at : match.start()]), match[2]]
                at = match.end()
        parts.append(self._comparison(text[at:]))
        return " ".join(parts), self._loose

    def _comparison(self, text: str) -> str:
        text = text.strip()
        denied = _DENIED.match(text)
        if denied:
            count = len(_DENIAL.findall(denied[0]))
            if count > _MAX_DENIALS:
                raise NoCounterpartError(f"the condition has more than {_MAX_DENIALS} negations in a row")
            return "not " * count + self._comparison(text[denied.end() :])
        for operator in (">=", "<=", "==", "!=", ">", "<", " contains "):
            if operator in text:
                left, right = text.split(operator, 1)
                word = operator.strip()
                sides = [self._side(left), self._side(right)]
                self._loose = self._loose or (word in ("==", "!=") and _is_loose(*sides))
                return f"{_expression_of(sides[0])} {word} {_expression_of(sides[1])}"
        if not text:
            raise NoCounterpartError("the condition is incomplete")
        return _expression_of(self._side(text))

    def _side(self, text: str) -> Any:
        return self._reader.operand(text)


_KEPT_FIELDS = (
    "description",
    "category",
    "icon",
    "tags",
    "author",
    "official",
    "viewport",
    "id",
    "version",
)
"""Fields of a document that are carried over to the metadata."""

_MAKES_JSON = frozenset({"edit", "filter", "sort", "limit"})
_LISTS = frozenset({"filter", "sort", "limit"})
# Fields of nodes and edges that only the drawing uses.
_DRAWN = frozenset(
    [
        "measured",
        "width",
        "height",
        "selected",
        "dragging",
        "positionAbsolute",
        "style",
        "className",
        "zIndex",
        "draggable",
        "selectable",
        "hidden",
        "sourcePosition",
        "targetPosition",
        "animated",
        "labelStyle",
        "labelShowBg",
        "labelBgStyle",
        "labelBgPadding",
        "labelBgBorderRadius",
        "markerEnd",
        "markerStart",
        "interactionWidth",
        "targetHandle",
        "reconnectable",
        "focusable",
    ]
)


def import_canvas(source: Any, *, name: str = "") -> Import:
    """Import a canvas document: `{nodes, edges}`, alone or under `workflow_data` of a template."""
    return _Canvas(source, name).run()


def is_canvas(source: Any) -> bool:
    graph = source.get("workflow_data", source) if isinstance(source, dict) else None
    if not isinstance(graph, dict) or not isinstance(graph.get("nodes"), list):
        return False
    nodes = [each for each in graph["nodes"] if isinstance(each, dict)]
    edges = [each for each in sequence(graph.get("edges")) if isinstance(each, dict)]
    return any("source" in each and "target" in each for each in edges) or any(
        "data" in each and "parameters" not in each for each in nodes
    )


class _Canvas:
    def __init__(self, source: Any, name: str) -> None:
        self._source = source
        self._record = Recorder(source)
        is_template = isinstance(source.get("workflow_data"), dict)
        self._graph: dict[str, Any] = source["workflow_data"] if is_template else source
        self._root = "workflow_data." if is_template else ""
        title = source.get("name") if isinstance(source.get("name"), str) else name
        self._draft = Draft(str(source.get("external_id") or title or "workflow"), title)
        self._ids: dict[str, str] = {}  # canvas id -> node id
        self._placed: dict[str, str] = {}  # path -> node id
        self._words: dict[str, str] = {}  # label as a word -> node id
        self._kinds: dict[str, str] = {}  # node id -> canvas type
        self._before: dict[str, list[str]] = {}  # node id -> predecessors
        self._labelled: Counter[tuple[str, str]] = Counter()  # edges by source and outlet
        self._made: dict[str, dict[str, None]] | None = None

    def run(self) -> Import:
        self._read_top()
        nodes = [each for each in self._parts("nodes") if self._is_step(*each)]
        for path, node in nodes:
            self._name_node(path, node)
        edges = self._parts("edges")
        for _, edge in edges:
            src, dst = (self._ids.get(str(edge.get(end))) for end in ("source", "target"))
            if src and dst:
                self._before.setdefault(dst, []).append(src)
        for path, node in nodes:
            self._read_node(path, node)
        for path, edge in edges:
            self._read_edge(path, edge)
        entries = self._record.finish()
        return Import(self._draft.document(), Report("canvas", entries))

    # Parts of the document

    def _parts(self, key: str) -> list[tuple[str, dict[str, Any]]]:
        found = self._graph.get(key)
        items = found if isinstance(found, list) else []
        return [(f"{self._root}{key}[{at}]", each) for at, each in enumerate(items) if isinstance(each, dict)]

    def _read_top(self) -> None:
        source, kept = self._source, {}
        if isinstance(source.get("name"), str):
            self._record.carried("name", "name")
        if source.get("external_id"):
            self._record.carried("external_id", "id")
        for key in _KEPT_FIELDS:
            for holder, root in ((source, ""), (self._graph, self._root)):
                if key in holder and not is_empty(holder[key]) and (key != "id" or holder is source):
                    kept[key] = holder[key]
                    self._record.carried(join(root.rstrip("."), key), f"metadata.canvas.{key}")
        if kept:
            self._draft.metadata["canvas"] = kept
        for at, note in enumerate(sequence(self._graph.get("notes"))):
            self._draft.notes.append(note)
            self._record.carried(f"{self._root}notes[{at}]", f"notes[{len(self._draft.notes) - 1}]")

    def _is_step(self, path: str, node: dict[str, Any]) -> bool:
        if node.get("type") != "stickyNote":
            return True
        self._draft.notes.append(node)
        self._record.carried(path, f"notes[{len(self._draft.notes) - 1}]", "a note of the drawing")
        return False

    def _name_node(self, path: str, node: dict[str, Any]) -> None:
        data = mapping(node.get("data"))
        kind = str(node.get("type") or "")
        label = data["label"] if isinstance(data.get("label"), str) else ""
        word = _word(label) or _word(kind[:1].upper() + kind[1:]) or "step"
        node_id = self._draft.new_id(word)
        self._ids.setdefault(str(node.get("id")), node_id)
        self._words.setdefault(word, node_id)
        self._kinds[node_id] = kind
        self._placed[path] = node_id

    def _read_node(self, path: str, node: dict[str, Any]) -> None:
        node_id = self._placed[path]
        data = mapping(node.get("data"))
        kind = str(node.get("type") or "")
        kept = {key: node[key] for key in node if key in _DRAWN}
        fields: dict[str, Any] = {"name": data.get("label") if isinstance(data.get("label"), str) else None}
        if "position" in node:
            fields["position"] = node["position"]
        reader = DataReader(self, path, node_id, kind, data)
        try:
            target_type, parameters = reader.read()
        except (NoCounterpartError, UntranslatableError) as error:
            place = self._draft.add_gap(
                node_id, str(error), node, name=fields["name"] or "", position=fields.get("position")
            )
            self._record.by_hand(
                path,
                str(error),
                "replace the node by a node of Rune, or by a custom node",
                place,
            )
            return
        metadata = {
            "canvas": {
                "id": node.get("id"),
                **kept,
                **({"pinned": data["pinned"]} if "pinned" in data else {}),
            }
        }
        place = self._draft.add_node(node_id, target_type, parameters, **fields, metadata=metadata)
        note = (
            "" if node.get("id") == node_id else f"the id is `{node_id}`, by which expressions name the node"
        )
        self._record.carried(f"{path}.id", f"{place}.id", note)
        self._record.carried(f"{path}.type", f"{place}.type")
        if "position" in node:
            self._record.carried(f"{path}.position", f"{place}.position")
        for key in kept:
            self._record.carried(join(path, key), f"{place}.metadata.canvas.{key}")
        if node.get("trigger") is not None:
            self._record.carried(f"{path}.trigger", f"{place}.type")
        for key, name in (("label", "name"), ("pinned", "metadata.canvas.pinned")):
            if key in data:
                self._record.carried(f"{path}.data.{key}", f"{place}.{name}")
        for source, status, target, message, hint in reader.entries:
            self._record.add(source, status, f"{place}.{target}" if target else "", message, hint)
        if isinstance(data.get("credential"), dict):
            self._read_credential(path, place, node_id, data["credential"])

    def _read_credential(self, path: str, place: str, node_id: str, given: dict[str, Any]) -> None:
        reference = {key: str(given[key]) for key in ("name", "type") if given.get(key)}
        if "name" not in reference:
            reference = {"name": f"credential-{given.get('id', node_id)}", **reference}
        self._draft.node(node_id)["credentials"] = reference
        self._record.changed(
            f"{path}.data.credential",
            f"{place}.credentials",
            "a document names a credential and never contains it",
            f"create the credential `{reference['name']}` with `rune credentials`",
        )

    # Edges

    def _read_edge(self, path: str, edge: dict[str, Any]) -> None:
        src, dst = (self._ids.get(str(edge.get(end))) for end in ("source", "target"))
        if src is None or dst is None:
            missing = edge.get("source") if src is None else edge.get("target")
            self._record.by_hand(
                path, f"the edge names `{missing}`, which is no node", "remove the edge, or name a node"
            )
            return
        label = self._outlet(path, edge, src)
        place = self._draft.add_edge(src, dst, label, edge_id=slug(str(edge.get("id") or f"{src}-{dst}")))
        for key, field in (("id", "id"), ("source", "src"), ("target", "dst")):
            if key in edge:
                self._record.carried(f"{path}.{key}", f"{place}.{field}")
        kept = {key: each for key, each in edge.items() if key in _DRAWN or key == "type"}
        if kept:
            drawn = self._draft.metadata.setdefault("canvas", {}).setdefault("edges", {})
            edge_id = self._draft.edges[-1]["id"]
            drawn[edge_id] = kept
            for key in kept:
                self._record.carried(join(path, key), f"metadata.canvas.edges.{edge_id}.{key}")
        if label is None:
            for key in ("sourceHandle", "label"):
                if edge.get(key) is not None:
                    self._record.carried(f"{path}.{key}", place, "the source node has one outlet")
            return
        self._labelled[src, label] += 1
        for key in ("sourceHandle", "label"):
            if edge.get(key) is None:
                continue
            if self._labelled[src, label] > 1:
                self._record.approximated(
                    f"{path}.{key}",
                    f"{place}.label",
                    f"the source engine follows only the first edge of `{label}`",
                )
            else:
                self._record.carried(f"{path}.{key}", f"{place}.label")

    def _outlet(self, path: str, edge: dict[str, Any], src: str) -> str | None:
        handle = str(edge.get("sourceHandle") or edge.get("label") or "").strip().lower()
        kind = self._kinds.get(src)
        if kind == "if":
            return handle if handle in ("true", "false") else None
        if kind != "switch":
            return None
        found = re.fullmatch(r"(?:switch-case-(\d+)|case (\d+))", handle)
        if found:
            return f"case_{found[1] if found[1] else int(found[2]) - 1}"
        return "fallback" if handle in ("switch-fallback", "fallback") else None

    # References

    def working_value(self, node_id: str) -> str:
        """Return the expression for `$json` in a node."""
        if self._made is None:
            self._made = self._find_made()
        found = self._made.get(node_id, {})
        if len(found) > 1:
            raise NoCounterpartError("`$json` is made by several nodes before this one")
        return next(iter(found), "$trigger")

    def _find_made(self) -> dict[str, dict[str, None]]:
        """Return the expressions for `$json` by node, of several the first two. They are passed on along the edges
        from the nodes that make them, once for the whole document: each node receives at most two."""
        found: dict[str, dict[str, None]] = {}
        after: dict[str, list[str]] = {}
        for node_id, sources in self._before.items():
            for each in sources:
                after.setdefault(each, []).append(node_id)
        waiting = [(each, made) for each in self._kinds if (made := self._maker(each)) is not None]
        while waiting:
            source, made = waiting.pop()
            for node_id in after.get(source, ()):
                known = found.setdefault(node_id, {})
                if made not in known and len(known) < 2:
                    known[made] = None
                    if self._maker(node_id) is None:
                        waiting.append((node_id, made))
        return found

    def _maker(self, node_id: str) -> str | None:
        """Return the expression for what a node makes `$json`; None if it does not."""
        kind = self._kinds.get(node_id)
        if kind == "split":
            return "$item"
        if kind not in _MAKES_JSON:
            return None
        return f"${node_id}.items" if kind in _LISTS else f"${node_id}"

    def reference(self, node_id: str, root: str, path: str) -> str | None:
        """Return the expression for `$root.path`; None if the root is no name of the document."""
        if root in ("item", "index", "trigger"):
            return f"${root}{path}"
        if root == "json":
            return self.working_value(node_id) + path
        # An id may contain dashes, so that a reference may be followed by one.
        target = self._words.get(root)
        if target is None:
            return None
        if self._kinds[target] in _MAKES_JSON and path.startswith(".$json"):
            return (
                f"${target}{'.items' if self._kinds[target] in _LISTS else ''}{path.removeprefix('.$json')}"
            )
        return f"${target}{path}"


def _word(label: str) -> str:
    """Write a label as the word that references use."""
    word = re.sub(r"_+", "_", re.sub(r"[^a-zA-Z0-9_-]", "_", re.sub(r"\s+", "_", label.strip())))
    return re.sub(r"^[-0-9]+", "", word)
