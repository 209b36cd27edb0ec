"""The API without a server: requests are answered in this process, over the stores that the settings name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rune.bootstrap import open_engine, open_reader
from rune.bootstrap.doctor import check_installation
from rune.runtime.owner_services import LocalServices
from rune.server.app import make_app
from rune.server.context import ServerContext
from rune.settings import Settings, describe_settings


@asynccontextmanager
async def open_app(settings: Settings) -> AsyncIterator[tuple[Any, LocalServices]]:
    """Open the application, which reads the stores, and the services that it sends changes to: those of the owner
    process if there is one."""
    async with (
        open_engine(settings) as (engine, services),
        open_reader(settings, engine.plans.catalogue) as reader,
    ):
        context = ServerContext(
            engine,
            reader,
            slots=settings.slots,
            settings=describe_settings(settings),
            checks=lambda: check_installation(settings),
            services=services,
        )
        yield make_app(context), services
