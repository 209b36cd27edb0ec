"""What clients are told when a store cannot be used: a text from a list, whatever the error says."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import rune.adapters.postgres.database
import rune.adapters.rabbitmq.amqp.errors
import rune.adapters.redis.client
import rune.adapters.sqlite.database  # noqa: F401 - all errors of stores
from rune.errors import RuneError
from rune.ports.journal import StoreUnavailableError
from rune.server.responses import STATUS, UNAVAILABLE, ApiError, problem_document, status_of
from tests.support.api_server import RunningServer, run

INTERNAL = (
    "PostgreSQL 10.1.2.3:5432 (/srv/rune/rune.db): ConnectionResetError(104, 'reset') in Connection.fetch"
    " <Token var=<ContextVar> at 0x7f>"
)


def kinds(base: type[RuneError]) -> Iterator[type[RuneError]]:
    yield base
    for each in base.__subclasses__():
        yield from kinds(each)


def error_of(kind: type[RuneError], code: str | None = None) -> RuneError:
    """Return an error of a kind, whatever its constructor takes."""
    error = kind.__new__(kind)
    RuneError.__init__(error, INTERNAL, code=code or kind.code)
    return error


@pytest.mark.parametrize("kind", sorted(kinds(StoreUnavailableError), key=str))
def test_error_of_store_has_text_from_list(kind: type[RuneError]) -> None:
    document = problem_document(error_of(kind))
    assert document.status == 503
    assert document.detail in UNAVAILABLE.values()


@pytest.mark.parametrize("code", sorted(code for code, status in STATUS.items() if status == 503))
def test_each_code_of_unavailable_stores_has_text_from_list(code: str) -> None:
    error = error_of(RuneError, code)
    assert status_of(error) == 503
    assert problem_document(error).detail in UNAVAILABLE.values()


def test_text_of_the_api_itself_is_kept() -> None:
    assert problem_document(ApiError("starting", code="NOT_READY")).detail == "starting"


@pytest.mark.parametrize("path", ["/api/v1/executions", "/api/v1/executions/x1"])
def test_answer_hides_what_the_log_tells(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rune")

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailableError(INTERNAL)

    async def work(server: RunningServer) -> None:
        reader = server.master.reader
        for name in ("executions", "search", "execution", "accepted"):
            monkeypatch.setattr(reader, name, away)
        answer = await server.http.get(path)
        assert (answer.status_code, answer.json()["detail"]) == (503, UNAVAILABLE["STORE_AWAY"])
        assert f"request {answer.json()['request_id']}: {INTERNAL}" in caplog.text

    run(tmp_path, work)
