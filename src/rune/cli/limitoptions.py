"""The options that say what starts are held to, the same wherever limits are set."""

from __future__ import annotations

from typing import Annotated

import typer

Rate = Annotated[
    str | None, typer.Option("--rate", metavar="N/s|m|h", help="Starts per second, minute or hour.")
]
Burst = Annotated[
    int | None, typer.Option("--burst", help="How many may come at once; as many as the rate has.")
]
Running = Annotated[int | None, typer.Option("--running", help="Executions that have not ended, at once.")]
Lifted = Annotated[bool, typer.Option("--none", help="Lift all limits.")]
