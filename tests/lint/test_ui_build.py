"""The committed build of the web interface is made from the present source, small, and refers to no other host."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import msgspec

from rune.core.definition.model import Retry
from rune.core.expr.functions import FUNCTIONS
from tests.lint.tree import PACKAGE, ROOT, files
from tests.support.each import for_each
from tools.build_ui import ASSETS, INPUTS, LICENCES, inputs_hash

KB = 1024
MANIFEST = json.loads((ASSETS / "manifest.json").read_text(encoding="utf-8"))
LIST_BUDGET = 130 * KB  # the script that shows the list of executions
GRAPH_BUDGET = 90 * KB  # what the graph needs beyond that
EDITOR_BUDGET = 190 * KB  # what the editor needs beyond the graph
URL = re.compile(r"""(?:src|href)=["'](?:https?:)?//|@import|url\(["']?(?:https?:)?//""")


SINKS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\(|new Function"
)


def scripts(entry: str) -> set[str]:
    """Return the files of an entry and of everything that it imports at once."""
    found, open_ = set(), [entry]
    while open_:
        chunk = MANIFEST[open_.pop()]
        if chunk["file"] not in found:
            found.add(chunk["file"])
            open_ += chunk.get("imports", [])
    return {each for each in found if each.endswith(".js")}


def packed_size(names: set[str]) -> int:
    return sum((ASSETS / f"{name}.gz").stat().st_size for name in names)


def test_build_is_made_from_present_source() -> None:
    recorded = (ASSETS / INPUTS).read_text(encoding="utf-8").strip()

    assert recorded == inputs_hash(), "run `make ui` and commit src/rune/server/assets"


def test_script_of_execution_list_is_within_budget() -> None:
    assert packed_size(scripts("index.html")) <= LIST_BUDGET


def test_script_of_graph_is_within_budget() -> None:
    graph = scripts("src/graph/graph.tsx") | scripts("src/screens/executions/execution.tsx")

    assert packed_size(graph - scripts("index.html")) <= GRAPH_BUDGET


def test_script_of_editor_is_within_budget() -> None:
    graph = scripts("index.html") | scripts("src/graph/graph.tsx")

    assert packed_size(scripts("src/editor/screen.tsx") - graph) <= EDITOR_BUDGET


def test_editor_completes_every_function_of_expressions() -> None:
    listed = json.loads(
        (ROOT / "ui" / "src" / "editor" / "expressions" / "functions.json").read_text(encoding="utf-8")
    )
    known = [
        {"name": name, "signature": each.signature, "summary": each.doc}
        for name, each in sorted(FUNCTIONS.items())
    ]

    assert listed == known


def test_editor_shows_the_defaults_of_retry() -> None:
    shown = json.loads((ROOT / "ui/src/editor/forms/retry.json").read_text(encoding="utf-8"))
    defaults = msgspec.structs.asdict(Retry())
    del defaults["on"]

    assert shown == defaults


def test_compressed_files_have_same_content() -> None:
    packed = files(ASSETS, ".gz")

    assert len(packed) > 10
    for path in packed:
        assert gzip.decompress(path.read_bytes()) == path.with_suffix("").read_bytes()


@for_each("path", files(ASSETS, ".html", ".css"), ids=lambda path: path.name)
def test_build_refers_to_no_other_host(path: Path) -> None:
    assert URL.search(path.read_text(encoding="utf-8")) is None


def test_page_has_no_inline_script_or_style() -> None:
    page = (ASSETS / "index.html").read_text(encoding="utf-8")

    assert re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\son\w+=", page) is None


def test_source_writes_no_html() -> None:
    sources = files(ROOT / "ui" / "src", ".ts", ".tsx")

    assert len(sources) > 30
    assert [path.name for path in sources if SINKS.search(path.read_text(encoding="utf-8"))] == []


def test_licences_of_bundled_packages_are_listed() -> None:
    text = (ASSETS / LICENCES).read_text(encoding="utf-8")
    wanted = json.loads((ROOT / "ui" / "package.json").read_text(encoding="utf-8"))["dependencies"]

    assert [name for name in wanted if f"{name} " not in text] == []


def test_package_contains_built_page() -> None:
    assert ASSETS.is_relative_to(PACKAGE)
    assert (ASSETS / "index.html").is_file()


def test_parts_import_nothing_of_the_other_folders() -> None:
    parts = sorted((ROOT / "ui" / "src" / "parts").iterdir())

    assert parts, "the parts are found"
    outside = {
        path.name: found
        for path in parts
        if (
            found := re.findall(
                r"""(?:from|import\()\s*["'](\.\./[^"']+)""", path.read_text(encoding="utf-8")
            )
        )
    }
    assert outside == {}
