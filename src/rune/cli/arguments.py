"""`--key`: under which something is done once. An empty one, as an unset variable gives, would do it each time.

The options that say what starts are held to, the same wherever limits are set.

Values given on the command line: payloads, labels.

Documents named on the command line: files, folders that hold one, and `-` for standard input.

Definitions as YAML that Rune reads back to the same content.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import replace
from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

from rune.core.definition import problems
from rune.core.definition.parser import Parsed, parse_input
from rune.core.definition.problems import Problem
from rune.core.limits import LIMITS
from rune.core.validation.validate import ValidationResult
from rune.documents.loader import check_document, load_document
from rune.errors import InvalidDocumentError, RuneError
from rune.nodes.registry import full_registry, standard_catalogue
from rune.settings import load_settings


def not_empty(key: str | None) -> str | None:
    """Refuse a key without a character."""
    if key is not None and not key.strip():
        raise typer.BadParameter("a key has at least one character")
    return key


StartKey = Annotated[
    str | None,
    typer.Option("--key", callback=not_empty, help="Start at most once under this key, now and later."),
]


Rate = Annotated[
    str | None, typer.Option("--rate", metavar="N/s|m|h", help="Starts per second, minute or hour.")
]
Burst = Annotated[
    int | None, typer.Option("--burst", help="How many may come at once; as many as the rate has.")
]
Running = Annotated[int | None, typer.Option("--running", help="Executions that have not ended, at once.")]
Lifted = Annotated[bool, typer.Option("--none", help="Lift all limits.")]


def payload_of(given: str, option: str = "--input") -> bytes:
    """The bytes of a payload, JSON or @FILE, read no further than the limit."""
    if not given.startswith("@"):
        return given.encode()
    try:
        with Path(given[1:]).open("rb") as file:
            return file.read(LIMITS.payload_bytes + 1)
    except OSError as error:
        raise RuneError(
            f"{option} {given}: {(error.strerror or str(error)).lower()}", code="UNREADABLE"
        ) from error


def value_of(given: str, option: str) -> bytes:
    """The same, of a value that must be sound JSON."""
    data = payload_of(given, option)
    problems = parse_input(data).problems
    if problems:
        raise InvalidDocumentError(tuple(replace(each, path=option) for each in problems))
    return data


def labels_of(given: tuple[str, ...]) -> dict[str, str]:
    """Labels, each written name=value."""
    labels: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise RuneError(f"--label {each}: a label is written name=value", code="BAD_LABEL")
        labels[name] = value
    return labels


SUFFIXES = ("yaml", "yml", "json")


def examine_file(name: str) -> ValidationResult:
    """Read and check one document, with every node type that is installed or configured."""
    try:
        known = full_registry(load_settings().nodes).catalogue
    except RuneError as error:
        return check_document(Parsed(None, (Problem("", error.code, error.message),)), standard_catalogue())
    return check_document(read_document(name), known)


def read_document(name: str) -> Parsed:
    """Read one document; a file without a suffix, and standard input, may be JSON or YAML."""
    if name == "-":
        data = sys.stdin.buffer.read(LIMITS.definition_bytes + 1)
        return load_document(data, _guessed(data))
    path = Path(name)
    if path.is_dir():
        found = _in_folder(path)
        if isinstance(found, Problem):
            return Parsed(None, (found,))
        path = found
    return load_document(path, path.suffix.lstrip(".") or "json")


def _in_folder(folder: Path) -> Path | Problem:
    """The workflow of a folder: the file that is called like the folder, or `workflow`."""
    for stem in (folder.resolve().name, "workflow"):
        found = [path for suffix in SUFFIXES if (path := folder / f"{stem}.{suffix}").is_file()]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(f"`{path.name}`" for path in found)
            return Problem("", problems.CONFLICT, f"the folder holds {names}", "name the file that is meant")
    expected = f"`{folder.resolve().name}.yaml` or `workflow.yaml` (or .yml, .json)"
    return Problem(
        "", problems.UNREADABLE, f"the folder {folder} holds no workflow", f"looked for {expected}"
    )


def _guessed(data: bytes) -> str:
    return "json" if data.lstrip()[:1] in {b"{", b"["} else "yaml"


_FIRST = ("id", "src", "dst", "type", "name", "inputs", "settings", "nodes", "edges")

_STYLE = {
    "default_flow_style": False,
    "allow_unicode": True,
    "width": 1_000_000,
    "sort_base_mapping_type_on_output": False,
}


class _Plain(SafeRepresenter):
    """No anchors, which would not be read back; plain texts of several lines as they are."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> Any:
        style = None
        if not data.isprintable():
            style = "|" if all(map(_is_line, data.removesuffix("\n").split("\n"))) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


def _is_line(text: str) -> bool:
    """What is read back as it is without quotes."""
    return text.isprintable() and text == text.rstrip()


_Plain.add_representer(str, _Plain.represent_str)


def to_yaml(definition: dict[str, Any]) -> str:
    """A document with what matters first."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Plain
    vars(yaml).update(_STYLE)
    text = io.StringIO()
    yaml.dump(_ordered(definition), text)
    return text.getvalue()


def _ordered(thing: Any) -> Any:
    """Nodes and edges lead with who they are; within parameters nothing is moved."""
    first = {key: thing[key] for key in _FIRST if key in thing}
    for key in ("nodes", "edges"):
        if key in first:
            first[key] = [_ordered(each) for each in first[key]]
    return first | thing | first


def print_yaml(definition: dict[str, Any]) -> None:
    """The document on stdout."""
    sys.stdout.write(to_yaml(definition))
    sys.stdout.flush()
