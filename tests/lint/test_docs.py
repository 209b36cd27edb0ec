"""Links, paths, commands, settings and hazards in the documentation exist."""

from __future__ import annotations

import pathlib
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import typer

from rune.cli.main import app
from rune.settings import DERIVED, Settings
from tests.lint.tree import PACKAGE, ROOT, TESTS, files, name
from tests.support.each import for_each

PAGES = files(ROOT, ".md")
ADRS = sorted((ROOT / "docs" / "adr").glob("*.md"))
HEADINGS = ["Context", "Decision", "Consequence", "What would change our mind"]

FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MAKE = re.compile(r"(?:`|^|\$ )make ([a-z][a-z-]*)", re.MULTILINE)
HAZARD = re.compile(r"^\| ([A-I]\d+) \|[^|]*\|.*\|([^|]*)\|$", re.MULTILINE)


PATH = re.compile(r"(?<![\w./-])((?:tests|src|deploy|bench|examples|docs)/[\w./*-]*[\w*])")
MODULE = re.compile(r"`([a-z_]+/[\w/]+\.(?:py|sql|lua))`")
CLASS_NAME = re.compile(r"`([A-Z][a-z]+[A-Za-z]*)(?:\.(\w+))?`")
CODE_PAGES = ("docs/architecture.md", "docs/walk.md")  # pages that name classes of the package
COLLAPSED_FOLDERS = {"control", "data", "http_client", "functions"}  # drawn in the tree without their modules
SETTING = re.compile(r"`(RUNE_[A-Z_]+)`")


def anchors(page: pathlib.Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = set()
    for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", title.strip().lower())
        found.add(plain.replace(" ", "-"))
    return found


def broken_links(page: pathlib.Path) -> Iterator[str]:
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(file):
            yield f"{target}: no such heading"


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


@for_each("page", PAGES, ids=name)
def test_links_resolve(page: pathlib.Path) -> None:
    assert list(broken_links(page)) == []


@for_each("page", PAGES, ids=name)
def test_named_make_targets_exist(page: pathlib.Path) -> None:
    assert set(MAKE.findall(page.read_text(encoding="utf-8"))) <= make_targets()


def test_every_make_target_has_help() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")

    assert set(re.findall(r"^([a-z][a-z-]*):.*## \S", text, re.MULTILINE)) == make_targets()


@for_each("page", PAGES, ids=name)
def test_named_files_exist(page: pathlib.Path) -> None:
    text = page.read_text(encoding="utf-8")
    places = (ROOT, page.parent)
    missing = [path for path in PATH.findall(text) if not any(any(place.glob(path)) for place in places)]
    known = [f"/{name(path)}" for path in files(ROOT)]
    missing += [path for path in MODULE.findall(text) if not any(file.endswith(f"/{path}") for file in known)]

    assert missing == []


@for_each("page", CODE_PAGES)
def test_named_classes_exist(page: str) -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in files(PACKAGE, ".py"))
    named = CLASS_NAME.findall(FENCE.sub("", (ROOT / page).read_text(encoding="utf-8")))

    missing = {each for each, _ in named if not re.search(rf"^class {each}\b", source, re.MULTILINE)}
    missing |= {method for _, method in named if method and not re.search(rf"def {method}\b", source)}
    assert missing == set()


def drawn_tree() -> dict[str, set[str]]:
    """Return the modules of each folder as the architecture page draws them; collapsed folders have none."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    lines = page.split("## 2. The tree")[1].split("```")[1].splitlines()
    tree: dict[str, set[str]] = {}
    parents: list[str] = []
    for line in lines:
        entry = re.match(r"( +)(\w+)/ (.*)", line)
        if entry:
            indent, folder, text = entry.groups()
            parents[len(indent) // 2 - 1 :] = [folder]
        elif line.startswith(" " * 10):
            text = line
        else:
            continue
        for child in re.findall(r"(\w+)/", text):
            tree["/".join([*parents[:-1], child] if child == "data" else [*parents, child])] = set()
        words = (
            set() if parents[-1] in COLLAPSED_FOLDERS else set(re.findall(r"(?<![\w*.])\w+(?![\w/.])", text))
        )
        tree.setdefault("/".join(parents), set()).update(words)
    return tree


def test_architecture_tree_matches_package() -> None:
    package: dict[str, set[str]] = {}
    for path in files(PACKAGE, ".py"):
        folder = path.parent.relative_to(PACKAGE).as_posix()
        if folder != ".":
            hidden = path.parent.name in COLLAPSED_FOLDERS or path.stem.startswith("__")
            package.setdefault(folder, set()).update(set() if hidden else {path.stem})
    tree = {folder: modules for folder, modules in drawn_tree().items() if modules or folder in package}

    assert tree == package


def test_settings_table_lists_every_setting() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    table = page.split("### Settings")[1].split("\n##")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `RUNE_")]
    known = {f"RUNE_{name.upper()}" for name in set(Settings.__struct_fields__) - DERIVED}

    assert set(SETTING.findall(" ".join(rows))) == known | set(_variables(typer.main.get_command(app)))


def _variables(command: Any) -> Iterator[str]:
    """The environment variables of the options of a command and of those below it."""
    yield from (option.envvar for option in command.params if option.envvar)
    for each in getattr(command, "commands", {}).values():
        yield from _variables(each)


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, recursively through command groups."""
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield words
        return
    for word, each in subcommands.items():
        yield from _commands(each, (*words, word))


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"[\w-]+", " ".join(re.findall(r"^## (.*)$", page, re.MULTILINE))))
    headings |= {"backup", "restore"}  # documented on their own page
    words_of_page = set(re.findall(r"[\w-]+", page))
    commands = list(_commands(typer.main.get_command(app)))

    assert [
        words for words in commands if words[0] not in headings or not words_of_page.issuperset(words)
    ] == []


@for_each("adr", ADRS, ids=name)
def test_decision_has_all_sections(adr: pathlib.Path) -> None:
    text = adr.read_text(encoding="utf-8")

    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    assert re.match(rf"# {int(adr.name[:4])}\. \S", text), "the title carries the number of the file"


@for_each("adr", ADRS, ids=name)
def test_decision_has_a_status(adr: pathlib.Path) -> None:
    status = adr.read_text(encoding="utf-8").split("\n")[2]

    other = r"\[ADR \d+\]\([0-9a-z-]+\.md\)"
    assert re.fullmatch(
        rf"Status: (accepted(; superseded in part by {other})?|superseded by {other})", status
    )


def test_decisions_are_cited_by_file() -> None:
    """A number alone says nothing to a reader."""
    files = [
        path
        for folder, kinds in (("src", ("*.py", "*.lua", "*.sql", "*.md")), ("docs", ("*.md",)))
        for kind in kinds
        for path in (ROOT / folder).rglob(kind)
    ]
    cited = re.compile(r"(?<!\[)\bADR\s\d+(?!\d*\]\()")
    assert [path.name for path in files if cited.search(path.read_text(encoding="utf-8"))] == []


def test_decisions_are_numbered_and_listed() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")

    assert [int(adr.name[:4]) for adr in ADRS] == list(range(len(ADRS)))
    assert [adr.name for adr in ADRS if f"(adr/{adr.name})" not in index] == []


def test_each_decision_is_listed_under_one_subject() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"\[(\d+)\]\(adr/([^)]+)\)", index.split("### By subject\n")[1])
    decisions = [(str(int(adr.name[:4])), adr.name) for adr in ADRS[1:]]

    assert sorted(listed, key=lambda each: each[1]) == decisions, "add it to By subject of docs/README.md"


def test_hazard_codes_have_no_gap() -> None:
    codes = [code for code, _ in HAZARD.findall((ROOT / "docs" / "hazards.md").read_text(encoding="utf-8"))]
    counts = {letter: sum(code[0] == letter for code in codes) for letter in "ABCDEFGHI"}

    assert counts == {"A": 11, "B": 5, "C": 15, "D": 21, "E": 12, "F": 11, "G": 15, "H": 6, "I": 21}
    assert codes == [
        f"{letter}{number}" for letter, count in counts.items() for number in range(1, count + 1)
    ]


def test_hazard_table_names_existing_tests() -> None:
    table = dict(HAZARD.findall((ROOT / "docs" / "hazards.md").read_text(encoding="utf-8")))
    written = "\n".join(path.read_text(encoding="utf-8") for path in files(TESTS, ".py"))
    tests = set(re.findall(r"def (test_\w+)", written))
    hazard_tests = {test: test.split("_")[2].upper() for test in tests if re.match(r"test_h_[a-i]\d+_", test)}

    named = {test for cell in table.values() for test in re.findall(r"test_\w+", cell)}
    assert named <= tests, "the table names tests that do not exist"
    assert set(hazard_tests.values()) <= table.keys(), "a test names a hazard that does not exist"


def test_changelog_has_current_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert f"## [{project['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
