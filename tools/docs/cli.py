"""The reference of the command line, made from the declarations of the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from rune.cli.main import PANELS, load_command
from tools.docs.markdown import code, fence, page, table

FOLDER = "reference/cli"
EXIT_CODES = (
    (0, "completed; valid; nothing wrong found"),
    (1, "the execution failed, halted or was cancelled; a check found a problem"),
    (2, "rejected: an argument, a setting, a document, a start payload, an unknown id"),
    (3, "the file, a store or the server of `RUNE_URL` is unavailable"),
    ("130, 143", "stopped by Ctrl-C, by SIGTERM"),
)


def pages() -> dict[str, str]:
    """Return the page of each command and the page that lists them."""
    made = {f"{FOLDER}/index.md": _index()}
    for name in _names():
        blocks = list(_describe(load_command(name), f"rune {name}", 2))
        made[f"{FOLDER}/{name}.md"] = page(f"`rune {name}`", blocks, audience="operator")
    return made


def _names() -> list[str]:
    return [name for panel in PANELS.values() for name in panel]


def _index() -> str:
    blocks = [
        "`rune COMMAND --help` prints the same. [The command line](../../cli.md) describes what is common to all."
    ]
    for panel, entries in PANELS.items():
        rows = [(f"[`rune {name}`]({name}.md)", entry.short_help) for name, entry in entries.items()]
        blocks += [f"## {panel}", table(("command", ""), rows)]
    blocks += ["## Exit codes", table(("code", "meaning"), EXIT_CODES)]
    return page("Commands", blocks, audience="operator")


def _describe(command: Any, name: str, level: int) -> Iterator[str]:
    """Yield the blocks of a command and of its subcommands."""
    context = typer.Context(command, info_name=name)
    yield from _prose(command.help or "")
    yield fence("text", f"{name} {' '.join(command.collect_usage_pieces(context))}".rstrip())
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    yield table(
        ("argument", "meaning"),
        [(code(each.make_metavar(context)), getattr(each, "help", "") or "") for each in arguments],
    )
    yield table(("option", "default", "meaning"), [_option(each) for each in options])
    for word, each in _subcommands(command):
        yield f"{'#' * level} `{name} {word}`"
        yield from _describe(each, f"{name} {word}", min(level + 1, 4))


def _subcommands(command: Any) -> Iterator[tuple[str, Any]]:
    for word, found in getattr(command, "commands", {}).items():
        if not found.hidden:
            yield word, found


def _option(option: Any) -> tuple[str, str, str]:
    names = ", ".join(code(each) for each in (*option.opts, *option.secondary_opts))
    kind = "" if option.is_flag else f" {code(option.metavar or option.type.name.upper())}"
    return names + kind, _default(option), option.help or ""


def _default(option: Any) -> str:
    shown: Any = getattr(option, "show_default", None)
    if isinstance(shown, str):
        return shown
    if option.required:
        return "required"
    value = option.default
    if option.is_flag or value is None or callable(value) or value == ():
        return ""
    return code(value)


def _prose(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; its examples become a fence."""
    text = text.replace("\b\n", "").replace("\f", "")
    about, _, examples = text.partition("Examples:\n")
    for block in re.split(r"\n\s*\n", about):
        lines = block.splitlines()
        if len(lines) > 1 and any(line.startswith("  ") for line in lines):
            yield fence("text", block)
        else:
            yield " ".join(block.split())
    if examples:
        yield fence("sh", "\n".join(line.strip() for line in examples.strip().splitlines()))
