"""The planbook: definitions compiled once, by hash."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from rune.core.compile import compile_definition
from rune.core.definition import Definition
from rune.core.nodetype import Catalogue
from rune.core.plan import Plan
from rune.errors import RuneError
from rune.ports.journal import Journal

MAX_PLANS = 256
_DECODER = msgspec.json.Decoder(Definition)


class UnknownDefinition(RuneError):
    """A hash under which nothing is stored."""

    code = "UNKNOWN_DEFINITION"


class LacksType(RuneError):
    """A node type that nothing in this process declares."""

    code = "OWNER_LACKS_TYPE"

    def __init__(self, message: str, type: str) -> None:
        super().__init__(message)
        self.type = type


class Planbook:
    """Plans of the definitions in use."""

    def __init__(self, journal: Journal, catalogue: Catalogue) -> None:
        self._journal = journal
        self.catalogue = catalogue
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    def add(self, plan: Plan) -> None:
        """Keep a plan that was just compiled."""
        self._plans[plan.hash] = plan
        self._plans.move_to_end(plan.hash)
        if len(self._plans) > MAX_PLANS:
            self._plans.popitem(last=False)

    def known(self, hash: str) -> Plan | None:
        """The plan of a definition, if it is here."""
        return self._plans.get(hash)

    async def plan(self, hash: str) -> Plan:
        """The plan of a definition, compiled from the journal if need be."""
        found = self._plans.get(hash)
        if found is not None:
            return found
        canonical = await self._journal.definition(hash)
        if canonical is None:
            raise UnknownDefinition(f"no definition has the hash {hash}")
        definition = _DECODER.decode(canonical)
        self.check_types(definition)
        plan = compile_definition(definition, self.catalogue)
        self.add(plan)
        return plan

    def check_types(self, definition: Definition) -> None:
        """Refuse a definition with node types that this process was started without."""
        strange = sorted({each.type for each in definition.nodes} - self.catalogue.keys())
        if strange:
            raise LacksType(
                f"the process that would run this has no node type `{strange[0]}`: it was started without it",
                strange[0],
            )
