"""Load workflow documents and start payloads from JSON or YAML, and validate them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rune.core.definition import problems as codes
from rune.core.definition.model import Definition
from rune.core.definition.parser import Parsed, SourceText, parse_data, parse_document, unknown_format
from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import parse_input
from rune.core.limits import LIMITS, Limits
from rune.core.node_type import Catalogue
from rune.core.validation.validate import ValidationResult, validate_document
from rune.documents.positions import YAML_SUFFIXES, locate
from rune.errors import InvalidDocumentError


def load_document(
    source: Path | bytes | str,
    suffix: str | None = None,
    *,
    limits: Limits = LIMITS,
    yaml_seconds: float | None = None,
) -> Parsed:
    """Read a document from a file or from its text. `suffix` is `json`, `yaml` or `yml`; the default is the file's.
    `yaml_seconds` limits the CPU time that YAML may take."""
    name = ""
    if isinstance(source, Path):
        suffix, name = suffix or source.suffix.lstrip("."), str(source)
        try:
            with source.open("rb") as file:
                # One byte above the limit is enough to detect a file that is too large.
                source = file.read(limits.definition_bytes + 1)
        except OSError as error:
            message = f"`{error.filename}` cannot be read: {(error.strerror or str(error)).lower()}"
            return Parsed(None, (Problem("", codes.UNREADABLE, message),))
    suffix = (suffix or "json").lower()
    parsed = _parse(source, suffix, limits, yaml_seconds)
    data = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    text = SourceText(data, suffix, name)
    return replace(parsed, problems=locate(parsed.problems, text), source=text)


def _parse(data: bytes | str, suffix: str, limits: Limits, yaml_seconds: float | None) -> Parsed:
    if suffix in YAML_SUFFIXES:
        from rune.documents.yaml import decode_yaml  # noqa: PLC0415 - a slow import that JSON does not need

        decoded = decode_yaml(
            data, max_bytes=limits.definition_bytes, max_depth=limits.json_depth, max_seconds=yaml_seconds
        )
        return parse_data(decoded, limits=limits)
    if suffix != "json":
        return Parsed(None, (unknown_format(suffix),))
    return parse_document(data, limits=limits)


def check_document(parsed: Parsed, catalogue: Catalogue, *, limits: Limits = LIMITS) -> ValidationResult:
    """Validate a document, including the JSON Schema in `inputs`. Problems have a line if its text is known."""
    result = validate_document(parsed, catalogue, limits, check_schema=_check_schema)
    return replace(result, problems=locate(result.problems, parsed.source)) if result.problems else result


def definition_in(verdict: ValidationResult) -> Definition:
    """Return the definition of a valid document; raise InvalidDocumentError with the errors of any other."""
    if not verdict.valid or verdict.definition is None:
        raise InvalidDocumentError(tuple(each for each in verdict.problems if each.severity == "error"))
    return verdict.definition


def _check_schema(schema: dict[str, Any]) -> list[Problem]:
    from rune.documents.input_schema import check_schema  # noqa: PLC0415 - a slow import that few documents need

    return check_schema(schema)


def input_problems(definition: Definition, data: bytes | str, *, limits: Limits = LIMITS) -> list[Problem]:
    """Return the problems of a start payload, which must be JSON within the limits that matches `inputs`."""
    decoded = parse_input(data, limits=limits)
    if decoded.problems or definition.inputs is None:
        return list(decoded.problems)
    from rune.documents.input_schema import check_value  # noqa: PLC0415 - a slow import that few documents need

    return check_value(definition.inputs, decoded.value)


def check_input(definition: Definition, data: bytes | str) -> None:
    """Raise InvalidDocumentError with all problems of a start payload, if it has any."""
    problems = input_problems(definition, data)
    if problems:
        raise InvalidDocumentError(tuple(problems))
