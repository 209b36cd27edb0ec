"""The data of nodes of a canvas document: parameters and references become expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from rune.core.definition.strict_json import join
from rune.documents.importers.canvas.conditions import (
    NUMBER,
    CanvasScope,
    Condition,
    NoCounterpartError,
    References,
    expression_of,
    is_loose,
)
from rune.documents.importers.draft import (
    Status,
    literal_text,
    mapping,
)
from rune.documents.importers.translate import path_of, translate

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
_MAX_DIGITS = 18
_OPERATORS = ("==", "!=", ">", "<", ">=", "<=", "contains")
_UNTYPED = "numbers and texts with the same digits are equal in the source engine; here they differ"
_GO_LAYOUT = re.compile(r"2006|15:04|Jan|Mon|MST")


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
        if NUMBER.match(text):
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
        expression, loose = Condition(self.operand).translate(text)
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
            self._rule(at, f"rules[{at}]", rule, loose=operator in ("==", "!=") and is_loose(left, right))
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
            joined.append(f"exists({field}) and {field} {operator} {expression_of(right)}")
            self._rule(at, "expression", rule, loose=operator in ("==", "!=") and is_loose("$item", right))
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

    def _field_path(self, text: str) -> str:
        """Return the dotted path of a field of an element."""
        text = text.strip()
        base = str(self._data.get("input_array") or "").strip()
        for prefix in ("$item.", f"{base}[0].", f"{base}.") if base else ("$item.",):
            if text.startswith(prefix):
                text = text.removeprefix(prefix)
                break
        return text.lstrip("$.")

    def _field(self, text: str) -> str:
        """Return the expression for a field of an element."""
        text = self._field_path(text)
        if text and not _PATH.fullmatch(text):
            return path_of("$item", list(text.split(".")))
        return f"$item.{text}" if text else "$item"

    def _sort(self) -> dict[str, Any]:
        rules = self._data.get("rules")
        if not isinstance(rules, list) or not rules:
            raise NoCounterpartError("the sort has no `rules`")
        found = []
        for at, rule in enumerate(map(mapping, rules)):
            field = literal_text(self._field_path(str(rule.get("field") or "")))
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
            name = literal_text(str(each.get("name") or "value"))
            assignments.append({"name": name, "value": value, "type": kind})
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
        found = translate(inner[1], CanvasScope(self._canvas, self._id))
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

_PATH = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\[[0-9]+\])*")

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
