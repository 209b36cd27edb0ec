"""Bytes from outside are decoded by `rune.codec.decode`, whose one error no caller can miss; JSON of the whole package
by `rune.core.json_decoder`, which no number keeps busy."""

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
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "read_json":
            found.append(each.lineno)
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
        "import msgspec\n_D = JsonDecoder(int)\n_D.decode(b'')\nmsgspec.msgpack.decode(b'')\nread_json(b'')\n"
    )
    assert sorted(bare_decodes(source)) == [3, 4, 5]


def slow_decoders(path: pathlib.Path) -> list[int]:
    """Return the lines that use the JSON decoder of msgspec without a hook for numbers."""
    return [
        each.lineno
        for each in ast.walk(parsed(path))
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr in ("Decoder", "decode")
        and ast.unparse(each.func) in ("msgspec.json.Decoder", "msgspec.json.decode")
        and "float_hook" not in {keyword.arg for keyword in each.keywords}
    ]


SERVED = [
    path
    for path in files(PACKAGE, ".py")
    if not path.is_relative_to(PACKAGE / "client") and path != PACKAGE / "core" / "json_decoder.py"
]
"""All modules but those of the client, which decode what a server has checked, in a process of their own."""


def test_json_is_decoded_where_each_number_is_cheap() -> None:
    assert {str(path): lines for path in SERVED if (lines := slow_decoders(path))} == {}


def test_slow_decoders_are_found(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        "import msgspec\nmsgspec.json.Decoder(int)\nmsgspec.json.decode(b'')\nmsgspec.json.Decoder(float_hook=f)\n"
    )
    assert slow_decoders(source) == [2, 3]
