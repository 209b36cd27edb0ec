"""Caches compiled plans by the hash of their definition, and reads from them which queue serves a token."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from rune.codec.messages import MessageContext, encode_record, is_first
from rune.core.definition.model import DEFAULT_QUEUE, Definition, canonical, content_hash
from rune.core.definition.parser import NO_PINS, Parsed, Pins, SourceLocations, parse_document, with_pins
from rune.core.definition.problems import TOO_LARGE, Problem
from rune.core.execution.token import Token
from rune.core.json_decoder import JsonDecoder
from rune.core.limits import LIMITS
from rune.core.node_type import Catalogue, NodeType
from rune.core.plan.compiler import compile_definition, names_of
from rune.core.plan.model import NO_PARAMETERS, NodePlan, Plan, Split, compile_parameters
from rune.documents.loader import check_document, definition_in
from rune.errors import InvalidDocumentError, RuneError
from rune.off_loop import off_loop
from rune.ports.journal import Journal
from rune.runtime.payloads import MAX_INLINE_BYTES, checked

if TYPE_CHECKING:
    from rune.runtime.execution_data import ExecutionData, ExecutionDataCache

MAX_CACHED_PLANS = 256
_DECODER = JsonDecoder(Definition)


class DefinitionNotFoundError(RuneError):
    """No definition is stored under this hash."""

    code = "UNKNOWN_DEFINITION"


class MissingNodeTypeError(RuneError):
    """A definition uses a node type that this process does not have."""

    code = "OWNER_LACKS_TYPE"

    def __init__(self, message: str, type: str) -> None:
        super().__init__(message)
        self.type = type


class PlanCache:
    """Compiles definitions and keeps the most recently used plans.

    With `reading`, node types that the catalogue lacks are no error: a replay of recorded facts needs of them no more
    than their outlets, which the labels of edges name. `advice`: what the user of a command does about one that its
    own process lacks; a process that runs nodes has none.
    """

    def __init__(
        self, journal: Journal, catalogue: Catalogue, *, reading: bool = False, advice: str = ""
    ) -> None:
        self._journal = journal
        self._advice = advice
        self.catalogue = catalogue
        self._reading = reading
        self._plans: OrderedDict[str, Plan] = OrderedDict()
        self._loading: dict[str, asyncio.Future[Plan]] = {}

    def add(self, plan: Plan) -> None:
        self._plans[plan.hash] = plan
        self._plans.move_to_end(plan.hash)
        if len(self._plans) > MAX_CACHED_PLANS:
            self._plans.popitem(last=False)

    async def plan(self, hash: str) -> Plan:
        """Return the plan of a stored definition. Concurrent calls for one that is not cached load it once."""
        found = self._plans.get(hash)
        if found is not None:
            return found
        loading = self._loading.get(hash)
        if loading is None:
            loading = self._loading[hash] = asyncio.ensure_future(self._load(hash))
            loading.add_done_callback(lambda _: self._loading.pop(hash))
        return await asyncio.shield(loading)

    async def definition(self, hash: str) -> Definition:
        """Return a stored definition, whose node types this process may lack."""
        found = self._plans.get(hash)
        if found is not None:
            return found.definition
        data = await self._journal.definition(hash)
        if data is None:
            raise DefinitionNotFoundError(f"no definition has the hash {hash}")
        return _DECODER.decode(data)

    async def _load(self, hash: str) -> Plan:
        definition = await self.definition(hash)
        if self._reading:
            plan = _compile_for_reading(definition, self.catalogue)
        else:
            self._check_types(definition)
            plan = compile_definition(definition, self.catalogue)
        if plan.hash != hash:  # stored when the hash still covered the fields that only present a definition
            plan = replace(plan, hash=hash)
        self.add(plan)
        return plan

    def compile_untrusted(self, document: bytes, pins: Pins = NO_PINS) -> Plan:
        """Return the plan of a document from outside, after complete validation."""
        return self._compile_parsed(with_pins(parse_document(document), pins))

    async def compile_given(self, document: bytes, pins: Pins = NO_PINS) -> Plan:
        """As `compile_untrusted`. A long document, or one with large schemas, is compiled in a thread."""
        work = partial(self.compile_untrusted, document, pins)
        return await checked(work) if len(document) <= MAX_INLINE_BYTES else await off_loop(work)

    async def compile_changed(self, definition: Definition, pins: Pins = NO_PINS) -> Plan:
        """Return the plan of a definition that was changed, after complete validation."""
        size = len(canonical(definition))
        if size > LIMITS.definition_bytes:
            message = f"the changed definition exceeds {LIMITS.definition_bytes:,} bytes"
            raise InvalidDocumentError((Problem("", TOO_LARGE, message),))
        places = SourceLocations.of(definition.nodes, definition.edges)
        work = partial(self._compile_parsed, with_pins(Parsed(definition, places=places), pins))
        return await checked(work) if size <= MAX_INLINE_BYTES else await off_loop(work)

    def _compile_parsed(self, parsed: Parsed) -> Plan:
        if parsed.definition is not None:
            found = self._plans.get(content_hash(parsed.definition))
            if found is not None and not parsed.refused:
                return found
            self._check_types(parsed.definition)
        checked = check_document(parsed, self.catalogue)
        return compile_definition(definition_in(checked), self.catalogue, checked.parameters)  # type: ignore[arg-type]

    def _check_types(self, definition: Definition) -> None:
        """Raise MissingNodeTypeError if this process was started without one of the definition's node types."""
        missing = sorted({each.type for each in definition.nodes} - self.catalogue.keys())
        if missing:
            process = "this command" if self._advice else "the process that would run this"
            advice = self._advice or "start it with --nodes MODULE"
            message = f"{process} was started without the node type `{missing[0]}`: {advice}"
            raise MissingNodeTypeError(message, missing[0])


def _with_opaque_types(definition: Definition, catalogue: Catalogue) -> Catalogue:
    """Add a type for each name that the catalogue lacks. It counts as effectful."""
    names = {node.id: node.type for node in definition.nodes if node.type not in catalogue}
    if not names:
        return catalogue
    outlets: dict[str, dict[str, None]] = {name: {} for name in names.values()}
    for edge in definition.edges:
        if edge.src in names and edge.label and not edge.is_error:
            outlets[names[edge.src]][edge.label] = None
    return {**catalogue, **{name: _opaque_type(name, tuple(labels)) for name, labels in outlets.items()}}


def _compile_for_reading(definition: Definition, catalogue: Catalogue) -> Plan:
    """Compile a definition with an opaque type in place of each missing one. Their parameters are not needed."""
    types = _with_opaque_types(definition, catalogue)
    if types is catalogue:
        return compile_definition(definition, catalogue)
    names = names_of(definition)
    parameters = [
        compile_parameters(types[each.type], each.parameters, names)
        if each.type in catalogue
        else NO_PARAMETERS
        for each in definition.nodes
    ]
    plan = compile_definition(definition, types, parameters)
    nodes = tuple(
        each if each.node.type in catalogue else replace(each, by_outlet=_OpaqueOutlets(each))
        for each in plan.nodes
    )
    return replace(plan, nodes=nodes)


class _OpaqueOutlets(dict[str | None, Split]):
    """The outlets of an opaque type. An outlet that no label names has no edges."""

    def __init__(self, node: NodePlan) -> None:
        super().__init__(node.by_outlet)
        self._no_edges: Split = ((), node.out)

    def get(self, outlet: str | None, default: Any = None) -> Any:
        return super().get(outlet, default if outlet is None else self._no_edges)


def _opaque_type(name: str, outlets: tuple[str, ...]) -> NodeType:
    return NodeType(
        name=name, effectful=lambda parameters: True, outlets=lambda parameters: outlets, stand_in=True
    )


class QueueRouter:
    """Reads the plans of the executions that this process works on. Only the queues of a cluster need it. Of those with
    a node type that this process lacks it reads what messages need: a scheduler sends their lost tokens, too."""

    def __init__(self, data_cache: ExecutionDataCache, readable: ExecutionDataCache) -> None:
        """`readable` has plans that need no node type."""
        self._data_cache = data_cache
        self._readable = readable

    async def _data_of(self, execution: str) -> ExecutionData:
        found = self._data_cache.cached(execution)
        if found is not None:
            return found
        try:
            return await self._data_cache.get(execution)
        except MissingNodeTypeError:
            return await self._readable.get(execution)

    async def queue_of(self, execution: str, token: Token) -> str:
        """Return the name of the queue that serves the node of a token."""
        data = await self._data_of(execution)
        return data.plan.nodes[token.node].node.queue or DEFAULT_QUEUE

    async def message_context(self, execution: str, tokens: Sequence[Token]) -> MessageContext:
        """Return what the messages of tokens on RabbitMQ carry besides them."""
        data = await self._data_of(execution)
        if paths := [each.path for each in tokens if each.path]:
            await data.load_counts(paths)
        accepted, plan, record = data.accepted, data.plan, b""
        for each in tokens:
            if is_first(each, plan):
                record = encode_record(accepted)
                break
        return MessageContext(
            accepted.workflow,
            accepted.hash,
            plan.ids,
            traceparent=accepted.trace or None,
            plan=plan,
            total=data.count,
            record=record,
        )
