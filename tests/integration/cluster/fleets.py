"""Fixtures of fleets, which the tests of a folder share; each is started when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.integration.cluster.standing import Standing


def shared(standing: Callable[..., AbstractContextManager[Standing]], **how: Any) -> Any:
    """One fleet for all who ask for it."""

    @pytest.fixture(scope="package")
    def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
        with standing(tmp_path_factory.mktemp("fleet"), **how) as stood:
            yield stood

    return made


def each_of(*names: str) -> Any:
    """The fleets of these fixtures, one after the other."""

    @pytest.fixture(params=names)
    def stood(request: pytest.FixtureRequest) -> Standing:
        made: Standing = request.getfixturevalue(request.param)
        return made

    return stood
