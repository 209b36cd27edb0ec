"""Bodies of requests are read by `rune.server.bodies`, which bounds the bytes of all of them together."""

from __future__ import annotations

import ast
import pathlib

from tests.lint.tree import PACKAGE, files, parsed
from tests.support.each import for_each

BODIES = PACKAGE / "server" / "bodies.py"
READING = ("body", "form", "json", "stream", "receive")
OWN = {("server/routing.py", "request.body"), ("server/routing.py", "request.json")}
"""What `ApiRequest` redefines with `read_body`."""


def reads(path: pathlib.Path) -> list[tuple[str, int]]:
    """Return the calls that read a body of a request, with their lines."""
    return [
        (ast.unparse(each.func), each.lineno)
        for each in ast.walk(parsed(path))
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr in READING
        and ast.unparse(each.func.value) in {"request", "super()"}
    ]


@for_each(
    "path", [each for each in files(PACKAGE / "server", ".py") if each != BODIES], ids=lambda path: path.name
)
def test_bodies_are_read_by_the_function_that_counts_them(path: pathlib.Path) -> None:
    name = path.relative_to(PACKAGE).as_posix()
    assert [each for each in reads(path) if (name, each[0]) not in OWN] == []


def test_reads_of_a_body_are_found(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("async def take(request):\n    await request.body()\n    request.stream()\n")
    assert reads(source) == [("request.stream", 3), ("request.body", 2)]
    assert reads(BODIES)
