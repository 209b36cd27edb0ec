"""Open files: a measure with a thousand connections needs more than many systems give by default."""

from __future__ import annotations

import resource


def many_files(wanted: int = 8192) -> None:
    """Allow this process so many open files, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
