"""fail."""

from __future__ import annotations

from tests.unit.nodes.running import error, run


def test_it_fails_with_its_code_and_message() -> None:
    parameters = {"code": "BOOM", "message": "no {{ $trigger.what }}"}
    found = error(run("fail", parameters, trigger={"what": "luck"}))
    assert (found.code, found.message, found.engine) == ("BOOM", "no luck", False)


def test_without_parameters_it_fails_too() -> None:
    assert error(run("fail")).code == "FAILED"


def test_a_message_that_is_no_text_is_told_as_json() -> None:
    assert error(run("fail", {"message": "$trigger"}, trigger={"a": [1]})).message == '{"a":[1]}'


def test_a_computed_code_is_held_to_the_same_form() -> None:
    found = error(run("fail", {"code": "$trigger"}, trigger="not a code"))
    assert found.code == "BAD_PARAMETER"
    assert "parameters.code" in found.message
