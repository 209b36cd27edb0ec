"""Random JSON documents for the reader of the web interface, and how Python reads what it wrote for them.

`python -m tests.support.json_documents write COUNT SEED` prints one object per line with a JSON document as `text`;
`compare` reads these objects with the document as `short` and `indented` too, and prints those that differ.
"""

from __future__ import annotations

import json
import math
import random
import sys
from typing import Any

NUMBERS = [
    "0",
    "-0",
    "-0.0",
    "0.0",
    "1.0",
    "1.10",
    "1E3",
    "1e+3",
    "1e400",
    "-1e400",
    "1e-400",
    "5e-324",
    "1e22",
    "1e21",
    "1e-07",
    "9007199254740991",
    "9007199254740992",
    "9007199254740993",
    "-9007199254740993",
    "9223372036854775807",
    "18446744073709551615",
    "123456789012345678901234567890",
    "0.1000000000000000055511151231257827",
]
KEYS = [
    "a",
    "b c",
    "__proto__",
    "constructor",
    "toString",
    "0",
    "12",
    "",
    "é",
    "😀",
    'q"',
    "\\",
    "-0",
    "1.0,",
    "[1.0]",
]
SPACES = ["", "", "", " ", "\n", "\t", "\r\n  "]


class Number(str):
    """The digits of a number."""


def digits(source: random.Random) -> str:
    kind = source.randrange(5)
    if kind == 0:
        return source.choice(NUMBERS)
    if kind == 1:
        return str(source.randrange(-(10 ** source.randrange(1, 40)), 10 ** source.randrange(1, 40)))
    if kind == 2:
        real = source.uniform(-1, 1) * 10.0 ** source.randrange(-300, 300)
        return json.dumps(real)
    if kind == 3:
        return json.dumps(float(source.randrange(-(10**17), 10**17)))

    def some() -> str:
        return str(source.randrange(10 ** source.randrange(1, 25)))

    fraction = f".{some().zfill(source.randrange(1, 25))}" if source.random() < 0.6 else ""
    exponent = (
        f"{source.choice(['e', 'E', 'e+', 'E-'])}{source.randrange(500)}" if source.random() < 0.4 else ""
    )
    return f"{source.choice(['', '-'])}{some()}{fraction}{exponent}"


def space(source: random.Random) -> str:
    return source.choice(SPACES)


def text(source: random.Random, depth: int = 0) -> str:
    kind = source.randrange(9 if depth < 5 else 6)
    if kind < 4:
        return digits(source)
    if kind == 4:
        return source.choice(["true", "false", "null"])
    if kind == 5:
        shown = source.choice([*KEYS, digits(source), f":{digits(source)},", f"[{digits(source)}]"])
        return json.dumps(shown, ensure_ascii=source.random() < 0.5)
    count = source.randrange(5)
    members = [
        f"{space(source)}{name}{space(source)}{text(source, depth + 1)}{space(source)}"
        for name in (
            [""] * count
            if kind == 6
            else [f"{json.dumps(key)}{space(source)}:" for key in source.sample(KEYS, count)]
        )
    ]
    inner = ",".join(members) or space(source)
    return f"[{inner}]" if kind == 6 else f"{{{inner}}}"


def exact(document: str) -> Any:
    """The document with its numbers as digits."""
    return json.loads(document, parse_int=Number, parse_float=Number)


def plain(document: str) -> Any:
    """The document as a program reads it, with the type of each number and the sign of zero."""

    def real(digits: str) -> tuple[float, float]:
        return float(digits), math.copysign(1, float(digits))

    return json.loads(document, parse_int=lambda digits: ("int", int(digits)), parse_float=real)


def main() -> int:
    if sys.argv[1] == "write":
        source = random.Random(int(sys.argv[3]))
        for _ in range(int(sys.argv[2])):
            sys.stdout.write(json.dumps({"text": text(source)}) + "\n")
        return 0
    wrong = 0
    for line in sys.stdin:
        case = json.loads(line)
        for form in ("short", "indented"):
            if exact(case["text"]) != exact(case[form]) or plain(case["text"]) != plain(case[form]):
                wrong += 1
                sys.stdout.write(f"{case['text']!r} was written as {case[form]!r}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
