"""The functions of the expression language: `fn.upper(x)` or `x | fn.upper`."""

from __future__ import annotations

from typing import Any

from rune.build.expressions import CHOICE, COALESCE, COMPARISON, OR, Expr, Function, wrapped

str = Function("str")
int = Function("int")
float = Function("float")
bool = Function("bool")
type = Function("type")
json = Function("json")
parse_json = Function("parse_json")
upper = Function("upper")
lower = Function("lower")
trim = Function("trim")
split = Function("split")
join = Function("join")
replace = Function("replace")
starts_with = Function("starts_with")
ends_with = Function("ends_with")
matches = Function("matches")
find_all = Function("find_all")
min = Function("min")
max = Function("max")
sum = Function("sum")
avg = Function("avg")
round = Function("round")
abs = Function("abs")
len = Function("len")
sorted = Function("sorted")
reversed = Function("reversed")
unique = Function("unique")
flatten = Function("flatten")
range = Function("range")
first = Function("first")
last = Function("last")
zip = Function("zip")
keys = Function("keys")
values = Function("values")
items = Function("items")
merge = Function("merge")
get = Function("get")
now = Function("now")
parse_date = Function("parse_date")
format_date = Function("format_date")
add_time = Function("add_time")
base64 = Function("base64")
from_base64 = Function("from_base64")
sha256 = Function("sha256")
hmac_sha256 = Function("hmac_sha256")
url_encode = Function("url_encode")
uuid = Function("uuid")
exists = Function("exists")
default = Function("default")


def choose(condition: Any, then: Any, otherwise: Any) -> Expr:
    """Return `then if condition else otherwise`."""
    return Expr(f"{wrapped(then, OR)} if {wrapped(condition, OR)} else {wrapped(otherwise, CHOICE)}", CHOICE)


def coalesce(value: Any, otherwise: Any) -> Expr:
    """Return `value ?? otherwise`: the second one if the first is missing or null."""
    return Expr(f"{wrapped(value, COALESCE)} ?? {wrapped(otherwise, COALESCE + 1)}", COALESCE)


def contains(container: Any, item: Any) -> Expr:
    """Return `item in container`: text in text, an element in a list, or a key in an object."""
    return Expr(f"{wrapped(item, COALESCE)} in {wrapped(container, COALESCE)}", COMPARISON)
