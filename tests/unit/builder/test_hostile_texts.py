"""Text of a document never becomes code: whatever stands in its fields, `to_python` writes literals only, and what it
writes makes the same workflow."""

from __future__ import annotations

import ast
import copy
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rune.build import Workflow, writer
from rune.build.code_check import ForeignCodeError, check_code
from rune.build.graph import Comment
from rune.build.operations import load_source
from rune.documents.textedit.updates import same
from rune.errors import InvalidDocumentError
from tests.support.whole import WHOLE

EXAMPLES = settings(max_examples=2_000 if WHOLE else 60)
ATTACK = '" + str(__import__("os").system("id>pwned")) + "{{ $trigger.a }}'

PIECES = st.sampled_from(
    [
        *"\"'\\{}[]()$#:;,.=+-*%@`~!?<>|&^/ Nxu0aé界😀",
        *"\t\r\n\0\x07\x0b\x0c\x1b\x1c\x7f\x85\xa0\u2028\u2029\u202e\u200d\ufeff",
        *(
            "{{",
            "}}",
            "{{ $trigger.a }}",
            "{{ $start.x[0] }}",
            '{{ $start["a b"] }}',
            "{{ 1 + 2 }}",
            "$start",
        ),
        *('"""', "'''", "\\N{DIGIT ONE}", "\\x41", "\\u0041", "\\", '" + x + "', "' + x + '", "{__import__}"),
        *(
            "# coding: utf-7",
            "coding=utf-16",
            "+ACIAKQ-",
            "\r\nimport os",
            "\nimport os\n",
            "%s",
            "${x}",
            "!r",
        ),
    ]
)
TEXTS = st.lists(PIECES, max_size=6).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=90
)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    TEXTS | NUMBERS | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
WORDS = TEXTS.filter(bool)
IDS = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True) | st.sampled_from(
    ["class", "flow", "print", "__import__", "exec", "node", "import", "match", "1", "-", "_"]
)
COMMON = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXTS,
        "retry": st.fixed_dictionaries({"max_attempts": st.integers(1, 9)}, optional={"on": st.lists(WORDS)}),
        "credentials": WORDS | st.fixed_dictionaries({"name": WORDS, "type": WORDS}),
        "pin": st.fixed_dictionaries({"output": JSON}, optional={"outlet": WORDS}),
        "queue": IDS,
        "output": JSON,
        "position": JSON,
        "metadata": JSON,
        "notes": JSON,
    },
)
CONSTRUCTED = st.one_of(
    st.fixed_dictionaries({"type": st.just("log"), "parameters": st.fixed_dictionaries({"message": JSON})}),
    st.fixed_dictionaries(
        {"type": st.just("http"), "parameters": st.fixed_dictionaries({"url": TEXTS, "headers": OBJECTS})}
    ),
    st.fixed_dictionaries(
        {"type": st.just("conditional"), "parameters": st.fixed_dictionaries({"expression": JSON})}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("schedule"),
            "parameters": st.fixed_dictionaries({"cron": TEXTS, "timezone": TEXTS, "payload": JSON}),
        }
    ),
    st.fixed_dictionaries({"type": st.just("edit"), "parameters": OBJECTS}),
    st.fixed_dictionaries({"type": WORDS, "parameters": OBJECTS}),
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A document whose every field holds any text that it may hold."""
    ids = draw(st.lists(IDS.filter(lambda id: id != "start"), min_size=1, max_size=3, unique=True))
    nodes: list[dict[str, Any]] = [{"id": "start", "type": "input"}]
    nodes += [{**draw(CONSTRUCTED), **draw(COMMON), "id": id} for id in ids]
    ends = st.sampled_from(["start", *ids, "missing"])
    edges = draw(
        st.lists(
            st.fixed_dictionaries(
                {"src": ends, "dst": ends}, optional={"label": TEXTS, "id": IDS, "is_error": st.booleans()}
            ),
            max_size=3,
            unique_by=lambda each: each.get("id", id(each)),
        )
    )
    top = draw(
        st.fixed_dictionaries(
            {}, optional={"name": TEXTS, "inputs": OBJECTS, "metadata": JSON, "notes": JSON}
        )
    )
    return {"id": draw(IDS), **top, "nodes": nodes, "edges": edges}


def check_code_of(flow: Workflow) -> str:
    """The code of a workflow, which holds no call but those of constructors and makes the same workflow."""
    code = flow.to_python()
    imported = {"Workflow", "node", "expr", "template", "Retry", "Settings", "Handler"}
    for each in ast.walk(ast.parse(code.encode())):  # bytes: as Python reads a file, with its encoding
        if isinstance(each, ast.ImportFrom):
            assert each.module == "rune.build"
            imported |= {alias.name for alias in each.names}
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            assert each.func.id in imported
        elif isinstance(each, ast.Call):
            assert isinstance(each.func, ast.Attribute)
            assert each.func.attr in {"edge", "named", "case"}
    assert same(load_source(code).definition, flow.definition)
    return code


@EXAMPLES
@given(documents())
def test_code_of_any_document_holds_literals_only_and_makes_the_same_workflow(
    document: dict[str, Any],
) -> None:
    flow = Workflow.load(document)
    try:
        flow.definition  # noqa: B018 - raises for a document that is refused
    except InvalidDocumentError:
        with pytest.raises(InvalidDocumentError):
            flow.to_python()
        return
    code = check_code_of(flow)
    assert load_source(code).to_python() == code


@EXAMPLES
@given(st.lists(TEXTS, max_size=3), TEXTS, TEXTS)
def test_comments_of_any_text_stay_comments(header: list[str], lead: str, trailing: str) -> None:
    flow = Workflow.load({"id": "a", "nodes": [{"id": "n", "type": "input"}, {"id": "m", "type": "noop"}]})
    flow["n"] >> flow["m"]
    comment = Comment()
    comment.lead, comment.trailing = [lead], trailing
    flow.comments.header = header
    flow.comments.nodes = {"n": comment}
    flow.comments.edges = {0: comment}

    check_code_of(flow)
    assert Workflow.load(flow.to_yaml()) == flow


@EXAMPLES
@given(documents(), st.sampled_from(["id", "type", "name", "parameters", "edge", "document"]), TEXTS)
def test_document_with_any_text_as_id_is_refused_or_makes_the_same_workflow(
    document: dict[str, Any], field: str, text: str
) -> None:
    changed = copy.deepcopy(document)
    if field == "edge":
        changed["edges"] = [{"src": "start", "dst": text, "id": text}]
    elif field == "document":
        changed["id"] = text
    else:
        changed["nodes"][-1][field] = text
    flow = Workflow.load(changed)
    try:
        code = flow.to_python()
    except InvalidDocumentError:
        return
    assert same(load_source(code).definition, flow.definition)


def test_text_of_the_attack_stays_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flow = Workflow.load(
        {"id": "a", "nodes": [{"id": "n", "type": "log", "parameters": {"message": ATTACK}}]}
    )

    built = load_source(flow.to_python())

    assert built["n"].parameters == {"message": ATTACK}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["escaped", "comment_lines"])
def test_to_python_returns_nothing_if_its_escaping_is_broken(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    broken: dict[str, Any] = {
        "escaped": lambda value, quote='"': value,
        "comment_lines": lambda comments: [f"# {each}" for each in comments],
    }
    monkeypatch.setattr(writer, name, broken[name])
    flow = Workflow.load(
        {"id": "a", "nodes": [{"id": "n", "type": "log", "parameters": {"message": ATTACK}}]}
    )
    flow.comments.header = ["\nimport os"]

    with pytest.raises((ForeignCodeError, AssertionError)):
        flow.to_python()


def test_encoding_in_a_comment_of_the_document_is_not_the_encoding_of_the_code() -> None:
    text = '# coding: utf-7\nid: a\nnodes:\n  - {id: n, type: log, parameters: {message: "+ACI-, print(1), +ACI-"}}\n'
    flow = Workflow.from_text(text, "yaml")

    code = check_code_of(flow)

    assert code.startswith("# coding : utf-7\n")


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import os", "import os"),
        ("from os import system", "from os import system"),
        ("from rune.build import Workflow as W", "Workflow"),
        ("from rune.build import operations", "operations"),
        ("from rune.build import Workflow\nflow = Workflow(open('x'))", "open"),
        ("from rune.build import Workflow\nflow = Workflow('a')\nflow.run()", "flow.run"),
        ("from rune.build import Workflow\nflow = Workflow('a')\nwith flow:\n    n = exec('x')", "exec"),
        ("from rune.build import Workflow, log\nflow = Workflow('a')\nlog = exec", "log"),
        ("from rune.build import Workflow, log\nflow = Workflow('a')\nwith flow:\n    log = log('x')", "log"),
        ("from rune.build import Workflow\nflow = Workflow(**{'id': 'a'})", "Workflow"),
        ("from rune.build import Workflow\nflow = Workflow(*'a')", "a"),
        ("from rune.build import Workflow\nflow = Workflow(9 ** (9 ** 9))", "9 ** 9"),
        ("from rune.build import Workflow\nflow = Workflow('a' * 9)", "'a' * 9"),
        ("from rune.build import Workflow\nflow = Workflow(lambda: 1)", "lambda"),
        ("from rune.build import Workflow\nflow = Workflow('a', metadata=[x for x in 'a'])", "for x in"),
        ("from rune.build import Workflow\nflow = Workflow('a')\nflow.trigger.__class__", "__class__"),
        ("from rune.build import Workflow\nflow = Workflow('a')\nflow.data['x'] >> flow", "flow.data"),
        ("from rune.build import Workflow\nflow = Workflow('a')\nwith open('x'):\n    pass", "with open"),
        ("from rune.build import Workflow\nflow = Workflow('a')\nflow.edge(open('x'), 'b')", "open"),
        ("from rune.build import Workflow\nwith Workflow(open('x')) as flow:\n    pass", "open"),
        ("from rune.build import Workflow\nwith Workflow('a') as open:\n    n = open('x')", "open"),
        ("from rune.build import Workflow\nwith Workflow('a') as Workflow:\n    pass", "variable `Workflow`"),
        ("from rune.build import Workflow\nwith Workflow('a') as flow, open('x') as y:\n    pass", "open"),
        ("from rune.build import Workflow, log\nwith log('a') as flow:\n    pass", "log('a')"),
        (
            "from rune.build import Workflow, log\nflow = Workflow('a')\nwith flow:\n    n = log(f'{flow.trigger!r}')",
            "!r",
        ),
        (
            "from rune.build import Workflow, log\nflow = Workflow('a')\nwith flow:\n    n = log(f'{open}')",
            "open",
        ),
        ("from rune.build import Workflow\ndef f(): pass", "def f"),
        ("# coding: utf-7\nfrom rune.build import Workflow", "utf-7"),
        ("x = (", "not Python"),
        ("x = '\0'", "not Python"),
        ("x = " + "9" * 5000, "not Python"),
    ],
)
def test_code_that_does_more_than_declare_a_workflow_is_refused(code: str, what: str) -> None:
    with pytest.raises(ForeignCodeError) as refused:
        check_code(code)

    assert what in str(refused.value)


def test_hand_written_operators_and_functions_declare_a_workflow() -> None:
    code = (
        '"""Doubles."""\nfrom __future__ import annotations\n'
        "from rune.build import Workflow, conditional, edit, fn, input, log, split\n"
        'flow = Workflow("a")\nwith flow:\n    start = input("start")\n'
        '    big = conditional("big", expression=(start.out.a > 3) & ~(2 * start.out.b == -1))\n'
        '    each = split("each", input_array=fn.range(start.out.n))\n'
        '    with each as item:\n        log("line", message=f"{item.x} of {fn.len(start.out.all)}")\n'
        '        log("two", message=start.out.name | fn.upper)\n'
        'start >> big\nbig["true"] >> [each]\n'
    )
    check_code(code)

    with pytest.raises(ForeignCodeError):
        check_code(code, operators=False)
    assert len(load_source(code)) == 5


@pytest.mark.parametrize("variable", ["flow", "orders"])
@pytest.mark.parametrize("opening", ["{0} = Workflow('a')\nwith {0}:", "with Workflow('a') as {0}:"])
def test_workflow_is_declared_in_either_form_under_any_name(opening: str, variable: str) -> None:
    code = (
        "from rune.build import Workflow, input, log\n"
        + opening.format(variable)
        + f"\n    start = input('start')\n    log('line', message=f'{{{variable}.trigger.name}}')\n"
        + f"{variable}.edge('start', 'line')\n"
    )
    check_code(code)

    assert len(load_source(code)) == 2


@pytest.mark.parametrize("digits", [19, 30, 5_000])
def test_long_numbers_in_references_and_labels_stay_text(digits: int) -> None:
    number = "9" * digits
    flow = Workflow.load(
        {
            "id": "a",
            "nodes": [
                {"id": "s", "type": "switch"},
                {"id": "n", "type": "log", "parameters": {"message": f"$s[{number}]"}},
            ],
            "edges": [{"src": "s", "dst": "n", "label": f"case_{number}"}],
        }
    )

    check_code_of(flow)


@pytest.mark.parametrize(
    ("text", "suffix"),
    [
        (
            '{"id":"a","nodes":[{"id":"n","type":"log","metadata":[123456789012345678901234567890,1e999]}]}',
            "json",
        ),
        ("id: a\nnodes: [{id: n, type: log, metadata: [123456789012345678901234567890, .inf]}]\n", "yaml"),
    ],
)
def test_number_above_64_bits_is_a_problem_in_every_door_and_keeps_its_digits(text: str, suffix: str) -> None:
    flow = Workflow.from_text(text, suffix)

    for change in (False, True):
        if change:
            flow["n"].data["name"] = "N"
        paths = [each.path for each in flow.check() if each.code == "BAD_NUMBER"]
        assert paths == ["nodes[0].metadata[0]", "nodes[0].metadata[1]"]
        with pytest.raises(InvalidDocumentError, match="not a number that can be stored"):
            flow.to_python()
    assert "123456789012345678901234567890" in flow.to_json()
    assert "123456789012345678901234567890" in flow.to_yaml()


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, math.inf, math.nan, [10**5_000], "\ud800", {1, 2}])
def test_value_that_no_document_holds_is_a_problem_of_a_built_workflow(value: Any) -> None:
    flow = Workflow.load({"id": "a", "nodes": [{"id": "n", "type": "input"}]})
    flow["n"].data["metadata"] = value

    assert [each.severity for each in flow.check()] == ["error"]
    with pytest.raises(InvalidDocumentError):
        flow.to_python()


def test_deepest_document_has_code() -> None:
    value: Any = 1
    for _ in range(95):
        value = [value]
    flow = Workflow.load({"id": "a", "nodes": [{"id": "n", "type": "input", "metadata": value}]})

    check_code_of(flow)


def test_two_nodes_with_one_id_are_named() -> None:
    flow = Workflow.load({"id": "a", "nodes": [{"id": "n", "type": "input"}, {"id": "n", "type": "noop"}]})

    with pytest.raises(InvalidDocumentError, match=r"nodes\[1\].id: the id `n` is used twice"):
        flow.to_python()
