"""`rune test` and `rune record`: run workflow tests in YAML or JSON, and write one from an execution."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from rune.cli.arguments import Nodes, with_modules, without_file_modules
from rune.cli.backend import CommandReader, read, resolve
from rune.cli.output import clean, count
from rune.core.definition.problems import Problem
from rune.errors import InvalidDocumentError, RuneError
from rune.nodes.registry import full_registry
from rune.runtime.queries.record import record_test
from rune.settings import Settings, load_settings
from rune.testing.cases import Case, CaseResult, case_files, load_cases, run_case


def run_tests(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Files with tests, YAML or JSON, or folders of such files."),
    ],
    nodes: Nodes = None,
    name: Annotated[
        str | None,
        typer.Option("-k", metavar="TEXT", help="Run only the tests whose name contains this text."),
    ] = None,
    junit: Annotated[
        str | None, typer.Option("--junit", metavar="OUT", help="File for a report in the JUnit format.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Run workflow tests that are written in YAML or JSON.

    A test has an input, mocks, steps and an expected result, and runs in virtual
    time.

    Exit codes: 0 all tests passed; 1 a test failed; 2 a file cannot be read.

    Example: rune test tests/orders.yaml -k refund
    """
    console = Console(highlight=False, soft_wrap=True, quiet=as_json)
    try:
        modules = with_modules(load_settings(), nodes).nodes
    except RuneError as error:
        raise typer.Exit(_refuse({"": (Problem("", error.code, error.message),)}, as_json)) from None
    found, invalid = _find_cases(files, name)
    if invalid:
        raise typer.Exit(_refuse(invalid, as_json))
    results: list[tuple[Path, CaseResult]] = []
    for path, case in found:
        result = run_case(case, path.parent, nodes=modules)
        results.append((path, result))
        _print(console, path, result)
    failed = sum(not result.passed for _, result in results)
    if as_json:
        typer.echo(json.dumps(_described(results), ensure_ascii=False, indent=2))
    else:
        seconds = sum(result.seconds for _, result in results)
        console.print(
            f"{count(len(results), 'test')}: {len(results) - failed} passed, {failed} failed, {seconds:.1f} s"
        )
    if junit is not None:
        _write_junit(Path(junit), results)
    if failed:
        raise typer.Exit(1)


def _find_cases(
    files: list[str], name: str | None
) -> tuple[list[tuple[Path, Case]], dict[str, tuple[Problem, ...]]]:
    """Return the tests whose name contains `name`, and the problems by file; it is a problem if there is no test."""
    found: list[tuple[Path, Case]] = []
    invalid: dict[str, tuple[Problem, ...]] = {}
    for path in case_files(files):
        try:
            found += [(path, each) for each in load_cases(path) if name is None or name in each.case]
        except InvalidDocumentError as error:
            invalid[str(path)] = error.problems
    if not found and not invalid:
        advice = "name files with tests, or another text with -k"
        invalid[""] = (Problem("", "NO_TESTS", "no test was found", advice),)
    return found, invalid


def _print(console: Console, path: Path, result: CaseResult) -> None:
    mark = ("✓ ", "bold green") if result.passed else ("✗ ", "bold red")
    console.print(Text.assemble(mark, (clean(result.case.case), "bold"), f"  {path}"))
    for line in result.deviations:
        console.print(Text(f"    {clean(line)}"))


def _described(results: Sequence[tuple[Path, CaseResult]]) -> dict[str, Any]:
    failed = sum(not result.passed for _, result in results)
    return {
        "status": "failed" if failed else "passed",
        "passed": len(results) - failed,
        "failed": failed,
        "tests": [
            {
                "file": str(path),
                "case": result.case.case,
                "status": "passed" if result.passed else "failed",
                "deviations": list(result.deviations),
                "duration_ms": round(result.seconds * 1000),
            }
            for path, result in results
        ],
    }


def _refuse(refused: dict[str, tuple[Problem, ...]], as_json: bool) -> int:
    if as_json:
        problems = [
            msgspec.to_builtins(each) | {"file": file} for file, all in refused.items() for each in all
        ]
        typer.echo(json.dumps({"status": "invalid", "problems": problems}, ensure_ascii=False, indent=2))
        return 2
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for file, all_problems in refused.items():
        for each in all_problems:
            place = (
                f"{file}:{each.line}:{each.column}: "
                if each.line is not None
                else f"{file}: "
                if file
                else ""
            )
            text = "".join(
                (f"{each.path}: " if each.path else "", each.message, each.hint and f"  {each.hint}")
            )
            console.print(Text.assemble(place, ("error ", "bold red"), text))
    return 2


def _write_junit(target: Path, results: Sequence[tuple[Path, CaseResult]]) -> None:
    """Write the results as JUnit XML, one test suite per file."""
    root = ElementTree.Element("testsuites")
    for path in dict.fromkeys(path for path, _ in results):
        own = [result for file, result in results if file == path]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=str(path),
            tests=str(len(own)),
            failures=str(sum(not each.passed for each in own)),
            time=f"{sum(each.seconds for each in own):.3f}",
        )
        for each in own:
            case = ElementTree.SubElement(
                suite, "testcase", classname=str(path), name=clean(each.case.case), time=f"{each.seconds:.3f}"
            )
            if not each.passed:
                failure = ElementTree.SubElement(case, "failure", message=clean(each.deviations[0]))
                failure.text = clean("\n".join(each.deviations))
    ElementTree.ElementTree(root).write(target, encoding="utf-8", xml_declaration=True)


def record(
    execution: Annotated[str, typer.Argument(metavar="ID", help="Execution id, or a unique prefix of it.")],
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="OUT", help="File for the test. Default: standard output."),
    ] = None,
    nodes: Nodes = None,
) -> None:
    """Write a test for `rune test` from an execution that has ended.

    The test contains the workflow, its input and its outcome. Nodes that have
    effects or an unknown type are mocked: the mock returns what the node returned.
    The modules that rune.toml names are not imported.

    Example: rune record x019a -o tests/test-orders.json
    """

    async def work(reader: CommandReader, settings: Settings) -> int:
        registry = full_registry(with_modules(without_file_modules(settings), nodes).nodes)
        text = await record_test(reader, registry, await resolve(reader, execution))
        _write_test(output, text.decode())
        return 0

    raise typer.Exit(read(work, as_json=False))


def _write_test(target: str | None, text: str) -> None:
    if target is None:
        typer.echo(text)
        return
    try:
        Path(target).write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RuneError(f"cannot write {target}: {reason}", code="UNWRITABLE") from None
