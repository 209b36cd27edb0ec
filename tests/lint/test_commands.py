"""Commands of `rune` that the pages and the help texts show exist, with these options and arguments."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from typer.exceptions import TyperException

from rune.cli.main import FORMER_NAMES
from rune.core.permissions import ROLES
from tests.lint.tree import ROOT, files, name
from tests.support.each import for_each
from tests.support.help_examples import RUNE, help_examples, words_of

PAGES = [path for path in files(ROOT, ".md") if path.name != "CHANGELOG.md"]  # which names former commands
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(rune [^`]+)`")
CALL = re.compile(r"(?:^|[|;&(]) *(?:[A-Z_]+=\S* +)*(rune [^\n]*)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def calls(text: str) -> Iterator[str]:
    """Yield the commands of a shell script, from `rune` to the end of the line."""
    yield from CALL.findall(re.sub(r"\\\n\s*", " ", text))


def shown(page: str) -> Iterator[str]:
    """Yield the commands that a page shows to be run as they are."""
    for language, body in FENCE.findall(page):
        if language == "console":
            yield from calls("\n".join(line[2:] for line in body.splitlines() if line.startswith("$ ")))
        elif language == "sh":
            yield from calls(body)


def mentioned(page: str) -> Iterator[str]:
    """Yield all commands of a page, with placeholders or without: in fences and in the text."""
    for _, body in FENCE.findall(page):
        yield from calls(re.sub(r"^\$ ", "", body, flags=re.MULTILINE))
    yield from INLINE.findall(FENCE.sub("", page))


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command or the group that the first words name, and the other words."""
    command, rest = RUNE, list(words)
    while rest and rest[0] in getattr(command, "commands", ()):
        command = command.commands[rest.pop(0)]
    return command, rest


def options_of(command: Any) -> set[str]:
    """Return the options of a command, and of a group those of its commands too."""
    own = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    return own.union(*(options_of(each) for each in getattr(command, "commands", {}).values()))


def unknown_in(call: str) -> Iterator[str]:
    """Yield the command or the options of a call that do not exist. A synopsis such as `rune keys list | limit ID`
    shows several commands of a group, and may have options of each."""
    words = [word.strip("[]().,:;") for word in call.split()[1:]]
    if words and re.fullmatch(r"[a-z][a-z-]*", words[0]) and words[0] not in RUNE.commands:
        yield words[0]
        return
    command, _ = command_of(words[:1] if "|" in call else words)
    yield from sorted(set(OPTION.findall(call)) - options_of(command) - {"--help"})


def rejections(found: Iterable[str]) -> list[str]:
    """Return the calls that the parser rejects, with its message. Nothing is run."""
    rejected = []
    for call in found:
        command, rest = command_of(words_of(call))
        try:
            command.make_context(command.name, rest)
        except TyperException as error:
            rejected.append(f"{call}: {error}")
    return rejected


@for_each("page", PAGES, ids=name)
def test_mentioned_commands_and_options_exist(page: pathlib.Path) -> None:
    found = [(call, list(unknown_in(call))) for call in mentioned(page.read_text(encoding="utf-8"))]

    assert [(call, unknown) for call, unknown in found if unknown] == []


@for_each("page", PAGES, ids=name)
def test_shown_commands_are_accepted(page: pathlib.Path) -> None:
    assert rejections(shown(page.read_text(encoding="utf-8"))) == []


def test_examples_of_help_texts_are_accepted() -> None:
    examples = help_examples()

    assert len(examples) > len(RUNE.commands)
    assert rejections(call for example in examples for call in calls(example)) == []


@for_each("page", PAGES, ids=name)
def test_lists_of_commands_contain_no_former_name(page: pathlib.Path) -> None:
    listed = set(re.findall(r"`([a-z-]+)`", FENCE.sub("", page.read_text(encoding="utf-8"))))

    assert listed & (FORMER_NAMES.keys() - {"log"}) == set()  # `log` is also a node type


@pytest.mark.parametrize("page", ["docs/cli.md", "docs/access.md", "docs/security.md"])
def test_page_names_every_role(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")

    assert [role for role in ROLES if not re.search(rf"\b{role}\b", text)] == []


@pytest.mark.parametrize(
    ("call", "unknown"),
    [
        ("rune up --nodes shop", ["--nodes"]),
        ("rune gc", ["gc"]),
        ("rune keys list | limit ID [--rate R]", []),
        ("rune keys list --rate 1/s", ["--rate"]),
        ("rune COMMAND --help", []),
    ],
)
def test_unknown_command_or_option_is_found(call: str, unknown: list[str]) -> None:
    assert list(unknown_in(call)) == unknown


@pytest.mark.parametrize(
    ("call", "accepted"),
    [
        ("rune run hello.yaml --input '{\"a\": 1}' | tail -n 1", True),
        ("rune run", False),
        ("rune run hello.yaml --unknown", False),
        ("rune keys create ci --role king", False),
        ("rune serve worker > log 2>&1 &", True),
    ],
)
def test_call_is_parsed_as_the_shell_passes_it(call: str, accepted: bool) -> None:
    assert (rejections([call]) == []) is accepted


def without_json(command: Any) -> Iterator[str]:
    """Yield the names of the commands of a group that have no `--json`."""
    for called, each in command.commands.items():
        inner = {*without_json(each)} if getattr(each, "commands", None) else set()
        if not each.hidden and (inner or "--json" not in options_of(each)):
            yield called


def test_language_page_lists_the_commands_without_json() -> None:
    page = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"Every command supports `--json`, except ([^.]*)\.", page)

    assert re.findall(r"`(\w+)`", listed) == sorted(without_json(RUNE))


def test_language_page_has_all_exit_codes() -> None:
    pages = [(ROOT / "docs" / each).read_text(encoding="utf-8") for each in ("language.md", "cli.md")]
    tables = [re.split(r"\| (?:exit )?code \| meaning \|", each)[1].split("\n\n")[0] for each in pages]
    here, there = (re.findall(r"^\| ([\d, ]+) \|", each, re.MULTILINE) for each in tables)

    assert here == there
