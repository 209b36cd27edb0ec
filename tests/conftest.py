"""What holds for all tests."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

from tests.order import Together

# A gate answers the same for the same change; whoever works on the project gets new examples with every run. How long
# an example takes says more about who else uses the machine than about the example.
settings.register_profile("gate", derandomize=True, deadline=None)
settings.register_profile("work", deadline=None)
settings.load_profile("gate" if os.environ.get("CI") else "work")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together | None:
    return Together(config, log) if config.getvalue("dist") == "load" else None
