"""G: expressions."""

from __future__ import annotations

from tests.hazards.reds.patch import Red, red

_G = "test_hazards_g.py::test_h_"
_TRUTH = 'return truthy(call.evaluate("expression"))'
_FILLED = r"""import re

        def filled(found: re.Match[str]) -> str:
            return QUOTE + str(call.scope["$trigger"][found[1]]) + QUOTE

        return bool(eval(re.sub(r"\$trigger\.(\w+)", filled, condition)))"""


def _condition(new: str) -> tuple[str, str, str]:
    return ("nodes/control/conditional.py", _TRUTH, new)


QUOTED = _condition(_FILLED.replace("QUOTE", '"\'"'))
BARE = _condition(_FILLED.replace("QUOTE", '""'))

TABLE: dict[str, Red] = {
    "g1": red(
        _G + "g1_one_bad_reference_fails_the_node_and_nothing_is_sent",
        (
            "core/parameters.py",
            "raise located(name, error) from error",
            'return getattr(compiled, "_value", "")',
        ),
    ),
    "g2": red(
        _G + "g2_numbers_are_written_out",
        ("core/expr/values.py", "return int.__repr__(value)", 'return f"{value:g}"'),
    ),
    "g3": red(
        _G + "g3_a_full_stop_behind_a_reference_stays",
        (
            "core/expr/names.py",
            "        if key is None:\n            break\n",
            '        if key is None:\n            at += text.startswith(".", at)\n            break\n',
        ),
    ),
    "g4": red(
        _G + "g4_a_dash_between_references_is_a_dash",
        ("core/expr/names.py", r'_MEMBER = re.compile(r"\.(\w+)")', r'_MEMBER = re.compile(r"\.([\w-]+)")'),
    ),
    "g5": red(_G + "g5_data_is_never_read_as_an_expression", QUOTED),
    "g6": red(_G + "g6_null_and_booleans_are_values_like_others", BARE),
    "g7": red(
        _G + "g7_what_is_nothing_counts_as_false",
        ("core/expr/values.py", "return bool(value)", "return value is not None and value is not False"),
    ),
    "g8": red(
        _G + "g8_an_operator_inside_quotes_is_text",
        _condition('return str(call.scope["$trigger"]["v"]) == condition.split("==")[1].strip().strip("\'")'),
    ),
    "g9": red(_G + "g9_any_text_may_be_data", QUOTED),
    "g10": red(
        _G + "g10_resolved_data_is_not_resolved_again",
        (
            "core/expr/template.py",
            "return self._value if self._resolver is None else self._resolver(scope)",
            "found = self._value if self._resolver is None else self._resolver(scope)\n"
            '        if type(found) is not str or "$" not in found:\n            return found\n'
            "        return compile_template(found, Names(frozenset(), {})).resolve(scope)",
        ),
    ),
    "g11": red(
        _G + "g11_text_is_compared_as_text",
        (
            "core/expr/values.py",
            "    kind = type(a)\n    if kind is list and",
            "    try:\n        return float(a) == float(b)\n    except (TypeError, ValueError):\n"
            "        kind = type(a)\n    if kind is list and",
        ),
    ),
    "g12": red(
        _G + "g12_values_of_every_type_arrive",
        (
            "core/expr/template.py",
            "made[key] = resolver(scope)",
            "made[key] = found if type(found := resolver(scope)) is str else made[key]",
        ),
    ),
    "g13": red(
        _G + "g13_contains_looks_for_elements",
        (
            "core/expr/operators.py",
            "return any(json_equal(each, wanted, run) for each in holder)",
            "return str(wanted) in str(holder)",
        ),
    ),
    "g14": red(
        _G + "g14_there_is_no_way_out_of_an_expression",
        ("core/expr/names.py", 'if word.startswith("__"):', "if False:"),
        (
            "core/expr/values.py",
            'raise MissingError(f"{describe(place, key)} is missing; {place} has: {listed(value)}")',
            "return getattr(value, key)",
        ),
    ),
    "g15": red(
        _G + "g15_bombs_are_defused[replace($trigger.v, 'a', $trigger.v)]",
        ("core/expr/budget.py", "if self.left < 0:", "if False:"),
    ),
}
