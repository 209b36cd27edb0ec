"""n8n's nodes that work on the list of all items."""

from __future__ import annotations

from typing import Any

from rune.documents.importers.javascript import UntranslatableError
from rune.documents.importers.n8n.reader import Output, StepReader
from rune.documents.importers.n8n.scope import Flow
from rune.documents.importers.translate import path_of, quoted

_MAX_INPUTS = 100


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
                "field": str(each.get("fieldName") if isinstance(each, dict) else ""),
                "direction": "desc" if down else "asc",
            }
        )
        for key in ("fieldName", "order"):
            step.carried(f"sortFieldsUi.sortField[{at}].{key}", f"parameters.rules[{at}]")
    if not rules or not all(each["field"] for each in rules):
        raise UntranslatableError("the sort names no field")
    step.add("sort", {"input_array": f"{{{{ {step.flow.list_text} }}}}", "rules": rules})
    return step.out(f"${step.id}.items", many=True)


def read_limit(step: StepReader) -> list[Output]:
    count, notes = step.template(step.at("maxItems") if step.at("maxItems") is not None else 1)
    step.noted("maxItems", "parameters.count", notes)
    step.carried("keep", "parameters.input_array")
    items = step.flow.list_text
    if step.at("keep") == "lastItems":
        size = count if isinstance(count, int) else 1
        items = f"({items})[-{size}:]"
    step.add("limit", {"input_array": f"{{{{ {items} }}}}", "count": count})
    return step.out(f"${step.id}.items", many=True)


def _keys(text: str, base: str) -> str:
    return path_of(base, list(text.split(".")))


def read_split_out(step: StepReader) -> list[Output]:
    field = step.at("fieldToSplitOut")
    if not isinstance(field, str) or "," in field or field.startswith("="):
        raise UntranslatableError("splitting out several fields has no counterpart")
    field = field.strip()
    name = step.at("options.destinationFieldName") or field.rpartition(".")[2]
    include = step.at("include") or "noOtherFields"
    if include not in ("noOtherFields", "allOtherFields"):
        raise UntranslatableError(f"splitting out with `{include}` has no counterpart")
    for key in ("fieldToSplitOut", "include", "options.destinationFieldName"):
        step.carried(key, "parameters.assignments")
    value = _keys(field, "each")
    wrapped = f"{{{quoted(name)}: part}}"
    if include == "allOtherFields":
        made = f"merge(each, {wrapped})"
    else:
        made = (
            wrapped
            if step.at("options.destinationFieldName")
            else f'part if type(part) == "object" else {wrapped}'
        )
    text = f"[{made} for each in {step.flow.list_text} for part in {value}]"
    step.add("edit", {"mode": "keep_only", "assignments": [{"name": "items", "value": f"{{{{ {text} }}}}"}]})
    return step.out(f"${step.id}.items", many=True)


def read_aggregate(step: StepReader) -> list[Output]:
    assignments: list[dict[str, Any]] = []
    items = step.flow.list_text
    if step.at("aggregate") == "aggregateAllItemData":
        if (step.at("include") or "allFields") != "allFields":
            raise UntranslatableError("choosing fields by name has no counterpart")
        name = str(step.at("destinationFieldName") or "data")
        assignments = [{"name": name, "value": f"{{{{ {items} }}}}"}]
        for key in ("aggregate", "destinationFieldName", "include"):
            step.carried(key, "parameters.assignments")
    else:
        step.carried("aggregate", "parameters.assignments")
        listed = step.at("fieldsToAggregate.fieldToAggregate")
        for at, each in enumerate(listed if isinstance(listed, list) else []):
            base = f"fieldsToAggregate.fieldToAggregate[{at}]"
            field = str(each.get("fieldToAggregate") if isinstance(each, dict) else "")
            renamed = isinstance(each, dict) and each.get("renameField")
            name = str(each.get("outputFieldName")) if renamed else field.rpartition(".")[2]
            # Items without the field are left out, as in n8n.
            text = f"[{_keys(field, 'each')} for each in {items} if exists({_keys(field, 'each')})]"
            assignments.append({"name": name, "value": f"{{{{ {text} }}}}"})
            for key in ("fieldToAggregate", "renameField", "outputFieldName"):
                step.carried(f"{base}.{key}", f"parameters.assignments[{at}]")
    if not assignments:
        raise UntranslatableError("the aggregation names no field")
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
    count = max([2, *(link.input + 1 for link in links)])
    if count > _MAX_INPUTS:
        raise UntranslatableError(f"more than {_MAX_INPUTS} inputs")
    flows = [
        importer.merged([link for link in links if link.input == at], step.name)
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
    size = step.at("batchSize")
    size = size if isinstance(size, int) and size > 0 else (1 if step.version >= 2 else 10)
    region.items = step.flow.list_text
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
    if step.at("options.reset"):
        raise UntranslatableError("resetting a loop has no counterpart")
    step.carried("options.reset", "type")
    return []
