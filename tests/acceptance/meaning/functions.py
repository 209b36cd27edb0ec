"""What the documentation promises of each function of expressions, and cases beyond the examples that it shows."""

from __future__ import annotations

from typing import Any

Cases = list[tuple[str, Any]]

FUNCTIONS: dict[str, tuple[str, Cases]] = {
    "upper": ("the text in upper case", [('upper("äb1")', "ÄB1"), ('upper("")', "")]),
    "lower": ("the text in lower case", [('lower("ÀB1")', "àb1")]),
    "trim": ("no white space at the ends, all of it within", [('trim("\\t a  b \\n")', "a  b")]),
    "split": (
        "the parts between separators; without one the words",
        [('split("a,,b", ",")', ["a", "", "b"]), ('split(" a  b ")', ["a", "b"])],
    ),
    "join": ("the elements as text, joined", [('join([1, null, "x"], "/")', "1//x"), ('join([], "-")', "")]),
    "replace": (
        "every `old` is replaced",
        [('replace("aaa", "a", "b")', "bbb"), ('replace("abc", "x", "y")', "abc")],
    ),
    "starts_with": (
        "whether the text begins with the prefix",
        [('starts_with("abc", "bc")', False), ('starts_with("abc", "")', True)],
    ),
    "ends_with": ("whether the text ends with the suffix", [('ends_with("abc", "ab")', False)]),
    "matches": (
        "anywhere in the text",
        [('matches("xx-42-yy", "[0-9]+")', True), ('matches("xx", "^[0-9]+$")', False)],
    ),
    "find_all": (
        "what the groups matched, where there are groups",
        [('find_all("k=1 j=2", "(\\\\w)=(\\\\d)")', [["k", "1"], ["j", "2"]])],
    ),
    "len": (
        "characters, elements or keys",
        [('len("äöü")', 3), ('len({"a": 1, "b": 2})', 2), ("len([])", 0)],
    ),
    "sorted": (
        "in order, by a key, reversed",
        [
            ("sorted([3, 1, 2])", [1, 2, 3]),
            (
                'sorted([{"n": 1, "m": "a"}, {"n": 2, "m": "b"}], key="n", reverse=true)',
                [{"n": 2, "m": "b"}, {"n": 1, "m": "a"}],
            ),
        ],
    ),
    "reversed": ("the elements in reverse order", [('reversed(["a", 1, null])', [None, 1, "a"])]),
    "unique": (
        "each distinct element once, the first of them",
        [('unique(["b", "a", "b", "a"])', ["b", "a"])],
    ),
    "flatten": ("one level of inner lists", [("flatten([[1, [2]], [3]])", [1, [2], 3])]),
    "range": (
        "whole numbers, `stop` excluded",
        [("range(2, 9, 3)", [2, 5, 8]), ("range(0)", []), ("range(3, 0, -1)", [3, 2, 1])],
    ),
    "first": (
        "the first element; missing if empty",
        [('first(["x", "y"])', "x"), ('first([]) ?? "none"', "none")],
    ),
    "last": (
        "the last element; missing if empty",
        [('last(["x", "y"])', "y"), ('last([]) ?? "none"', "none")],
    ),
    "zip": (
        "lists of the elements at the same position",
        [("zip([1, 2], [3, 4], [5, 6])", [[1, 3, 5], [2, 4, 6]])],
    ),
    "keys": ("the keys in their order", [('keys({"b": 1, "a": 2})', ["b", "a"])]),
    "values": ("the values in their order", [('values({"b": 1, "a": 2})', [1, 2])]),
    "items": ("lists of key and value", [('items({"b": 1, "a": null})', [["b", 1], ["a", None]])]),
    "merge": (
        "later objects take precedence",
        [('merge({"a": 1}, {"a": 2, "b": 3}, {"b": 4})', {"a": 2, "b": 4})],
    ),
    "get": (
        "the value at a path; the default if there is none",
        [('get({"a": [{"b": 5}]}, "a.0.b")', 5), ('get({"a": 1}, "x")', None)],
    ),
    "exists": (
        "whether the value exists, even if null",
        [("exists($trigger.nothing)", False), ("exists($trigger.none)", True)],
    ),
    "default": (
        "the other value if missing or null",
        [("default($trigger.nothing, 1)", 1), ("default(0, 1)", 0), ('default("", 1)', "")],
    ),
    "int": ("without its decimals", [("int(2.9)", 2), ("int(-2.9)", -2), ('int("-7")', -7)]),
    "float": ("a number with decimals", [("float(2)", 2.0), ('float("-0.25")', -0.25)]),
    "bool": (
        "whether the value counts as true",
        [("bool([])", False), ("bool(0)", False), ('bool("no")', True)],
    ),
    "round": ("a half is rounded to even", [("round(2.5)", 2), ("round(3.5)", 4), ("round(1.26, 1)", 1.3)]),
    "abs": ("the absolute value", [("abs(-2.5)", 2.5), ("abs(2)", 2)]),
    "min": ("the least of numbers or texts", [("min(3, -1, 2)", -1), ('min(["b", "a"])', "a")]),
    "max": ("the greatest of numbers or texts", [("max(3, -1, 2)", 3), ('max(["b", "a"])', "b")]),
    "sum": ("the sum of all numbers", [("sum([])", 0), ("sum([1.5, -1])", 0.5)]),
    "avg": ("the mean; missing if empty", [("avg([1, 2])", 1.5), ('avg([]) ?? "none"', "none")]),
    "str": (
        "the value as it appears inside text",
        [("str(1.5)", "1.5"), ("str(null)", ""), ("str(true)", "true"), ('str("a")', "a")],
    ),
    "json": ("compact JSON", [('json([1, null, "ä"])', '[1,null,"ä"]'), ('json("a")', '"a"')]),
    "parse_json": (
        "the value that a JSON text holds",
        [
            ('parse_json("{\\"a\\": [true]}")', {"a": [True]}),
            ("parse_json(json($trigger.big))", 9007199254740993),
        ],
    ),
    "type": (
        "one of the six names",
        [
            (
                '[type(x) for x in [null, true, 1, 1.5, "", [], {}]]',
                ["null", "boolean", "number", "number", "string", "array", "object"],
            )
        ],
    ),
    "parse_date": (
        "a date from text, in UTC",
        [('parse_date("2024-02-29T12:00:00+02:00")', "2024-02-29T10:00:00Z")],
    ),
    "format_date": (
        "in UTC and in English",
        [
            (
                'format_date("2024-12-31T23:30:00-02:00", "%A %d %B %Y %H:%M")',
                "Wednesday 01 January 2025 01:30",
            ),
            ('format_date(0, "%Y")', "1970"),
        ],
    ),
    "add_time": (
        "moved by a number of units",
        [
            ('add_time("2024-01-31T00:00:00Z", 1, "months")', "2024-02-29T00:00:00Z"),
            ('add_time("2024-01-01T00:00:00Z", -1, "seconds")', "2023-12-31T23:59:59Z"),
        ],
    ),
    "base64": ("the UTF-8 bytes in base64", [('base64("ä")', "w6Q=")]),
    "from_base64": ("the text of these bytes", [('from_base64("w6Q=")', "ä")]),
    "sha256": (
        "the SHA-256 hash, in hexadecimal",
        [('sha256("abc")', "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")],
    ),
    "hmac_sha256": (
        "the HMAC-SHA-256, in hexadecimal",
        [
            (
                'hmac_sha256("what do ya want for nothing?", "Jefe")',
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            )
        ],
    ),
    "url_encode": (
        "safe in any part of a URL",
        [('url_encode("/?#ä")', "%2F%3F%23%C3%A4"), ("url_encode(1)", "1")],
    ),
}
"""`now` and `uuid` are not here: their values differ between executions."""

PAYLOAD = {"none": None, "big": 9007199254740993}
