"""A scrape: the numbers of this process and of the stores, as Prometheus reads them."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Protocol

from starlette.requests import Request
from starlette.responses import Response

import rune
from rune.master.problems import ApiError
from rune.runtime.engine import Engine
from rune.runtime.gauges import Gauges

if TYPE_CHECKING:
    from rune.telemetry.metric import Metrics


class Measured(Protocol):
    """Somebody who has numbers, once its engine runs."""

    @property
    def scrape(self) -> Scrape | None: ...


class Scrape:
    """Of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._gauges = Gauges(engine.backend, lambda: engine.busy, engine.slots, engine.roles)
        self._metrics: Metrics | None = None

    async def text(self) -> tuple[bytes, str]:
        """What there is to say, and how it is written."""
        from rune.telemetry.metric import CONTENT_TYPE, Metrics  # noqa: PLC0415 - an extra

        if self._metrics is None:
            self._metrics = Metrics(self._engine.witness.meter, rune.__version__, self._engine.roles)
        return self._metrics.text(await self._gauges.read()), CONTENT_TYPE


async def metrics(request: Request) -> Response:
    """Everything that is measured."""
    if importlib.util.find_spec("prometheus_client") is None:
        raise ApiError("metrics need `prometheus-client`: install `rune-engine[telemetry]`", code="NOT_READY")
    measured: Measured = request.app.state.living
    if measured.scrape is None:
        raise ApiError("only just starting", code="NOT_READY")
    data, kind = await measured.scrape.text()
    return Response(data, media_type=kind)


metrics.need = "view"  # type: ignore[attr-defined]
