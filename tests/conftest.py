"""What holds for all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# A gate answers the same for the same change; whoever works on the project gets new examples with every run. How long
# an example takes says more about who else uses the machine than about the example.
settings.register_profile("gate", derandomize=True, deadline=None)
settings.register_profile("work", deadline=None)
settings.load_profile("gate" if os.environ.get("CI") else "work")
