"""Reads one node of an n8n export: what the names of its expressions refer to, what its parameters become, and what
data is pinned to it.

n8n uses pinned data only in runs from its editor. Here it is the input and the mocks of a test for `rune test`; the
document keeps the original under `metadata.n8n.pinData`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from rune.core.definition.strict_json import join
from rune.documents.importers import javascript as js
from rune.documents.importers.draft import Status, is_empty, literal_text
from rune.documents.importers.javascript import Step, UntranslatableError
from rune.documents.importers.translate import Translation, Value, list_text, number_text, quoted, translate

if TYPE_CHECKING:
    from rune.documents.importers.n8n.graph import N8nImporter, Region


_UNAVAILABLE = {
    "$env": "environment variables cannot be read in expressions",
    "$vars": "variables of the instance have no counterpart",
    "$secrets": "secrets cannot be read in expressions; use a credential",
    "$binary": "binary data has no counterpart; files are references to blobs",
    "$runIndex": "the number of a run has no counterpart",
    "$prevNode": "the previous node has no counterpart",
    "$parameter": "other parameters of the node cannot be read",
    "$jmespath": "JMESPath has no counterpart",
}


class Flow(msgspec.Struct, frozen=True):
    """What a connection carries: one item, or a list of many, and the expression for it."""

    many: bool
    text: str

    @property
    def list_text(self) -> str:
        """The expression for the list of all items."""
        return self.text if self.many else f"[{self.text}]"


class N8nScope:
    """The names that are visible to the expressions of one node."""

    def __init__(self, step: StepReader, *, element: bool = False) -> None:
        self._importer = step.importer
        self._name = step.name
        self._arriving = step.flow
        self._flow = Flow(False, "$item") if element else step.flow
        self._region = step.region
        self._element = element

    def resolve(self, base: Any, steps: tuple[Step, ...]) -> tuple[Value, int] | None:
        """Resolve `$json`, `$('Node')`, `$node[...]`, `$input` and the other names of n8n."""
        if not isinstance(base, js.Name):
            return None
        name = base.name
        if name in _UNAVAILABLE:
            raise UntranslatableError(_UNAVAILABLE[name])
        if name == "$json":
            return self._with_error(self._item(self._flow, "$json"), steps)
        if name == "$input":
            arriving = self._input() if _reads_list(steps, 0) else self._flow
            return self._of(arriving, steps, 0, "$input")
        if name == "$" and steps and steps[0].kind == "call":
            return self._of_node(_argument(steps[0]), steps, 1)
        if name == "$node" and steps:
            wanted = steps[0].name if steps[0].kind == "name" else _constant(steps[0].key)
            return self._of_node(wanted, steps, 1)
        return self._special(name, steps)

    def _with_error(self, item: Value, steps: tuple[Step, ...]) -> tuple[Value, int]:
        """Return the item; of one on an error output, `error` is a text, which n8n has under `error.message` too."""
        is_read = len(steps) > 1 and steps[0].name == "error" and steps[1].kind != "call"
        is_method = len(steps) > 2 and steps[2].kind == "call"
        if not is_read or is_method or not self._importer.is_behind_error(self._name):
            return item, 0
        if steps[1].name != "message" or not item.text.endswith(f"{_ERROR_FIELD})"):
            shown = steps[1].name or "[…]"
            raise UntranslatableError(
                f"`error.{shown}` of an item on an error output has no counterpart; `error` is a text"
            )
        return Value("$error.message", kind="text"), 2

    def _special(self, name: str, steps: tuple[Step, ...]) -> tuple[Value, int] | None:
        first = steps[0].name if steps else ""
        if name in {"$now", "DateTime"}:
            is_now = name == "$now" or (first in {"now", "utc"} and len(steps) > 1)
            return (Value("now()", kind="date"), 0 if name == "$now" else 2) if is_now else None
        if name == "$today":
            return Value('format_date(now(), "%Y-%m-%dT00:00:00Z")', kind="date"), 0
        if name == "$execution" and first == "id":
            return Value("$execution.id", kind="text"), 1
        if name == "$workflow" and first in {"id", "name", "active"}:
            found = self._importer.title if first == "name" else self._importer.source.get(first)
            return Value(quoted(found)), 1
        if name in {"$itemIndex", "$position"}:
            return self._index(), 0
        if name.startswith("$"):
            raise UntranslatableError(f"`{name}` has no counterpart")
        return None

    def _of_node(self, name: str, steps: tuple[Step, ...], at: int) -> tuple[Value, int]:
        importer = self._importer
        if name not in importer.nodes:
            raise UntranslatableError(f"no node is named `{name}`")
        if at < len(steps) and steps[at].name == "isExecuted":
            return Value(f"exists(${importer.ids[name]})", kind="boolean"), at + 1
        if name in importer.loops:
            body = importer.loops[name][0]
            flow = (
                self._current(body, Flow(False, "$item"))
                if _is_within(self._region, body)
                else importer.collected(body)
            )
            return self._of(self._one_of(body, flow, steps, at), steps, at, name)
        if name not in importer.outputs:
            raise UntranslatableError(f"`{name}` does not run before this node")
        flow = (
            importer.outputs[name][0].flow
            if importer.outputs[name]
            else Flow(False, f"${importer.ids[name]}")
        )
        region = importer.regions.get(name)
        if region is not None and not _is_within(self._region, region):
            if region.is_loop and _reads_list(steps, at):
                raise UntranslatableError(
                    f"the items of the last pass of a loop through `{name}` are not known behind it"
                )
            flow = importer.given_by(name)
        elif region is not None:
            flow = self._one_of(region, self._current(region, flow), steps, at)
        return self._of(flow, steps, at, name)

    def _current(self, region: Region, flow: Flow) -> Flow:
        """Return a flow of a region around this node, if its item is not hidden by the item of an inner list."""
        if (region is not self._region or self._element) and _ITEM.search(flow.text):
            raise UntranslatableError("the item of an outer list has no name inside of an inner list")
        return flow

    def _one_of(self, region: Region, flow: Flow, steps: tuple[Step, ...], at: int) -> Flow:
        """Return a flow of a region around this node; refused if the items of several passes are read as a list."""
        if (
            _reads_list(steps, at)
            and _is_within(self._region, region)
            and not (region.is_loop and region.batch == 1)
        ):
            raise UntranslatableError(
                "a chain that runs per item has one item at a time, not the list of all"
            )
        return flow

    def _input(self) -> Flow:
        """Return all items that arrive at this node."""
        region = self._region
        if self._element or region is None:
            return self._arriving
        if not region.is_loop and self._importer.entries.get(self._name, region.split) == region.split:
            if region.parent is not None and _ITEM.search(region.items):
                raise UntranslatableError("the item of an outer list has no name inside of an inner list")
            return Flow(True, region.items)
        return self._one_of(region, self._arriving, _ALL, 0)

    def _index(self) -> Value:
        """Return the position of the item among those that arrive at this node."""
        region = self._region
        if self._element or region is None:
            return Value("$index" if self._element else "0", kind="number", whole=True)
        if region.is_loop and region.batch == 1:
            return Value("0", kind="number", whole=True)
        if region.is_loop or self._importer.is_thinned(region, self._name):
            raise UntranslatableError(
                "the position of an item behind a node that passes on only some is not known"
            )
        return Value("$index", kind="number", whole=True)

    def _of(self, flow: Flow, steps: tuple[Step, ...], at: int, name: str) -> tuple[Value, int]:
        """Resolve `.item.json`, `.first().json`, `.last().json`, `.all()` and `.json` of a flow."""
        names = [each.name or each.kind for each in steps[at : at + 3]]
        if _reads_list(steps, at) and len(steps) > at + 1 and steps[at + 1].arguments:
            raise UntranslatableError(f"`{names[0]}` of a chosen output or run has no counterpart")
        if names[:2] == ["item", "json"]:
            return self._item(flow, name), at + 2
        if names[:1] == ["json"]:
            return self._item(flow, name), at + 1
        if names in (["first", "call", "json"], ["last", "call", "json"]):
            if not flow.many:
                return Value(flow.text, kind="object"), at + 3
            return Value(f"({flow.text})[{0 if names[0] == 'first' else -1}]", optional=True), at + 3
        if names[:2] == ["all", "call"]:
            return Value(f'[{{"json": each}} for each in {flow.list_text}]', kind="list"), at + 2
        shown = ".".join(names) or "the node itself"
        raise UntranslatableError(f"`{shown}` of a node has no counterpart")

    def _item(self, flow: Flow, name: str) -> Value:
        """Return the item of a flow that belongs to the item of this node."""
        if not flow.many:
            return Value(flow.text, kind="object")
        text = flow.list_text
        if self._element:
            if text == self._arriving.list_text:
                return Value("$item", kind="object")
        elif self._region is not None:
            if self._region.items == text:
                return Value("$item", kind="object")
            if not self._region.is_loop and self._is_paired(text):
                return Value(f"({text})[$index]", optional=True)
        raise UntranslatableError(f"the item of `{name}` that belongs to an item here is not known")

    def _is_paired(self, text: str) -> bool:
        """Return whether a list has one item for each item of this region, in their order."""
        region = self._region
        while region is not None and region.items != text:
            before = self._importer.results.get(region.items)
            region = before if before is not None and self._importer.is_even(before) else None
        return region is not None


_ITEM = re.compile(r"\$(item|index)\b")
_ALL = (Step("name", name="all"), Step("call"))


def _reads_list(steps: tuple[Step, ...], at: int) -> bool:
    return at < len(steps) and steps[at].name in {"all", "first", "last"}


def _is_within(inner: Region | None, outer: Region) -> bool:
    while inner is not None:
        if inner is outer:
            return True
        inner = inner.parent
    return False


def _argument(step: Step) -> str:
    if len(step.arguments) != 1:
        raise UntranslatableError("`$()` takes the name of a node")
    return _constant(step.arguments[0])


def _constant(tree: Any) -> str:
    if isinstance(tree, js.Constant) and isinstance(tree.value, str):
        return tree.value
    raise UntranslatableError("the name of a node must be a text")


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
        self._translated: set[str] = set()

    # Notes

    def note(self, status: Status, key: str, target: str = "", message: str = "", hint: str = "") -> None:
        """Note what became of a parameter; `key` and `target` are relative to the nodes."""
        self.notes.append((status, f"parameters.{key}" if key else "type", target, message, hint))

    def carried(self, key: str, target: str = "", message: str = "") -> None:
        """Note a parameter as carried, which its reader reads; this does not."""
        if not is_empty(self._look(key, reads=False)):
            self.note("carried", key, target, message)

    def at(self, key: str) -> Any:
        """Return the parameter at a path such as `options.timeout` or `rules.values[0]`."""
        return self._look(key, reads=True)

    def _look(self, key: str, *, reads: bool) -> Any:
        value: Any = self.parameters
        for part in re.findall(r"[^.\[\]]+", key):
            if isinstance(value, dict):
                value = value.get(part) if reads else dict.get(value, part)
            elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
                value = value[int(part)]
            else:
                return None
        return value

    def refuse_expressions(self) -> None:
        """Refuse the node if an expression counts as carried that was not translated."""
        entries = {key: (status, message) for status, key, _, message, _ in self.notes}
        for path, text in _texts("parameters", self.parameters):
            if not text.startswith("=") or "{{" not in text or text in self._translated:
                continue
            above = [path[:at] for at in range(len(path), 0, -1) if at == len(path) or path[at] in ".["]
            status, message = next((entries[each] for each in above if each in entries), ("by_hand", ""))
            if status != "by_hand" and not message:
                shown = path.removeprefix("parameters.")
                raise UntranslatableError(f"`{shown}` is an expression, which has no counterpart there")

    # Values

    def scope(self, *, element: bool = False) -> N8nScope:
        return N8nScope(self, element=element)

    def value(self, key: str, target: str, *, element: bool = False) -> Any:
        """Return a parameter as a template and note it."""
        found, notes = self.template(self.at(key), element=element)
        self.noted(key, target, notes)
        return found

    def text_or_null(self, key: str, target: str) -> Any:
        """Return a parameter as a template of a text, or of null if its expression gives none, and note it."""
        given = self.at(key)
        parts = list(_templates(given)) if isinstance(given, str) and given.startswith("=") else []
        if parts != [(1, len(given or ""))]:
            return self.value(key, target)
        found = self.expression(given)
        self.noted(key, target, found.notes)
        if found.kind in {"text", "boolean", "null", "undefined"} or found.whole:
            return f"{{{{ {found.text} }}}}"
        if found.kind == "number":
            return f"{{{{ {number_text(found.text)} }}}}"
        plain = _OPTIONAL.fullmatch(found.text)
        written = f"str({plain[1] if plain else found.text})"
        return f"{{{{ null if ({found.text}) == null else {written} }}}}"

    def key(self, key: str, default: str = "") -> str:
        """Return a parameter that names something, and is no expression."""
        found = str(self.at(key) or default)
        if found.startswith("=") and "{{" in found:
            raise UntranslatableError(f"the name `{found[:60]}` is an expression, which has no counterpart")
        return found.removeprefix("=")

    def name_of(self, name: Any, key: str, target: str) -> str:
        """Return the name of a field as a template, and note it."""
        if "[" in str(name or "") and not str(name).startswith("="):
            raise UntranslatableError(
                "a name with brackets, which denote positions in n8n, has no counterpart"
            )
        found, notes = self.template(str(name or ""))
        self.noted(key, target, notes)
        return str(found)

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
        self._translated.add(text)
        notes: list[str] = []
        pieces: list[str] = []
        at = 1
        for start, end in _templates(text):
            pieces.append(literal_text(text[at:start]))
            found = self._translate(text[start + 2 : end - 2], element=element)
            notes += found.notes
            is_whole = start == 1 and end == len(text)
            pieces.append(f"{{{{ {found.text if is_whole else _inside_text(found)} }}}}")
            at = end
        pieces.append(literal_text(text[at:]))
        return "".join(pieces), tuple(notes)

    def _translate(self, source: str, *, element: bool) -> Translation:
        try:
            return translate(source, self.scope(element=element))
        except UntranslatableError as error:
            raise UntranslatableError(f"the expression `{source.strip()[:200]}`: {error.message}") from None

    def expression(self, value: Any, *, element: bool = False, raw: bool = False) -> Translation:
        """Translate a value to an expression. Inside of a raw text n8n writes null, lists and objects as JSON."""
        if not isinstance(value, str):
            return Translation(quoted(value), (), "number" if isinstance(value, int | float) else "")
        if not value.startswith("="):
            return Translation(quoted(value), (), "text")
        self._translated.add(value)
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
            texts.append(_inside_json(found) if raw else f"str({_inside_text(found)})")
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
                "`error` of the item on the error output is the message of Rune's error, a text",
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
            if key != "retryOnFail" and not isinstance(node.get(key), int | float | None):
                record.by_hand(f"{path}.{key}", "the value is not a number", "set it in `retry`", place)
            elif node.get(key) is not None:
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


def _texts(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts below a path; this reads nothing for the report."""
    waiting = [(path, value)]
    while waiting:
        place, part = waiting.pop()
        if isinstance(part, str):
            yield place, part
        elif isinstance(part, dict):
            waiting += [(join(place, key), each) for key, each in dict.items(part)]
        elif isinstance(part, list):
            waiting += [(f"{place}[{at}]", each) for at, each in enumerate(part)]


def _inside_json(found: Translation) -> str:
    """Return the expression of a value inside of a text that is read as JSON."""
    if found.kind == "number" and not found.whole:
        return number_text(found.text)
    if found.kind:
        return f"str({found.text})"
    return f'("null" if ({found.text}) == null else str({found.text}))'


_OPTIONAL = re.compile(r"([$\w.]+) \?\? null")


def _inside_text(found: Translation) -> str:
    """Return the expression of a value inside of a text, with numbers and lists as JavaScript writes them."""
    if found.kind == "number" and not found.whole:
        return number_text(found.text)
    return list_text(f"({found.text})") if found.kind == "list" else found.text


def parsed_json(value: Any) -> Any:
    """Return the value of a JSON text; texts with expressions stay texts."""
    if isinstance(value, str) and not value.startswith("="):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


_ERROR_FIELD = '{"error": $error.message}'


def error_output(step: StepReader) -> list[Output]:
    """Return the error output of a node that continues there."""
    if step.node.get("onError") != "continueErrorOutput":
        return []
    text = f"merge({step.flow.text}, {_ERROR_FIELD})"
    return [Output(step.id, Flow(False, text), is_error=True)]


def whole_number(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


_PLACE = "metadata.n8n.pinData"
_TRIGGERS = ("manual", "input", "schedule", "webhook")
_ONE_START = "an execution has one start payload"
_HINT = "give it to a test as a mock of a node, in the form of its output"


def pinned_items(source: dict[str, Any], name: str) -> list[Any]:
    """Return the items that are pinned to a node, without the objects of n8n around them."""
    pins = source.get("pinData")
    items = pins.get(name) if isinstance(pins, dict) else None
    return [
        each["json"] if isinstance(each, dict) and "json" in each else each
        for each in (items if isinstance(items, list) else [])
    ]


def read_pins(importer: N8nImporter) -> dict[str, Any]:
    """Report the pinned data of an import; return the test that it gives, empty if it gives none."""
    pins = importer.source.get("pinData")
    test: dict[str, Any] = {"case": f"pinned data of {importer.title or 'the workflow'}"}
    mocks: dict[str, Any] = {}
    for name, items in (pins if isinstance(pins, dict) else {}).items():
        if name not in importer.ids or is_empty(items):
            continue
        path, place = join("pinData", name), join(_PLACE, name)
        importer.draft.metadata.setdefault("n8n", {}).setdefault("pinData", {})[name] = items
        if name not in importer.outputs:
            importer.record.carried(path, place, "of a node that never runs")
            continue
        _report_files(importer, path, items)
        values = pinned_items(importer.source, name)
        flow = importer.outputs[name][0].flow if importer.outputs[name] else Flow(False, "")
        starts = importer.draft.node(importer.ids[name])["type"] in _TRIGGERS
        if starts and len(values) == 1 and "input" not in test:
            test["input"] = values[0]
            importer.record.carried(path, place, "the input of the test that `--tests` writes")
            continue
        answer = _answer(importer, name, flow, values)
        if answer is None:
            reason = _ONE_START if starts else _reason(flow, importer.ids[name])
            importer.record.by_hand(path, reason, _HINT, place)
        else:
            mocks[importer.ids[name]] = answer
            importer.record.carried(path, place, "a mock of the test that `--tests` writes")
    if not mocks and "input" not in test:
        return {}
    return {**test, **({"mocks": mocks} if mocks else {}), "expect": {"status": "completed"}}


def _reason(flow: Flow, node: str) -> str:
    return (
        f"several items cannot be the output of `{node}`"
        if f"${node}" in flow.text
        else f"`{node}` passes on what an earlier node gives"
    )


def _answer(importer: N8nImporter, name: str, flow: Flow, values: list[Any]) -> dict[str, Any] | None:
    """Return the mock of a pinned node, or None if no output of the new node gives the pinned items."""
    if name in importer.loops:
        return None
    if flow.many:
        found = None if name in importer.regions else _output(importer, name, flow, values)
        return None if found is None else {"returns": found[0]}
    outputs = [_output(importer, name, flow, each) for each in values]
    made = [each[0] for each in outputs if each is not None]
    if len(made) < len(values):
        return None
    if name in importer.regions:
        return {"items": {str(at): {"returns": each} for at, each in enumerate(made)}}
    return {"returns": made[0]} if len(made) == 1 else None


def _output(importer: N8nImporter, name: str, flow: Flow, value: Any) -> tuple[Any] | None:
    """Return the output with which the expression of a flow has a value; None if there is none."""
    node = f"${importer.ids[name]}"
    if flow.text == node:
        return (value,)
    if flow.text == f"{node}.items":
        return ({"items": value},)
    if importer.draft.node(importer.ids[name])["type"] != "http":
        return None
    if flow.text.startswith(f"{node}_response") and isinstance(value, dict):
        status, headers = value.get("statusCode", 200), value.get("headers", {})
        body = value["body"] if "body" in value else next(iter(value.values()), None)
        return ({"status": status, "headers": headers, "body": body},)
    return ({"status": 200, "headers": {}, "body": value},) if f"{node}.body" in flow.text else None


def _report_files(importer: N8nImporter, path: str, items: Any) -> None:
    for at, item in enumerate(items if isinstance(items, list) else []):
        if isinstance(item, dict) and not is_empty(item.get("binary")):
            importer.record.by_hand(
                f"{path}[{at}].binary",
                "files of pinned items are not part of a mock",
                "store the file as a blob and name its reference in the mock",
            )
