"""What node types import on first use is imported before a worker receives: an import blocks its event loop."""

from __future__ import annotations

import ast
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import rune.nodes
from tests.support.up_process import UpProcess

FOLDER = pathlib.Path(rune.nodes.__file__).parent
NEEDED = (*sorted(FOLDER.rglob("*.py")), FOLDER.parent / "documents" / "json_schema.py")


def imported_in_functions(path: pathlib.Path) -> Iterator[str]:
    """The modules that functions of a file import."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for each in ast.walk(function):
                if isinstance(each, ast.Import):
                    yield from (name.name for name in each.names)
                elif isinstance(each, ast.ImportFrom) and each.module:
                    yield each.module


def test_every_module_that_a_node_type_imports_later_is_imported_before_a_worker_receives() -> None:
    program = (
        "import sys, json; from rune.nodes.registry import import_modules; import_modules();"
        "print(json.dumps(sorted(sys.modules)))"
    )
    loaded = json.loads(
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    )

    later = {name for path in NEEDED for name in imported_in_functions(path)}

    assert "rune.nodes.io.http_client.exchange" in later
    assert later - set(loaded) == set()


def test_server_has_imported_the_http_client_before_its_first_request(tmp_path: pathlib.Path) -> None:
    server = UpProcess(tmp_path)
    server.start()
    try:
        libraries = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text(encoding="utf-8")
    finally:
        server.stop()

    assert "/aiohttp/" in libraries
