"""What holds for all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# A gate answers the same for the same change; whoever works on the project gets new examples with every run.
settings.register_profile("gate", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("gate")
