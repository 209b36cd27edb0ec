"""Each case of the corpus: the action gives exactly this text, and only the value it names has changed."""

from __future__ import annotations

import pytest

from rune.documents.textedit import TextEditError, act
from rune.documents.textedit.document import decode
from tests.unit.textedit.cases import Case, load

CASES = load()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_action_on_text_gives_expected_text(case: Case) -> None:
    if case.error is not None:
        with pytest.raises(TextEditError) as refused:
            act(case.text, case.action, case.format)  # type: ignore[arg-type]
        assert refused.value.message == case.error
        return

    assert act(case.text, case.action, case.format) == case.result  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "case", [each for each in CASES if each.action["do"] == "set" and each.result], ids=lambda case: case.name
)
def test_set_action_changes_only_the_value_at_its_path(case: Case) -> None:
    assert case.result is not None
    before, after = (decode(text, case.format) for text in (case.text, case.result))  # type: ignore[arg-type]
    *path, key = case.action["path"]
    owner = before
    for step in path:
        owner = owner[step]
    owner[key] = case.action["value"]

    assert after == before


def test_unknown_action_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TextEditError, match="there is no action `paint`; known: add_edge, add_node"):
        act("id: a\n", {"do": "paint"})
