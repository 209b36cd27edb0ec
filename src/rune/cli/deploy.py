"""`rune deploy`: keep a definition under the name of its workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rune.core.problem import Problem
    from rune.ports.library import Version


def deploy(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A workflow, JSON or YAML, or its folder; `-` reads stdin.")
    ],
    alias: Annotated[
        str | None,
        typer.Option("--alias", "-a", help="Let this alias point at the version too, beside `latest`."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Keep a workflow as its next version, to be started by its name.

    A document that says the same as an earlier version is that version again. Every deploy moves `latest`.

    Examples: rune deploy order.yaml; rune deploy order.yaml --alias stable
    """
    from rune.cli.library import refusing  # noqa: PLC0415 - help must be quick

    raise typer.Exit(refusing(lambda: _deploy(file, alias, as_json=as_json), as_json=as_json))


def _deploy(file: str, alias: str | None, *, as_json: bool) -> int:
    from rune.cli.library import ask  # noqa: PLC0415
    from rune.cli.problems import refuse  # noqa: PLC0415
    from rune.cli.source import read_document  # noqa: PLC0415
    from rune.core.definition import canonical  # noqa: PLC0415
    from rune.documents import check_document  # noqa: PLC0415
    from rune.nodes.discovery import full_registry  # noqa: PLC0415
    from rune.ports.library import check_alias  # noqa: PLC0415
    from rune.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    if alias is not None:
        check_alias(alias)
    verdict = check_document(read_document(file), full_registry(settings.nodes).catalogue)
    if not verdict.valid or verdict.definition is None:
        return refuse(verdict.problems, as_json=as_json)
    definition = canonical(verdict.definition)
    version = ask(settings, lambda desk: desk.deploy(definition, alias=alias))
    if as_json:
        _print_document(version, verdict.problems)
    else:
        refuse(verdict.problems, as_json=False)  # warnings: said, but nothing hangs on them
        _print(version)
    return 0


def _print_document(version: Version, warnings: Sequence[Problem]) -> None:
    import msgspec  # noqa: PLC0415

    from rune.cli.library import version_document  # noqa: PLC0415
    from rune.cli.problems import print_json  # noqa: PLC0415

    print_json(
        {
            "status": "deployed",
            "workflow_id": version.workflow,
            **version_document(version),
            "change": version.change,
            "problems": [msgspec.to_builtins(each) for each in warnings],
        }
    )


def _print(version: Version) -> None:
    from rune.cli.library import label  # noqa: PLC0415
    from rune.cli.text import paint  # noqa: PLC0415

    said = {
        "created": f"deployed ({', '.join(version.aliases)})",
        "moved": f"was deployed before; it is now {', '.join(version.aliases)}",
        "none": f"is what is deployed already ({', '.join(version.aliases)}): nothing changed",
    }
    print(f"{paint(label(version), 'bold')} {said[version.change]}")
