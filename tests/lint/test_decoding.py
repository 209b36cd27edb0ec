"""Bytes from outside are decoded by `rune.codec.decode`, whose one error no caller can miss."""

from __future__ import annotations

import ast
import pathlib

from tests.lint.tree import PACKAGE, files, parsed
from tests.support.each import for_each

STORED = {
    "server/auth.py",
    "server/routes/definitions.py",
    "server/routes/executions/comparison.py",
    "server/routes/workflows.py",
}
"""Modules that decode what the journal or the blob store holds: definitions and values that were validated."""

FOLDERS = ("adapters/rabbitmq", "adapters/redis/queue", "runtime/messaging", "server")
"""Packages that read messages, stream entries and requests."""

OUTSIDE = [
    path
    for path in (
        PACKAGE / "codec" / "messages.py",
        *(each for name in FOLDERS for each in files(PACKAGE / name, ".py")),
    )
    if path.relative_to(PACKAGE).as_posix() not in STORED
]


def bare_decodes(path: pathlib.Path) -> list[int]:
    """Return the lines that call a decoder of msgspec directly."""
    tree = parsed(path)
    decoders = {
        target.id
        for statement in tree.body
        if isinstance(statement, ast.Assign) and "Decoder(" in ast.unparse(statement.value)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    found = []
    for each in ast.walk(tree):
        if not isinstance(each, ast.Call) or not isinstance(each.func, ast.Attribute):
            continue
        of = ast.unparse(each.func.value)
        if each.func.attr == "decode" and (of in decoders or of in ("msgspec.json", "msgspec.msgpack")):
            found.append(each.lineno)
    return found


@for_each("path", OUTSIDE, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_outside_bytes_are_decoded_by_the_helper(path: pathlib.Path) -> None:
    assert bare_decodes(path) == []


def test_bare_decodes_are_found(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        "import msgspec\n_D = msgspec.json.Decoder(int)\n_D.decode(b'')\nmsgspec.msgpack.decode(b'')\n"
    )
    assert bare_decodes(source) == [3, 4]
