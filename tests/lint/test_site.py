"""The site of the documentation: every public thing has a page, every page a place, and no link is broken."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import msgspec
import pytest

from rune.cli.main import COMMANDS
from rune.core.definition.problems import MEANINGS
from rune.nodes.registry import described, full_registry
from rune.server.app import document
from rune.server.responses import REMEDIES
from rune.settings import DERIVED, Settings
from rune.testing import plugin
from tests.lint.public_names import public_names
from tests.lint.tree import ROOT
from tests.support.each import for_each
from tools.docs import llms, remedies
from tools.docs.__main__ import EXTERNAL, misplaced
from tools.docs.errors import GUIDE, find_codes, remedies_in
from tools.docs.footers import last_changes, with_footers
from tools.docs.markdown import anchors, front_matter, slug
from tools.docs.navigation import NAVIGATION, expand, paths
from tools.docs.prose import long_sentences
from tools.docs.staging import DOCS, broken_links, sources, staged
from tools.docs.versions import check_folder, with_notices

WRITTEN = sorted(
    path for path in DOCS.rglob("*.md") if path.relative_to(DOCS).parts[0] not in {"adr", "README.md"}
)
SCREENS = {"ui.md", "editor.md"}  # describe screens, not a task
GUIDES = [
    path
    for path in WRITTEN
    if (path.parent.parent.name == "guides" or "\nkind: guide\n" in path.read_text(encoding="utf-8"))
    and path.name not in SCREENS
]
KINDS = {"tutorial", "guide", "reference", "explanation"}
OF_KIND = {
    kind: [path for path in WRITTEN if f"\nkind: {kind}\n" in path.read_text(encoding="utf-8")]
    for kind in KINDS
}
AUDIENCES = {"operator", "author", "developer"}


@pytest.fixture(scope="module")
def site() -> tuple[dict[str, str], dict[str, Path]]:
    return staged()


@pytest.fixture(scope="module")
def texts(site: tuple[dict[str, str], dict[str, Path]]) -> dict[str, str]:
    return site[0]


def test_links_between_pages_resolve(site: tuple[dict[str, str], dict[str, Path]]) -> None:
    assert list(broken_links(*site)) == []


def test_broken_link_is_found() -> None:
    texts = {"a.md": "# A\n\n[x](b.md#c), [y](d.md), [z](#a), [u](https://example.org)\n", "b.md": "# B\n"}

    assert list(broken_links(texts, {})) == [
        "a.md: b.md#c: no such heading",
        "a.md: d.md: no such page",
    ]


def test_every_page_is_in_navigation_once(texts: dict[str, str]) -> None:
    assert list(misplaced(expand(NAVIGATION, texts), texts)) == []


def test_every_node_type_has_a_page_with_its_parameters(texts: dict[str, str]) -> None:
    for each in described(full_registry(())):
        page = texts[f"reference/nodes/{each['type']}.md"]
        assert all(f"| `{name}` |" in page for name in each["parameters"].get("properties", ()))
        assert all(f"`{name}`" in page for name in each["errors"])
        assert "it ends as *" in page


def test_language_page_names_every_parameter() -> None:
    lines = (DOCS / "language.md").read_text(encoding="utf-8").splitlines()
    for each in described(full_registry(())):
        row = " ".join(line for line in lines if re.match(rf"\| (`\w+`, )*`{each['type']}`", line))
        names = each["parameters"].get("properties", ())
        assert [name for name in names if not re.search(rf"\b{name}\b", row)] == [], each["type"]


def test_every_command_has_a_page(texts: dict[str, str]) -> None:
    assert [name for name in COMMANDS if f"reference/cli/{name}.md" not in texts] == []


def test_every_error_code_has_a_page(texts: dict[str, str]) -> None:
    assert [code for code in find_codes() if f"reference/errors/{code}.md" not in texts] == []


def test_every_route_is_listed_and_described(texts: dict[str, str]) -> None:
    pages = "".join(text for place, text in texts.items() if place.startswith("reference/api/"))
    routes = [f"`{verb.upper()} {path}`" for path, verbs in document()["paths"].items() for verb in verbs]

    assert [route for route in routes if pages.count(route) < 2] == []


def test_every_setting_has_a_row(texts: dict[str, str]) -> None:
    names = [each.name for each in msgspec.structs.fields(Settings) if each.name not in DERIVED]

    assert [
        name for name in names if f"| `RUNE_{name.upper()}` |" not in texts["reference/settings.md"]
    ] == []


@pytest.mark.parametrize("package", ["rune.build", "rune.client", "rune.documents.importers"])
def test_every_public_name_is_described(texts: dict[str, str], package: str) -> None:
    names = [each.rsplit(".", 1) for each in public_names()]
    page = texts[f"reference/python/{package}.md"]

    assert [name for where, name in names if where == package and f"## `{name}`" not in page] == []


def test_every_fixture_of_the_plugin_is_described(texts: dict[str, str]) -> None:
    page = texts["reference/python/rune.testing.plugin.md"]
    fixtures = re.findall(r"^\| `(rune_\w+)` \|", plugin.__doc__ or "", re.MULTILINE)

    assert len(fixtures) >= 5
    assert [name for name in fixtures if f"## `{name}`" not in page] == []


def test_python_reference_is_made_without_the_tools_of_tests() -> None:
    blocked = "import sys; sys.modules.update(pytest=None, hypothesis=None); "
    program = f"{blocked}from tools.docs.python import pages; print(len(pages()))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_every_message_is_described_with_its_fields(texts: dict[str, str]) -> None:
    page = texts["reference/messages.md"]
    for path in sorted((DOCS / "schemas").glob("*.json")):
        schema = msgspec.json.decode(path.read_bytes())
        if path.name != "workflow.json":
            assert f"## {schema['title']}" in page
            assert [name for name in schema.get("properties", ()) if f"| `{name}` |" not in page] == []


@for_each("path", WRITTEN, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_pictures_have_alternative_text(path: Path) -> None:
    pictures = re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))

    assert [target for text, target in pictures if len(text.split()) < 3] == []


def test_every_error_code_has_a_remedy() -> None:
    remedies = remedies_in((DOCS / GUIDE).read_text(encoding="utf-8"))
    codes = find_codes()
    of_documents = {name for name in MEANINGS if codes[name].modules <= {"core/definition/problems.py"}}

    assert sorted(codes.keys() - remedies.keys() - of_documents) == []
    assert sorted(remedies.keys() - codes.keys()) == [], "codes that do not exist"


def test_every_alert_links_to_its_remedy() -> None:
    rules = (ROOT / "deploy" / "prometheus" / "rules.yaml").read_text(encoding="utf-8")
    found = anchors((DOCS / GUIDE).read_text(encoding="utf-8"))
    alerts = re.findall(r"alert: (\w+)", rules)
    links = re.findall(r"^ +runbook_url: \"(.+)\"$", rules, re.MULTILINE)

    assert [name for name in alerts if slug(name) not in found] == []
    assert links == [f"{{{{ $externalLabels.rune_url }}}}{REMEDIES}#{slug(name)}" for name in alerts]


def test_page_of_remedies_is_current() -> None:
    assert remedies.TARGET.read_text(encoding="utf-8") == remedies.generate(), "python -m tools.docs.remedies"


@for_each("path", WRITTEN, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_page_states_its_kind_and_audience(path: Path) -> None:
    fields, _ = front_matter(path.read_text(encoding="utf-8"))

    assert fields.get("kind") in KINDS
    assert fields.get("for") in AUDIENCES


@for_each("path", sorted(DOCS.glob("start/*.md")), ids=lambda path: path.name)
def test_tutorial_has_numbered_steps(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    steps = [int(number) for number in re.findall(r"^## (\d+)\. ", text, re.MULTILINE)]

    assert front_matter(text)[0]["kind"] == "tutorial"
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= 3


@for_each("path", OF_KIND["reference"], ids=lambda path: path.relative_to(DOCS).as_posix())
def test_reference_is_tabular_and_has_no_steps_to_follow(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert "\n|---" in text
    assert "When you want to " not in text
    assert re.findall(r"^```(?:sh|console)$", text, re.MULTILINE) == []


@for_each("path", OF_KIND["explanation"], ids=lambda path: path.relative_to(DOCS).as_posix())
def test_explanation_contains_no_instructions(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert re.findall(r"^```(?:sh|console)\b", text, re.MULTILINE) == []
    assert (
        re.findall(r"^(?:\d+\.|-) (?:Run|Start|Install|Set|Open|Add|Write|Copy) ", text, re.MULTILINE) == []
    )


def test_drawings_have_the_colours_of_both_themes(texts: dict[str, str]) -> None:
    drawings = {place: text for place, text in texts.items() if place.endswith(".svg")}
    drawings |= {path.name: path.read_text(encoding="utf-8") for path in DOCS.rglob("*.svg")}
    theme = (DOCS / "site.css").read_text(encoding="utf-8")

    assert len(drawings) >= 30
    assert [place for place, text in drawings.items() if "prefers-color-scheme: dark" not in text] == []
    assert "color-scheme: light" in theme
    assert "color-scheme: dark" in theme


def test_picture_alone_is_shown_in_the_theme_of_the_reader(texts: dict[str, str]) -> None:
    shown = re.findall(r"pictures/execution-\S+?\.png(?:#[a-z-]+)?", texts["index.md"])
    assert shown == ["pictures/execution-light.png#only-light", "pictures/execution-dark.png#only-dark"]


def test_page_of_an_example_shows_the_graph_of_each_document(texts: dict[str, str]) -> None:
    pictures = {
        place: re.findall(r"!\[The graph of .+\]\((.+\.svg)\)", text)
        for place, text in texts.items()
        if place.startswith("examples/") and place.endswith(".md") and place != "examples/index.md"
    }

    assert pictures["examples/fan-out.md"] == ["fan-out-fan-out.svg"]
    assert [place for place, found in pictures.items() if not found] == []
    assert all("<svg" in texts[f"examples/{each}"] for found in pictures.values() for each in found)


def test_long_sentence_is_found_outside_of_fences_and_tables() -> None:
    words = "word " * 50
    text = f"# A\n\n{words}ends. Short.\n\n```sh\n{words}\n```\n\n| {words} |\n|---|\n"

    assert [count for count, _ in long_sentences(text)] == [51]


def test_site_is_built_again_when_a_page_changes(tmp_path: Path) -> None:
    page, site = tmp_path / "page.md", tmp_path / "site"
    site.mkdir()
    page.write_text("old", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "tools.docs.serve",
        "--port",
        "0",
        "--site",
        str(site),
        "--watch",
        str(page),
    ]
    with subprocess.Popen(
        [*command, "--", "cp", str(page), str(site / "index.html")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            page.write_text("new", encoding="utf-8")
            lines = [process.stdout.readline() for _ in range(2)]
            shown = httpx.get(url, trust_env=False).text
        finally:
            process.terminate()

    assert lines == ["page.md changed, building\n", "built\n"]
    assert shown == "new"


@for_each("path", GUIDES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_guide_states_its_purpose_and_how_to_tell_that_it_worked(path: Path) -> None:
    fields, text = front_matter(path.read_text(encoding="utf-8"))
    first = text.split("\n\n")[1]

    assert fields["kind"] == "guide"
    assert first.startswith("When you want to ")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[-1] == "How to tell that it worked"


@pytest.mark.parametrize("name", ["benchmarks.md", "reliability.md"])
def test_page_with_figures_states_when_and_how_they_were_measured(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    introduction, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    without_command = [
        section.splitlines()[0]
        for section in sections
        if "\n|---" in section and not re.search(r"(?:`|^ *)(?:make|rune|python) ", section, re.MULTILINE)
    ]

    assert re.search(r"\b[A-Z][a-z]+ 20\d\d\b", introduction)
    assert without_command == []


def test_each_stored_example_opens_in_the_server_of_make_run(texts: dict[str, str]) -> None:
    pages = {place: text for place, text in texts.items() if place.startswith("examples/")}
    links = {
        place: re.findall(
            r"^\[Open `.+` in Rune\]\(http://127\.0\.0\.1:8080/workflows/(.+?)\)", text, re.MULTILINE
        )
        for place, text in pages.items()
    }

    assert links["examples/fan-out.md"] == ["fan-out"]
    assert links["examples/parent-and-children.md"] == ["order", "price-line"]
    assert links["examples/custom-nodes.md"] == [], "its node types are not installed"
    assert len([place for place, found in links.items() if found]) >= 9


def test_page_of_an_old_version_links_to_the_same_page_of_the_newest() -> None:
    texts = {
        "index.md": "---\nkind: guide\n---\n\n# Rune\n\nText\n",
        "guides/a/b.md": "# B\n",
        "site.css": "a {}\n",
    }

    old = with_notices(texts, "0.9", "0.10")

    assert old["index.md"] == (
        "---\nkind: guide\n---\n\n# Rune\n\n!!! warning\n\n    This page describes version 0.9. The newest version is"
        ' <a href="../0.10/index.html">0.10</a>.\n\n\nText\n'
    )
    assert 'href="../../../0.10/guides/a/b.html"' in old["guides/a/b.md"]
    assert old["site.css"] == texts["site.css"]
    for folder, newest in (("0.10", "0.10"), ("latest", "0.10"), ("", ""), ("0.9", "")):
        assert with_notices(texts, folder, newest) == texts


@pytest.mark.parametrize("name", ["../0.1", "0.1.2", "v0.1", "0.1/x", "Latest"])
def test_folder_of_a_version_has_a_plain_name(name: str) -> None:
    with pytest.raises(ValueError, match="neither"):
        check_folder(name)


def test_comparison_of_interfaces_cites_a_page_for_each_tool() -> None:
    text = (DOCS / "about" / "compared.md").read_text(encoding="utf-8")
    section = text.split("## Their web interfaces\n")[1].split("\n## ")[0]
    points = [each for each in re.split(r"^- ", section, flags=re.MULTILINE) if each.startswith("**")]

    assert len(points) == 4
    assert [each.split("**")[1] for each in points if "](https://" not in each] == []


def unsourced(page: str) -> list[str]:
    """Return the cells of the table of engines that neither link to a page of the engine nor are unknown."""
    section = page.split("## At a glance\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]
    defined = set(re.findall(r"^\[([\w-]+)\]: https://", page, re.MULTILINE))
    found: list[str] = []
    for row in rows[1:]:
        for engine, cell in zip(rows[0][1:], row[1:], strict=True):
            named = {
                each for each in re.findall(r"\]\[([\w-]+)\]", cell) if each.startswith(f"{engine.lower()}-")
            }
            linked = "](../" in cell if engine == "Rune" else bool(named & defined)
            if not linked and cell != "unknown":
                found.append(f"{row[0]}, {engine}: {cell}")
    return found


def test_comparison_cites_a_page_of_the_engine_in_each_cell() -> None:
    text = (DOCS / "about" / "compared.md").read_text(encoding="utf-8")
    defined = re.findall(r"^\[([\w-]+)\]: ", text, re.MULTILINE)
    sources = " ".join(text.split("## Sources\n")[1].split("\n[")[0].split())

    assert unsourced(text) == []
    assert sorted(defined) == sorted(set(re.findall(r"\]\[([\w-]+)\]", text))), (
        "each source is defined once and used"
    )
    assert re.search(r"were read on \d+ [A-Z][a-z]+ 20\d\d", sources)


@pytest.mark.parametrize(
    ("cell", "count"),
    [
        ("code", 1),
        ("[code][other-page]", 1),
        ("[code][engine-missing]", 1),
        ("[code][engine-page]", 0),
        ("unknown", 0),
    ],
)
def test_cell_without_a_source_is_found(cell: str, count: int) -> None:
    table = f"| | Rune | Engine |\n|---|---|---|\n| is | [data](../language.md) | {cell} |\n"
    page = f"## At a glance\n\n{table}\n## Next\n\n[engine-page]: https://engine.example\n[other-page]: https://other.example\n"

    assert len(unsourced(page)) == count


def test_page_of_a_file_ends_with_the_day_of_its_last_change() -> None:
    texts = {"index.md": "# Rune\n", "reference/settings.md": "# Settings\n", "site.css": "a {}\n"}
    report = "Not what you needed? [Report it](https://example.org/new)."

    assert with_footers(texts, {"index.md": "2026-11-17"}, "https://example.org/new") == {
        "index.md": f"# Rune\n\n---\n\nLast changed on 2026-11-17. {report}\n",
        "reference/settings.md": f"# Settings\n\n---\n\n{report}\n",
        "site.css": "a {}\n",
    }
    assert with_footers(texts, {}, "") == texts
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", day) for day in last_changes(sources()).values())


@pytest.mark.parametrize(
    ("tag", "loaded"),
    [
        ('<link rel="stylesheet" href="https://fonts.example/a.css">', ["https://fonts.example/a.css"]),
        ('<script async src="https://cdn.example/a.js">', ["https://cdn.example/a.js"]),
        ('<link rel="canonical" href="https://docs.example/index.html">', []),
        ('<a href="https://docs.example/">', []),
    ],
)
def test_files_of_other_hosts_are_found(tag: str, loaded: list[str]) -> None:
    assert EXTERNAL.findall(tag) == loaded


def test_llms_txt_lists_every_page(texts: dict[str, str]) -> None:
    navigation = expand(NAVIGATION, texts)
    index = llms.index(navigation, texts)

    assert [place for place in paths(navigation) if f"]({place})" not in index] == []


def test_llms_full_txt_begins_with_the_language_within_its_limit(texts: dict[str, str]) -> None:
    full = llms.full(expand(NAVIGATION, texts), texts)

    assert full.startswith("<!-- reference/language.md -->")
    assert "<!-- reference/nodes/wait.md -->" in full
    assert len(full.encode()) <= llms.MAX_FULL_BYTES
