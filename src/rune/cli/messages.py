"""Dead letters of the broker, as `rune dlq` shows them beside executions that were given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rune.compose.broker import BrokerLetter
    from rune.settings import Settings

SHOWN = 4_000
"""Characters of a message that are shown to people."""


async def find_message(settings: Settings, given: str) -> BrokerLetter | None:
    """The one message whose id begins like this; None if it is none of the broker's."""
    from rune.cli.reading import Unknown  # noqa: PLC0415 - help must be quick
    from rune.compose.broker import broker_letters  # noqa: PLC0415

    if settings.url or not settings.brokered or not given.startswith("m"):
        return None
    found = {each.id: each for each in await broker_letters(settings) if each.id.startswith(given)}
    if len(found) > 1:
        names = ", ".join(sorted(found)[:5])
        raise Unknown(f"several messages begin with `{given}`: {names}", code="UNKNOWN_DEAD_LETTER")
    return next(iter(found.values()), None)


def message_document(letter: BrokerLetter, *, whole: bool = False) -> dict[str, Any]:
    """A message as documents show it; `whole`: with what it says."""
    found: dict[str, Any] = {
        "id": letter.id,
        "execution_id": letter.execution,
        "workflow_id": letter.workflow,
        "node_id": letter.node,
        "code": letter.code,
        "message": letter.reason,
        "at": None,
        "queue": letter.queue,
    }
    return found | {"body": letter.body.decode(errors="replace")} if whole else found


def show_message(letter: BrokerLetter, *, as_json: bool) -> int:
    """Print one: why, of which execution, and what it says."""
    from rune.cli.problems import print_json  # noqa: PLC0415
    from rune.cli.text import clean, paint  # noqa: PLC0415

    if as_json:
        print_json(message_document(letter, whole=True))
        return 0
    of = f" of {clean(letter.execution)}" if letter.execution else ""
    print(f"{letter.id}: a message{of} from the queue {clean(letter.queue)}")
    print(f"{paint(clean(letter.code), 'red')}: {clean(letter.reason)}")
    print(clean(letter.body.decode(errors="replace")[:SHOWN]))
    print(f"`rune dlq requeue {letter.id}` sends it again, `rune dlq drop {letter.id}` removes it")
    return 0


async def requeue_message(settings: Settings, letter: BrokerLetter, *, as_json: bool) -> int:
    """Send it again to where it was."""
    from rune.cli.problems import print_json  # noqa: PLC0415
    from rune.compose.broker import requeue_letter  # noqa: PLC0415

    count = await requeue_letter(settings, letter.id)
    if as_json:
        print_json({"id": letter.id, "requeued": count > 0, "queue": letter.queue})
    else:
        print(f"sent {letter.id} to {letter.queue} again" if count else f"{letter.id} is gone")
    return 0


async def drop_message(settings: Settings, letter: BrokerLetter, *, as_json: bool) -> int:
    """Remove it for good."""
    from rune.cli.problems import print_json  # noqa: PLC0415
    from rune.compose.broker import drop_letter  # noqa: PLC0415

    count = await drop_letter(settings, letter.id)
    if as_json:
        print_json({"id": letter.id, "dropped": count > 0})
    else:
        print(f"dropped {letter.id}" if count else f"{letter.id} was dropped already")
    return 0
