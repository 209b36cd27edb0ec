"""Health on the port of the API."""

from __future__ import annotations

from fastapi import APIRouter

from rune.master.vitals import HEALTH


def health() -> APIRouter:
    """The router without a gate: the three routes that everybody may ask for."""
    router = APIRouter()
    for path, endpoint in HEALTH.items():
        router.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False)
    return router
