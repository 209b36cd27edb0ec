"""Problems found in a document, and every code that a problem may have.

Codes are part of the public contract: new ones are added, existing ones are never renamed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final, Literal

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """One problem. `path` is a place in the document, such as `nodes[3].parameters.timeout`; `line` and `column` are
    that place in the text, counted from 1 in characters, if the text is known."""

    path: str
    code: str
    message: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"
    line: int | None = None
    column: int | None = None

    @property
    def text(self) -> str:
        """The problem as one line: path, message and place in the text."""
        where = "" if self.line is None else f" (line {self.line}, column {self.column})"
        return f"{self.path or 'document'}: {self.message}{where}"


MAX_COMPARED = 200
"""Characters of a word that is compared with known ones: a longer one is no misspelling."""


def did_you_mean(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return a hint that names the closest known words, or else lists some of the known words."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.6) if len(word) <= MAX_COMPARED else []
    if close:
        return "did you mean " + " or ".join(f"`{prefix}{each}`" for each in close) + "?"
    if not names:
        return ""
    shown = ", ".join(f"`{prefix}{each}`" for each in names[:12])
    return f"known: {shown}" + (", …" if len(names) > 12 else "")


NOT_TEXT: Final = "NOT_TEXT"
NOT_JSON: Final = "NOT_JSON"
NOT_YAML: Final = "NOT_YAML"
UNKNOWN_FORMAT: Final = "UNKNOWN_FORMAT"
UNREADABLE: Final = "UNREADABLE"
UNKNOWN_SOURCE: Final = "UNKNOWN_SOURCE"
TOO_LARGE: Final = "TOO_LARGE"
TOO_DEEP: Final = "TOO_DEEP"
TOO_MANY: Final = "TOO_MANY"
DUPLICATE_KEY: Final = "DUPLICATE_KEY"
BAD_NUMBER: Final = "BAD_NUMBER"
BAD_TEXT: Final = "BAD_TEXT"
ALIAS_REFUSED: Final = "ALIAS_REFUSED"
TAG_REFUSED: Final = "TAG_REFUSED"
WRONG_TYPE: Final = "WRONG_TYPE"
WRONG_VALUE: Final = "WRONG_VALUE"
UNKNOWN_FIELD: Final = "UNKNOWN_FIELD"
MISSING_FIELD: Final = "MISSING_FIELD"
CONFLICT: Final = "CONFLICT"
BAD_ID: Final = "BAD_ID"
DUPLICATE_ID: Final = "DUPLICATE_ID"
RESERVED_NAME: Final = "RESERVED_NAME"
NO_NODES: Final = "NO_NODES"
SECRET_IN_DOCUMENT: Final = "SECRET_IN_DOCUMENT"
UNKNOWN_NODE: Final = "UNKNOWN_NODE"
UNKNOWN_EDGE: Final = "UNKNOWN_EDGE"
UNKNOWN_TYPE: Final = "UNKNOWN_TYPE"
UNKNOWN_OUTLET: Final = "UNKNOWN_OUTLET"
NO_OUTLET: Final = "NO_OUTLET"
UNUSED_LABEL: Final = "UNUSED_LABEL"
SELF_LOOP: Final = "SELF_LOOP"
CYCLE: Final = "CYCLE"
UNREACHABLE_NODE: Final = "UNREACHABLE_NODE"
NO_EXIT: Final = "NO_EXIT"
TRIGGER_NOT_ENTRY: Final = "TRIGGER_NOT_ENTRY"
NO_ERROR_EDGE: Final = "NO_ERROR_EDGE"
UNUSED_ERROR_EDGE: Final = "UNUSED_ERROR_EDGE"
BAD_PARAMETER: Final = "BAD_PARAMETER"
UNKNOWN_PARAMETER: Final = "UNKNOWN_PARAMETER"
MISSING_PARAMETER: Final = "MISSING_PARAMETER"
BAD_EXPRESSION: Final = "BAD_EXPRESSION"
NOT_AN_ANCESTOR: Final = "NOT_AN_ANCESTOR"
OUT_OF_SCOPE: Final = "OUT_OF_SCOPE"
NO_ITEM: Final = "NO_ITEM"
SCOPES_MEET: Final = "SCOPES_MEET"
AGGREGATOR_OUTSIDE_SPLIT: Final = "AGGREGATOR_OUTSIDE_SPLIT"
TWO_AGGREGATORS: Final = "TWO_AGGREGATORS"
OUTPUT_IN_SPLIT: Final = "OUTPUT_IN_SPLIT"
SPLIT_TOO_DEEP: Final = "SPLIT_TOO_DEEP"
TWO_OUTPUTS: Final = "TWO_OUTPUTS"
JOIN_CONFLICT: Final = "JOIN_CONFLICT"
JOIN_NEVER_OPENS: Final = "JOIN_NEVER_OPENS"
NEVER_RUNS: Final = "NEVER_RUNS"
NO_EFFECT: Final = "NO_EFFECT"
PINNED: Final = "PINNED"
UNKNOWN_CHILD: Final = "UNKNOWN_CHILD"
BAD_SCHEMA: Final = "BAD_SCHEMA"
SCHEMA_TOO_EXPENSIVE: Final = "SCHEMA_TOO_EXPENSIVE"
INPUT_MISMATCH: Final = "INPUT_MISMATCH"

MEANINGS: Final[dict[str, str]] = {
    NOT_TEXT: "the document is not UTF-8 text",
    NOT_JSON: "the text is not JSON",
    NOT_YAML: "the text is not YAML",
    UNKNOWN_FORMAT: "the file extension is neither JSON nor YAML",
    UNREADABLE: "the file cannot be read",
    UNKNOWN_SOURCE: "no importer reads documents of this format",
    TOO_LARGE: "more bytes than the limit allows",
    TOO_DEEP: "nested deeper than the limit allows",
    TOO_MANY: "more nodes or edges than the limit allows",
    DUPLICATE_KEY: "an object has the same key twice",
    BAD_NUMBER: "a number that JSON does not have, or beyond 64 bits",
    BAD_TEXT: "text with half of a surrogate pair, which cannot be encoded",
    ALIAS_REFUSED: "YAML anchors and aliases are not supported",
    TAG_REFUSED: "YAML tags are not supported",
    WRONG_TYPE: "a field has a value of the wrong type",
    WRONG_VALUE: "a field has a value that is not allowed",
    UNKNOWN_FIELD: "a field that does not exist here",
    MISSING_FIELD: "a required field is absent",
    CONFLICT: "two fields with the same meaning have different values",
    BAD_ID: "an id with other characters than letters, digits, `_` and `-`",
    DUPLICATE_ID: "two nodes or two edges share an id",
    RESERVED_NAME: "a node's id is a reserved name in expressions",
    NO_NODES: "the document has no nodes",
    SECRET_IN_DOCUMENT: "a document contains a credential instead of a reference to it",
    UNKNOWN_NODE: "a node is named that does not exist",
    UNKNOWN_EDGE: "an edge is named that does not exist, or that belongs to another node",
    UNKNOWN_TYPE: "no such node type",
    UNKNOWN_OUTLET: "an edge leaves a node by an outlet that the node does not have",
    NO_OUTLET: "an edge of a node with outlets has no label that selects one",
    UNUSED_LABEL: "a label that looks like an outlet, on a node that has none",
    SELF_LOOP: "an edge leads from a node to itself",
    CYCLE: "the edges form a cycle",
    UNREACHABLE_NODE: "no path from an entry leads to the node",
    NO_EXIT: "every node has out-edges, so the workflow has no end",
    TRIGGER_NOT_ENTRY: "a trigger has in-edges",
    NO_ERROR_EDGE: "a `branch` policy without one error edge to follow",
    UNUSED_ERROR_EDGE: "an error edge that is never followed",
    BAD_PARAMETER: "a parameter is invalid for the node type",
    UNKNOWN_PARAMETER: "the node type has no such parameter",
    MISSING_PARAMETER: "a required parameter is absent",
    BAD_EXPRESSION: "an expression does not parse or names something unknown",
    NOT_AN_ANCESTOR: "an expression names a node that cannot have run before",
    OUT_OF_SCOPE: "an expression names a node inside a split that is not around it",
    NO_ITEM: "`$item` or `$index` outside of a split",
    SCOPES_MEET: "paths of different split scopes meet in one node",
    AGGREGATOR_OUTSIDE_SPLIT: "an aggregator outside of a split",
    TWO_AGGREGATORS: "a split with two aggregators",
    OUTPUT_IN_SPLIT: "the execution's output is set inside a split",
    SPLIT_TOO_DEEP: "splits are nested deeper than the limit allows",
    TWO_OUTPUTS: "two nodes that set the execution's output can both run",
    JOIN_CONFLICT: "a node's `join` contradicts how its type waits",
    JOIN_NEVER_OPENS: "a join waits for more arrivals than are possible",
    NEVER_RUNS: "the node can never run",
    NO_EFFECT: "a field that has no effect here",
    PINNED: "the output of a node is pinned, so that the node is not called; a deployed workflow has no pins",
    UNKNOWN_CHILD: "a `workflow` node names a workflow, or a version of one, that is not deployed",
    BAD_SCHEMA: "`inputs` is not a usable JSON Schema",
    SCHEMA_TOO_EXPENSIVE: "checking a schema, or a value against it, takes longer than the limit allows",
    INPUT_MISMATCH: "the start payload does not match `inputs`",
}
