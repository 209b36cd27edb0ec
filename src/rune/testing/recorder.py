"""Load a test that `rune record` wrote, or that was copied from the web interface, for the fixture `rune_recorded`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rune.build.flow import Workflow
from rune.testing.cases import Case, load_cases
from rune.testing.engine import EmbeddedEngine, Run


class Recorded:
    """A recorded test: its workflow and input; its mocks are set in `engine.mocks`."""

    def __init__(self, case: Case, engine: EmbeddedEngine, folder: Path) -> None:
        self._case = case
        self._engine = engine
        source = case.workflow if case.workflow is not None else case.document
        assert source is not None, "load_cases requires one of the two"
        self.flow = Workflow.load(folder / source if isinstance(source, str) else source)
        self.input = case.input
        case.set_mocks(engine.mocks)

    def run(self, input: Any = None) -> Run:
        """Run the workflow with the recorded input, or with another one."""
        return self._engine.run(self.flow, self.input if input is None else input)

    def check(self, run: Run) -> None:
        """Raise AssertionError with all differences if an execution did not end as the recorded one."""
        if self._case.expect is not None:
            deviations = self._case.expect.deviations(run.result.document, self._engine.mocks)
            if deviations:
                raise AssertionError("\n".join(deviations))


def load_recorded(path: Path, engine: EmbeddedEngine) -> Recorded:
    """Load a file that `rune record` wrote and set its mocks."""
    cases = load_cases(path)
    if len(cases) != 1:
        raise ValueError(f"{path} has {len(cases)} tests; a recording is one")
    return Recorded(cases[0], engine, path.parent)
