"""Import a document of another tool: detect its format, convert it, check the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from rune.core.definition import problems as codes
from rune.core.definition.parser import parse_data
from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import Decoded, decode_json
from rune.core.limits import LIMITS
from rune.core.node_type import Catalogue
from rune.documents.importers.asl.machine import import_asl, is_asl
from rune.documents.importers.canvas.document import import_canvas, is_canvas
from rune.documents.importers.draft import FORMATS, Format, Import, with_names
from rune.documents.importers.n8n.graph import import_n8n, is_n8n
from rune.documents.importers.source import observed, plain
from rune.documents.loader import check_document
from rune.errors import InvalidDocumentError, LimitExceededError

_IMPORTERS: Mapping[Format, Callable[..., Import]] = {
    "canvas": import_canvas,
    "n8n": import_n8n,
    "asl": import_asl,
}
_DETECTORS: Mapping[Format, Callable[[Any], bool]] = {"canvas": is_canvas, "n8n": is_n8n, "asl": is_asl}


def import_document(
    data: bytes | str,
    catalogue: Catalogue,
    *,
    format: str | None = None,
    name: str = "",
    stubs: bool = False,
) -> Import:
    """Import a document, JSON or YAML, and check the result against the node types of a catalogue.

    `format` is one of `FORMATS`; by default it is detected. `name` names a workflow whose document has no name. A text
    that cannot be read or whose format is unknown raises InvalidDocumentError. With `stubs`, tasks of a state machine
    without a counterpart become custom nodes, whose source to complete is part of the result; else they become gaps.
    """
    source = decode_source(data)
    chosen = detect_format(source) if format is None else _known_format(format)
    if not _DETECTORS[chosen](source):
        message = f"the document is not in the format `{chosen}`"
        raise _refused(message, "omit the format to have it detected")
    try:
        options = {"stubs": stubs} if chosen == "asl" else {}
        found = _IMPORTERS[chosen](observed(source), name=name, **options)
    except LimitExceededError as error:
        raise InvalidDocumentError((Problem("", codes.TOO_MANY, error.message),)) from error
    found = replace(found, document=plain(found.document), test=plain(found.test))
    return _checked(with_names(found, source), catalogue)


def decode_source(data: bytes | str) -> Any:
    """Decode a source document within the limits of definitions; JSON or YAML is detected."""
    start = data.lstrip()[:1]
    if start in {b"{", b"[", "{", "["}:
        decoded = decode_json(data, max_bytes=LIMITS.definition_bytes, max_depth=LIMITS.json_depth)
    else:
        from rune.documents.yaml import decode_yaml  # noqa: PLC0415 - a slow import that JSON does not need

        decoded = decode_yaml(data, max_bytes=LIMITS.definition_bytes, max_depth=LIMITS.json_depth)
    if decoded.problems:
        raise InvalidDocumentError(decoded.problems)
    return decoded.value


def detect_format(source: Any) -> Format:
    """Return the format of a decoded document; raise InvalidDocumentError if it is unknown."""
    for each in FORMATS:
        if each in _DETECTORS and _DETECTORS[each](source):
            return each
    known = ", ".join(f"`{each}`" for each in _DETECTORS)
    raise _refused("the format of the document is unknown", f"known formats: {known}")


def _known_format(name: str) -> Format:
    for each in FORMATS:
        if each == name and each in _DETECTORS:
            return each
    known = ", ".join(f"`{each}`" for each in _DETECTORS)
    raise _refused(f"`{name[:40]}` is not a format", f"known formats: {known}")


def _refused(message: str, hint: str) -> InvalidDocumentError:
    return InvalidDocumentError((Problem("", codes.UNKNOWN_SOURCE, message, hint),))


def _checked(found: Import, catalogue: Catalogue) -> Import:
    verdict = check_document(parse_data(Decoded(found.document)), catalogue)
    return replace(found, report=replace(found.report, problems=tuple(verdict.problems)))
