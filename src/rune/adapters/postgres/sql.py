"""The statements, each in a file of its own."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def query(name: str) -> str:
    """The statement of this name, without the remarks at its head."""
    lines = files(__package__).joinpath("queries", f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))


@cache
def migrations() -> tuple[tuple[str, str], ...]:
    """The steps of the schema in their order: name and text. Step i leads from version i to version i + 1."""
    folder = files(__package__).joinpath("migrations")
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".sql"))
    return tuple((name, folder.joinpath(name).read_text(encoding="utf-8")) for name in names)
