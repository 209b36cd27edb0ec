"""The `fail` node."""

from __future__ import annotations

from tests.unit.nodes.runner import error, run


def test_fails_with_code_and_message() -> None:
    parameters = {"code": "BOOM", "message": "no {{ $trigger.what }}"}
    found = error(run("fail", parameters, trigger={"what": "luck"}))
    assert (found.code, found.message, found.engine) == ("BOOM", "no luck", False)


def test_default_code_is_failed() -> None:
    assert error(run("fail")).code == "FAILED"


def test_non_text_message_is_encoded_as_json() -> None:
    assert error(run("fail", {"message": "$trigger"}, trigger={"a": [1]})).message == '{"a":[1]}'


def test_computed_code_is_validated() -> None:
    found = error(run("fail", {"code": "$trigger"}, trigger="not a code"))
    assert found.code == "BAD_PARAMETER"
    assert "parameters.code" in found.message
