"""C and F where a server stands between the processes."""

from __future__ import annotations

from tests.hazards.reds.patch import Red

TABLE: dict[str, Red] = {}
