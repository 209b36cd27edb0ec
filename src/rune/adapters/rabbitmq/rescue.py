"""The rescue: hands innocent messages back that were delivered too often, beside somebody who looks after it."""

from __future__ import annotations

import asyncio
import logging

from rune.adapters.rabbitmq.dead import DeadLetters
from rune.adapters.rabbitmq.errors import AmqpError

log = logging.getLogger("rune.rabbitmq")

PAUSE = 15.0  # s between two looks
SAME = 20  # looks at an unchanged number of letters, after which they are gone through all the same


async def rescue(letters: DeadLetters, pause: float = PAUSE) -> None:
    """Until cancelled. Several may be at it: whoever has a letter in hands is alone with it. To go through the letters
    takes each of them out and puts it back, so that is not done as long as none has come or gone."""
    why, seen, idle = "", 0, 0
    while True:
        await asyncio.sleep(pause)
        try:
            waiting = await letters.count()
            idle += 1
            if waiting == seen and idle < SAME:
                continue
            count = await letters.rescue()
            seen, idle = waiting - count, 0
        except AmqpError as error:
            if error.message != why:  # the same again and again is said once
                log.warning("dead letters are not looked at: %s", error.message)
            why = error.message
        else:
            why = ""
            if count:
                log.warning("%d messages that were only delivered too often were handed back", count)
