"""The rescue: hands innocent messages back that were delivered too often, beside somebody who looks after it."""

from __future__ import annotations

import asyncio
import logging

from rune.adapters.rabbitmq.dead import DeadLetters
from rune.adapters.rabbitmq.errors import AmqpError

log = logging.getLogger("rune.rabbitmq")

PAUSE = 15.0  # s between two looks


async def rescue(letters: DeadLetters, pause: float = PAUSE) -> None:
    """Until cancelled. Several may be at it: whoever has a letter in hands is alone with it."""
    why = ""
    while True:
        await asyncio.sleep(pause)
        try:
            count = await letters.rescue()
        except AmqpError as error:
            if error.message != why:  # the same again and again is said once
                log.warning("dead letters are not looked at: %s", error.message)
            why = error.message
        else:
            why = ""
            if count:
                log.warning("%d messages that were only delivered too often were handed back", count)
