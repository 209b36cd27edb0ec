"""n8n's nodes that work on one item at a time, with the conditions of If, Filter and Switch as Rune expressions, and
those that work on the list of all items.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from rune.documents.importers.draft import literal, literal_text, mapping, sequence
from rune.documents.importers.javascript import UntranslatableError, number_in
from rune.documents.importers.n8n.reader import (
    Flow,
    Output,
    StepReader,
    error_output,
    parsed_json,
    whole_number,
)
from rune.documents.importers.source import ignore
from rune.documents.importers.translate import Translation, path_of, quoted

_UNITS = ("seconds", "minutes", "hours", "days")

Operand = Callable[[Any], Translation]
"""Translates an operand to an expression."""

_FORMER_OPERATIONS = {
    "equal": "equals", "notEqual": "notEquals", "larger": "gt", "largerEqual": "gte", "smaller": "lt",
    "smallerEqual": "lte", "isEmpty": "empty", "isNotEmpty": "notEmpty",
}  # fmt: skip

_FORMER_DEFAULTS = {"string": "equal", "number": "smaller", "boolean": "equal"}
_DENIED = {
    "notEquals": "equals", "notContains": "contains", "notStartsWith": "startsWith", "notEndsWith": "endsWith",
    "notRegex": "regex", "notExists": "exists", "notEmpty": "empty",
}  # fmt: skip

_ORDER = {
    "gt": ">", "lt": "<", "gte": ">=", "lte": "<=", "after": ">", "before": "<", "afterOrEquals": ">=",
    "beforeOrEquals": "<=",
}  # fmt: skip

_LENGTHS = {
    "lengthEquals": "==", "lengthNotEquals": "!=", "lengthGt": ">", "lengthLt": "<", "lengthGte": ">=",
    "lengthLte": "<=",
}  # fmt: skip

_PLAIN = re.compile(r'[$\w.]+|-?[\d.]+|"[^"\\]*"')
_OPTIONAL = re.compile(r"[$\w.]+ \?\? null")
_SLASHES = "a pattern between slashes, with flags behind it, is not read as such"
_DATES = "dates are compared as texts; both must be written in the same way"


def read_set(step: StepReader) -> list[Output]:
    keep_only = not _keeps_others(step)
    if step.at("mode") == "raw":
        return _set_raw(step, keep_only=keep_only)
    step.carried("mode", "type")
    assignments = _assignments(step)
    parameters: dict[str, Any] = {"assignments": assignments}
    if keep_only:
        parameters["mode"] = "keep_only"
    else:
        parameters["from"] = f"{{{{ {step.flow.text} }}}}"
    step.add("edit", parameters)
    return [*step.out(), *error_output(step)]


def _keeps_others(step: StepReader) -> bool:
    """Return whether fields of the item that are not set stay."""
    if step.version < 3:
        step.carried("keepOnlySet", "parameters")
        return not step.at("keepOnlySet")
    if step.at("include") in ("selected", "except"):
        raise UntranslatableError("choosing the other fields by name has no counterpart")
    step.carried("include", "parameters")
    step.carried("includeOtherFields", "parameters")
    if step.at("includeOtherFields") is not None:
        return bool(step.at("includeOtherFields"))
    return step.version < 3.3 and step.at("include") != "none"


def _assignments(step: StepReader) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def assign(base: str, name: Any, kind: str, key: str) -> None:
        at = f"parameters.assignments[{len(found)}]"
        keeps_null = kind == "string" and step.version > 3
        value = step.text_or_null(key, f"{at}.value") if keeps_null else step.value(key, f"{at}.value")
        if (
            kind in ("array", "object")
            and isinstance(step.at(key), str)
            and not str(step.at(key)).startswith("=")
        ):
            value = literal(parsed_json(step.at(key)))
        # A conversion to a text would make an empty one of null.
        is_typed = bool(kind) and not str(value).startswith("{{ null if ")
        target = step.name_of(name, f"{base}.name", f"{at}.name")
        found.append({"name": target or "value", "value": value, **({"type": kind} if is_typed else {})})
        ignore(step.at(base), "id")
        step.carried(f"{base}.id", at)
        step.carried(f"{base}.type", f"{at}.type" if is_typed else at)

    dotted = step.at("options.dotNotation")
    if dotted is False:
        raise UntranslatableError("dots in names denote nesting; `dotNotation: false` has no counterpart")
    step.carried("options.dotNotation", "parameters.assignments")
    listed = step.at("assignments.assignments")
    for at, each in enumerate(listed if isinstance(listed, list) else []):
        base = f"assignments.assignments[{at}]"
        if isinstance(each, dict):
            assign(base, each.get("name"), str(each.get("type") or "string"), f"{base}.value")
    listed = step.at("fields.values")
    for at, each in enumerate(listed if isinstance(listed, list) else []):
        base = f"fields.values[{at}]"
        if isinstance(each, dict):
            kind = str(each.get("type") or "stringValue")
            assign(base, each.get("name"), kind.removesuffix("Value"), f"{base}.{kind}")
    for kind in ("string", "number", "boolean"):
        listed = step.at(f"values.{kind}")
        for at, each in enumerate(listed if isinstance(listed, list) else []):
            base = f"values.{kind}[{at}]"
            if isinstance(each, dict):
                assign(base, each.get("name"), kind, f"{base}.value")
    return found


def _set_raw(step: StepReader, *, keep_only: bool) -> list[Output]:
    step.carried("mode", "type")
    value = parsed_json(step.at("jsonOutput"))
    if isinstance(value, dict):
        source = f"merge({step.flow.text}, {quoted(value)})" if not keep_only else quoted(value)
        step.carried("jsonOutput", "parameters.from")
    else:
        found = step.expression(value, raw=True)
        text = f"parse_json({found.text})" if found.kind == "text" else found.text
        source = text if keep_only else f"merge({step.flow.text}, {text})"
        step.noted("jsonOutput", "parameters.from", found.notes)
    step.add("edit", {"from": f"{{{{ {source} }}}}"})
    return [*step.out(), *error_output(step)]


def read_if(step: StepReader) -> list[Output]:
    _condition(step)
    return [Output(step.id, step.flow, "true"), Output(step.id, step.flow, "false")]


def read_filter(step: StepReader) -> list[Output]:
    if not step.flow.many:
        _condition(step)
        return [Output(step.id, step.flow, "true")]
    parameters = {
        "input_array": f"{{{{ {step.flow.list_text} }}}}",
        "expression": _conditions(step, element=True),
    }
    step.add("filter", parameters)
    return step.out(f"${step.id}.items", many=True)


def _condition(step: StepReader) -> None:
    step.add("conditional", {"expression": _conditions(step)})


def _conditions(step: StepReader, *, element: bool = False) -> str:
    found = conditions_of(
        step.parameters, lambda value: step.expression(value, element=element), former=step.version < 2
    )
    for key in ("conditions", "combineOperation", "combinator"):
        if step.at(key) is not None:
            step.noted(key, "parameters.expression", found.notes)
    for key in ("options.ignoreCase", "looseTypeValidation", "options.looseTypeValidation"):
        if step.at(key) is not None:
            step.note(
                "approximated", key, "parameters.expression", "values are compared with their types and case"
            )
    return found.text


def read_switch(step: StepReader) -> list[Output]:
    mode = step.at("mode") or "rules"
    step.carried("mode", "type")
    rules: list[str] = []
    order: list[int] = []
    if mode == "expression":
        chosen = step.expression(step.at("output"))
        step.noted("output", "parameters.rules", chosen.notes)
        for key in ("numberOutputs", "outputsAmount"):
            step.carried(key, "parameters.rules")
        count = whole_number(step.at("numberOutputs") or step.at("outputsAmount"), 4)
        if count > 100:
            raise UntranslatableError("more than 100 outputs")
        # n8n fails for an output that does not exist; an index may be a text.
        known = ", ".join(f'{at}, "{at}"' for at in range(count))
        rules = [f'({chosen.text}) in [{at}, "{at}"]' for at in range(count)]
        if rules:
            rules[0] = (
                f"({rules[0]}) if ({chosen.text}) in [{known}] else {failing('the output does not exist')}"
            )
        order = list(range(count))
    elif step.version >= 3:
        rules, order = _switch_rules(step)
    else:
        rules, order = _former_rules(step)
    if not rules:
        raise UntranslatableError("the switch has no rules")
    if step.at("options.allMatchingOutputs"):
        raise UntranslatableError("a switch takes one output; `allMatchingOutputs` has no counterpart")
    step.carried("options.allMatchingOutputs", "type")
    step.add(
        "switch",
        {"rules": [{"value": f"{{{{ {each} }}}}", "operator": "==", "compare": True} for each in rules]},
    )
    return _switch_outputs(step, order)


def _switch_rules(step: StepReader) -> tuple[list[str], list[int]]:
    listed = step.at("rules.values")
    rules: list[str] = []
    for at, each in enumerate(listed if isinstance(listed, list) else []):
        found = conditions_of(each if isinstance(each, dict) else {}, step.expression, former=False)
        rules.append(found.text)
        step.noted(f"rules.values[{at}].conditions", f"parameters.rules[{at}]", found.notes)
        for key in ("renameOutput", "outputKey"):
            step.carried(
                f"rules.values[{at}].{key}", f"parameters.rules[{at}]", "outlets are named by their position"
            )
    if step.at("options.ignoreCase") is not None:
        step.note("approximated", "options.ignoreCase", "parameters.rules", "upper and lower case differ")
    return rules, list(range(len(rules)))


def _former_rules(step: StepReader) -> tuple[list[str], list[int]]:
    kind = str(step.at("dataType") or "number")
    listed = step.at("rules.rules")
    rules: list[str] = []
    order: list[int] = []
    for at, each in enumerate(listed if isinstance(listed, list) else []):
        found = former_rule(kind, each if isinstance(each, dict) else {}, step.at("value1"), step.expression)
        rules.append(found.text)
        order.append(whole_number(each.get("output") if isinstance(each, dict) else None, at))
        if order[-1] > 100:
            raise UntranslatableError("more than 100 outputs")
        step.noted(f"rules.rules[{at}]", f"parameters.rules[{at}]", found.notes)
    for key in ("dataType", "value1"):
        step.carried(key, "parameters.rules")
    return rules, order


def _switch_outputs(step: StepReader, order: list[int]) -> list[Output]:
    """Return the outputs by index; `order` has the output of each rule."""
    fallback = step.at("options.fallbackOutput")
    if fallback is None:
        fallback = step.at("fallbackOutput")
    for key in ("options.fallbackOutput", "fallbackOutput", "options.renameFallbackOutput"):
        step.carried(key, "type")
    outputs = [
        Output(step.id, step.flow, f"case_{order.index(at)}" if at in order else "fallback")
        for at in range(max(order) + 1)
    ]
    if len(set(order)) != len(order) or (isinstance(fallback, int) and 0 <= fallback < len(outputs)):
        raise UntranslatableError("two rules lead to one output")
    if fallback == "extra":
        outputs.append(Output(step.id, step.flow, "fallback"))
    return outputs


def read_wait(step: StepReader) -> list[Output]:
    resume = step.at("resume") or "timeInterval"
    if resume == "timeInterval":
        unit = step.at("unit") or ("seconds" if step.version >= 1.1 else "hours")
        if unit not in _UNITS:
            raise UntranslatableError(f"waiting in `{unit}` has no counterpart")
        amount = (
            step.value("amount", "parameters.amount")
            if step.at("amount") is not None
            else (5 if step.version >= 1.1 else 1)
        )
        step.carried("unit", "parameters.unit")
        step.carried("resume", "parameters.resume")
        step.add("wait", {"resume": "time_interval", "amount": amount, "unit": unit})
        return step.same()
    if resume == "specificTime":
        step.carried("resume", "parameters.resume")
        step.add("wait", {"resume": "date_time", "date_time": step.value("dateTime", "parameters.date_time")})
        return step.same()
    if resume != "webhook":
        raise UntranslatableError(f"waiting for a `{resume}` has no counterpart")
    step.note(
        "changed", "resume", "parameters.resume", "a signal resumes the execution in place of a call of the resume URL",
        f"send the signal `{step.id}` with `rune signal` or the API",
    )  # fmt: skip
    step.add("wait", {"resume": "signal", "name": step.id})
    return [Output(step.id, Flow(False, f"${step.id}"))]


def read_noop(step: StepReader) -> list[Output]:
    step.add("noop")
    return step.same()


def read_stop(step: StepReader) -> list[Output]:
    key = "errorObject" if step.at("errorType") == "errorObject" else "errorMessage"
    step.carried("errorType", "type")
    message = step.value(key, "parameters.message") if step.at(key) else "stopped"
    step.add("fail", {"message": message, "code": "STOPPED"})
    return step.out()


def read_respond(step: StepReader) -> list[Output]:
    wanted = step.at("respondWith") or "firstIncomingItem"
    arriving = step.flow
    # The node responds once; what it reads of an item is read of the first.
    step.flow = Flow(False, f"({arriving.text})[0]") if arriving.many else arriving
    if wanted in ("firstIncomingItem", "allIncomingItems"):
        text = step.flow.text if wanted == "firstIncomingItem" else arriving.list_text
        value: Any = f"{{{{ {text} }}}}"
        step.carried("respondWith", "parameters.value")
    elif wanted in ("json", "text"):
        body, notes = step.template(parsed_json(step.at("responseBody")))
        step.noted("responseBody", "parameters.value", notes)
        step.carried("respondWith", "parameters.value")
        value = body
    elif wanted == "noData":
        step.carried("respondWith", "parameters.value")
        value = None
    else:
        raise UntranslatableError(f"responding with `{wanted}` has no counterpart")
    if step.at("options.responseCode") not in (None, 200):
        step.note(
            "by_hand",
            "options.responseCode",
            "",
            "the status of the response cannot be set",
            "return it in the body",
        )
    else:
        step.carried("options.responseCode", "")
    step.note("approximated", "", "type", "the caller gets the result of the execution when it has ended")
    step.add("output", {"value": value})
    return [Output(step.id, arriving)]


def conditions_of(given: Mapping[str, Any], operand: Operand, *, former: bool) -> Translation:
    """Translate a set of conditions; `former` selects the layout of version 1 of the nodes."""
    notes: list[str] = []
    if former:
        word = " or " if given.get("combineOperation") == "any" else " and "
        parts = list(_former(given.get("conditions"), operand, notes))
    else:
        conditions = mapping(given.get("conditions"))
        word = " or " if conditions.get("combinator") == "or" else " and "
        options = mapping(conditions.get("options"))
        ignore(options, "leftValue", "version")
        fold = bool(options) and not options.get("caseSensitive")
        strict = options.get("typeValidation", "strict") == "strict"
        parts = [
            _rule(each, operand, notes, fold=fold, strict=strict)
            for each in sequence(conditions.get("conditions"))
        ]
    if not parts:
        return Translation("true")
    text = parts[0] if len(parts) == 1 else word.join(f"({each})" for each in parts)
    return Translation(text, tuple(dict.fromkeys(notes)), "boolean")


def _former(given: Any, operand: Operand, notes: list[str]) -> Any:
    for kind, rules in mapping(given).items():
        for rule in map(mapping, sequence(rules)):
            operation = str(rule.get("operation") or _FORMER_DEFAULTS.get(kind, "equal"))
            operation = _FORMER_OPERATIONS.get(operation, operation)
            left = operand(rule.get("value1"))
            yield _compare(kind, operation, left, rule.get("value2"), operand, notes, former=True)


def former_rule(kind: str, rule: Mapping[str, Any], left: Any, operand: Operand) -> Translation:
    """Translate one rule of a former Switch node."""
    notes: list[str] = []
    operation = str(rule.get("operation") or _FORMER_DEFAULTS.get(kind, "equal"))
    operation = _FORMER_OPERATIONS.get(operation, operation)
    text = _compare(kind, operation, operand(left), rule.get("value2"), operand, notes, former=True)
    return Translation(text, tuple(notes), "boolean")


def _rule(given: Any, operand: Operand, notes: list[str], *, fold: bool, strict: bool) -> str:
    given = mapping(given)
    operator = mapping(given.get("operator"))
    ignore(given, "id")
    ignore(operator, "name", "singleValue", "rightType")
    kind, operation = str(operator.get("type") or "string"), str(operator.get("operation") or "equals")
    left = operand(given.get("leftValue"))
    right = given.get("rightValue")
    text = _compare(kind, operation, left, right, operand, notes, fold=fold)
    checked = [(kind, left)]
    if isinstance(right, str) and right.startswith("=") and operation not in _OF_ONE:
        checked.append((_right_kind(kind, operation), operand(right)))
    guards = [
        f'type({each.text}) in ["{wanted}", "null"]'
        for wanted, each in checked
        if wanted in _KINDS and each.kind != _KINDS[wanted]
    ]
    if not guards:
        return text
    if not strict:
        notes.append(_CONVERTED)
        return text
    wrong = failing(f"wrong type: not a {kind}")
    return f"({text}) if {' and '.join(guards)} else {wrong}"


_KINDS = {"string": "text", "number": "number", "boolean": "boolean", "array": "list", "object": "object"}
_OF_ONE = frozenset({"exists", "notExists", "empty", "notEmpty", "true", "false"})
_CONVERTED = "n8n converts values to the type of the condition; here they are compared as they are"


def _right_kind(kind: str, operation: str) -> str:
    if operation in _LENGTHS:
        return "number"
    return "" if kind == "array" else kind


def _compare(
    kind: str,
    operation: str,
    left: Translation,
    right: Any,
    operand: Operand,
    notes: list[str],
    *,
    fold: bool = False,
    former: bool = False,
) -> str:
    notes.extend(left.notes)
    if operation in _DENIED:
        inner = _compare(kind, _DENIED[operation], left, right, operand, notes, fold=fold, former=former)
        return f"not ({inner})"
    single = _single(kind, operation, left.text, former=former)
    if single:
        return single
    value = operand(right)
    notes.extend(value.notes)
    other = _typed("number" if operation in _LENGTHS else kind, value)
    subject = _without_null(left, kind, operation, former=former)
    if kind == "string" and not former and value.kind != "text":
        other = _without_null(value, kind, operation, former=former)
    if operation in _LENGTHS:
        return f"len({subject}) {_LENGTHS[operation]} {other}"
    if kind == "dateTime":
        notes.append(_DATES)
    if operation == "regex":
        other = _pattern(value, other, notes)
    if fold and kind == "string":
        subject = f"lower(str({subject}))"
        other = other if operation == "regex" else f"lower(str({other}))"
    path = subject.removesuffix(" ?? null")
    if kind == "number" and operation in _ORDER and not former and _OPTIONAL.fullmatch(subject):
        # A missing value is neither more nor less than a number, and null counts as 0.
        return f"exists({path}) and {_binary(f'{path} ?? 0', operation, other)}"
    return _binary(subject, operation, other)


def failing(reason: str) -> str:
    """Return an expression that fails."""
    return f"int({quoted(reason)})"


def _binary(subject: str, operation: str, other: str) -> str:
    if operation == "equals":
        return f"{_side(subject)} == {_side(other)}"
    if operation in _ORDER:
        return f"{_side(subject)} {_ORDER[operation]} {_side(other)}"
    if operation == "contains":
        return f"{_side(subject)} contains {_side(other)}"
    words = {"startsWith": "starts_with", "endsWith": "ends_with", "regex": "matches"}
    if operation not in words:
        raise UntranslatableError(f"the condition `{operation}` has no counterpart")
    return f"{words[operation]}({subject}, {other})"


def _single(kind: str, operation: str, subject: str, *, former: bool) -> str:
    """Translate a condition on one value; empty if the operation takes two."""
    if operation == "exists":
        return f"{_side(subject)} != null"
    if operation == "empty" and former:
        return f'{_side(subject)} in [null, "", [], {{}}]'
    if operation == "empty":
        # A number or boolean is empty if there is none; 0 and false are values.
        return (
            f"not {_side(subject)}" if kind in ("string", "array", "object") else f"{_side(subject)} == null"
        )
    if operation == "true":
        return f"{_side(subject)} == true"
    return f"not {_side(subject)}" if operation == "false" else ""


def _without_null(value: Translation, kind: str, operation: str, *, former: bool) -> str:
    """Return a side of a condition with the value that n8n puts in place of null."""
    if former:
        in_place = '""' if operation in ("contains", "regex") else "0" if operation in _ORDER else ""
    else:
        in_place = {"string": '""', "array": "[]"}.get(kind, "")
    if not in_place or value.kind:
        return value.text
    text = value.text.removesuffix(" ?? null") if _OPTIONAL.fullmatch(value.text) else f"({value.text})"
    return f"{text} ?? {in_place}"


def _pattern(value: Translation, text: str, notes: list[str]) -> str:
    """Return a regular expression; n8n reads one between slashes with its flags."""
    if not value.text.startswith('"') or value.kind != "text":
        notes.append(_SLASHES)
        return text
    found = re.fullmatch(r"/(.*?)/([gimusy]*)", json.loads(value.text), re.DOTALL)
    if found is None:
        return text
    flags = "".join(each for each in found[2] if each in "ims")
    return quoted(f"(?{flags}){found[1]}" if flags else found[1])


def _typed(kind: str, value: Translation) -> str:
    """Write a literal right side with the type of the condition: n8n stores numbers as texts at times."""
    if kind == "number" and value.text.startswith('"'):
        inner = value.text.strip('"')
        try:
            number = number_in(inner.strip().lstrip("+-"))
            return quoted(-number if inner.strip().startswith("-") else number)
        except UntranslatableError:
            return value.text
    return value.text


def _side(text: str) -> str:
    """Return an operand of a comparison, in parentheses unless it is a path or a literal."""
    return text if _PLAIN.fullmatch(text) else f"({text})"


_MAX_INPUTS = 100
_NO_ITEMS = "n8n does not run this node, and none behind it, if no item arrives; here it gives empty lists"
_CASE = "n8n sorts texts without regard to case; here capital letters come before small ones"
_DEEP = "n8n merges objects that have the same name in both items; here that of the second item replaces the first"


def read_sort(step: StepReader) -> list[Output]:
    step.carried("type", "type")
    if (step.at("type") or "simple") != "simple":
        raise UntranslatableError(f"sorting by `{step.at('type')}` has no counterpart")
    listed = step.at("sortFieldsUi.sortField")
    rules = []
    for at, each in enumerate(listed if isinstance(listed, list) else []):
        down = isinstance(each, dict) and each.get("order") == "descending"
        rules.append(
            {
                "field": literal_text(str(each.get("fieldName") if isinstance(each, dict) else "")),
                "direction": "desc" if down else "asc",
            }
        )
        for key in ("fieldName", "order"):
            step.carried(f"sortFieldsUi.sortField[{at}].{key}", f"parameters.rules[{at}]")
    if not rules or not all(each["field"] for each in rules):
        raise UntranslatableError("the sort names no field")
    step.note("approximated", "", "type", _CASE)
    step.add("sort", {"input_array": f"{{{{ {step.flow.list_text} }}}}", "rules": rules})
    return step.out(f"${step.id}.items", many=True)


def read_limit(step: StepReader) -> list[Output]:
    count, notes = step.template(step.at("maxItems") if step.at("maxItems") is not None else 1)
    step.noted("maxItems", "parameters.count", notes)
    step.carried("keep", "parameters.input_array")
    items = step.flow.list_text
    if step.at("keep") == "lastItems":
        if not isinstance(count, int):
            raise UntranslatableError("a number of last items that is an expression has no counterpart")
        items = f"({items})[-{count}:]"
    step.add("limit", {"input_array": f"{{{{ {items} }}}}", "count": count})
    return step.out(f"${step.id}.items", many=True)


def _keys(text: str, base: str) -> str:
    return path_of(base, list(text.split(".")))


def read_split_out(step: StepReader) -> list[Output]:
    field = step.at("fieldToSplitOut")
    if not isinstance(field, str) or "," in field or field.startswith("="):
        raise UntranslatableError("splitting out several fields has no counterpart")
    field = field.strip().removeprefix("$json.")
    destination = step.at("options.destinationFieldName")
    include = step.at("include") or "noOtherFields"
    if include not in ("noOtherFields", "allOtherFields"):
        raise UntranslatableError(f"splitting out with `{include}` has no counterpart")
    for key in ("fieldToSplitOut", "include", "options.destinationFieldName"):
        step.carried(key, "parameters.assignments")
    given = _keys(field, "each")
    value = f'(values({given}) if type({given}) == "object" else {given})'
    wrapped = f"{{{quoted(destination or field)}: part}}"
    if include == "allOtherFields":
        made = f"merge({_without(field) if destination else 'each'}, {wrapped})"
        if "." in field:
            raise UntranslatableError(
                "splitting out a field of an object with all other fields has no counterpart"
            )
    else:
        made = wrapped if destination else f'part if type(part) == "object" else {wrapped}'
    text = f"[{made} for each in {step.flow.list_text} for part in {value}]"
    step.add("edit", {"mode": "keep_only", "assignments": [{"name": "items", "value": f"{{{{ {text} }}}}"}]})
    return step.out(f"${step.id}.items", many=True)


def _without(field: str) -> str:
    """Return the expression of an item without one of its fields."""
    return f"{{key: value for key, value in items(each) if key != {quoted(field)}}}"


def read_aggregate(step: StepReader) -> list[Output]:
    assignments: list[dict[str, Any]] = []
    items = step.flow.list_text
    if step.at("aggregate") == "aggregateAllItemData":
        if (step.at("include") or "allFields") != "allFields":
            raise UntranslatableError("choosing fields by name has no counterpart")
        name = literal_text(str(step.at("destinationFieldName") or "data"))
        assignments = [{"name": name, "value": f"{{{{ {items} }}}}"}]
        for key in ("aggregate", "destinationFieldName", "include"):
            step.carried(key, "parameters.assignments")
    else:
        step.carried("aggregate", "parameters.assignments")
        listed = step.at("fieldsToAggregate.fieldToAggregate")
        for at, each in enumerate(listed if isinstance(listed, list) else []):
            base = f"fieldsToAggregate.fieldToAggregate[{at}]"
            field = str(each.get("fieldToAggregate") if isinstance(each, dict) else "")
            is_renamed = isinstance(each, dict) and each.get("renameField")
            wanted = each.get("outputFieldName") if is_renamed else None
            name = literal_text(str(wanted or field.rpartition(".")[2]))
            # Items without the field, or with null, are left out, as in n8n.
            text = f"[{_keys(field, 'each')} for each in {items} if ({_keys(field, 'each')} ?? null) != null]"
            assignments.append({"name": name, "value": f"{{{{ {text} }}}}"})
            for key in ("fieldToAggregate", "renameField", "outputFieldName"):
                step.carried(f"{base}.{key}", f"parameters.assignments[{at}]")
    if not assignments:
        raise UntranslatableError("the aggregation names no field")
    if step.flow.many:
        step.note("approximated", "", "type", _NO_ITEMS, "put a `conditional` before it if there may be none")
    step.add("edit", {"mode": "keep_only", "assignments": assignments})
    return step.out()


def read_remove_duplicates(step: StepReader) -> list[Output]:
    if (step.at("compare") or "allFields") != "allFields" or step.at("operation") not in {
        None,
        "removeDuplicateInputItems",
    }:
        raise UntranslatableError("comparing chosen fields, or with earlier executions, has no counterpart")
    for key in ("compare", "operation"):
        step.carried(key, "parameters.assignments")
    text = f"unique({step.flow.list_text})"
    step.add("edit", {"mode": "keep_only", "assignments": [{"name": "items", "value": f"{{{{ {text} }}}}"}]})
    return step.out(f"${step.id}.items", many=True)


def read_merge(step: StepReader) -> list[Output]:
    importer = step.importer
    links = importer.links.into(step.name)
    if step.node.get("executeOnce"):
        raise UntranslatableError("a merge that runs once, for the first item, has no counterpart")
    count = max([2, *(link.input + 1 for link in links)])
    if count > _MAX_INPUTS:
        raise UntranslatableError(f"more than {_MAX_INPUTS} inputs")
    flows = [
        importer.merged([link for link in links if link.input == at], step.name, tells=True)
        if any(link.input == at for link in links)
        else None
        for at in range(count)
    ]
    given = [each for each in flows if each is not None]
    if not given:
        raise UntranslatableError("nothing is connected to the merge")
    mode = step.at("mode") or "append"
    step.carried("mode", "type")
    step.carried("numberInputs", "type")
    kind = step.at("combineBy") or step.at("combinationMode")
    for key in ("combineBy", "combinationMode"):
        step.carried(key, "parameters")
    if mode == "append":
        return _joined(step, " + ".join(_present(each) for each in given))
    if mode == "chooseBranch":
        wanted = step.at("useDataOfInput") or 1
        chosen = flows[int(wanted) - 1] if str(wanted).isdigit() and int(wanted) <= count else None
        if chosen is None or step.at("output") == "empty":
            raise UntranslatableError("the chosen branch is not connected")
        for key in ("useDataOfInput", "output", "chooseBranchMode"):
            step.carried(key, "type")
        step.add("noop")
        return [Output(step.id, chosen)]
    if mode in ("combine", "mergeByPosition", "multiplex") and len(given) == 2:
        return _combined(step, kind or mode, given)
    raise UntranslatableError(f"merging with `{kind or mode}` has no counterpart")


def _combined(step: StepReader, kind: str, flows: list[Flow]) -> list[Output]:
    one, two = flows
    step.note("approximated", "", "parameters", _DEEP)
    if kind in ("combineByPosition", "mergeByPosition"):
        if not one.many and not two.many:
            step.add("edit", {"from": f"{{{{ merge({one.text}, {two.text}) }}}}"})
            return step.out()
        return _joined(step, f"[merge(a, b) for a, b in zip({one.list_text}, {two.list_text})]")
    if kind in ("combineAll", "multiplex"):
        return _joined(step, f"[merge(a, b) for a in {one.list_text} for b in {two.list_text}]")
    raise UntranslatableError("merging by matching fields has no counterpart")


def _joined(step: StepReader, text: str) -> list[Output]:
    step.add("edit", {"mode": "keep_only", "assignments": [{"name": "items", "value": f"{{{{ {text} }}}}"}]})
    return step.out(f"${step.id}.items", many=True)


def _present(flow: Flow) -> str:
    """Return the list of a branch, which is empty if the branch did not run."""
    if flow.many:
        return f"({flow.text} ?? [])"
    return f"([{flow.text}] if exists({flow.text}) else [])"


def read_loop(step: StepReader) -> list[Output]:
    importer = step.importer
    region, _ = importer.loops[step.name]
    if step.at("options.reset"):
        raise UntranslatableError("resetting a loop has no counterpart")
    size = step.at("batchSize")
    size = size if isinstance(size, int) and size > 0 else (1 if step.version >= 2 else 10)
    region.items, region.batch = step.flow.list_text, size
    step.add("split", {"input_array": f"{{{{ {step.flow.list_text} }}}}", "max_in_flight": min(size, 10_000)})
    if size > 1:
        step.note(
            "approximated",
            "batchSize",
            "parameters.max_in_flight",
            f"up to {size} items are in work at once, one by one instead of in batches",
        )
    else:
        step.carried("batchSize", "parameters.max_in_flight")
    step.carried("options.reset", "type")
    return []
