"""Values in messages to other programs: whole, or a reference to what is too large."""

from __future__ import annotations

import msgspec

from rune.codec.facts import encode_value
from rune.codec.messages import (
    NOTHING,
)
from rune.core.execution.fact import NodeResult
from rune.core.execution.scope import failure_value
from rune.core.execution.stored_value import Inline, Large, Same
from rune.core.execution.token import token_name
from rune.runtime.execution_data import ExecutionData
from rune.runtime.stored_values import input_size
from rune.runtime.value_refs import ValueNotLoaded

MAX_PUBLISHED_BYTES = 32 * 1024
"""A larger output is replaced by a reference."""


async def output_of(data: ExecutionData, result: NodeResult, most: int = MAX_PUBLISHED_BYTES) -> msgspec.Raw:
    """The output of a node run, loaded if it is not in memory; a reference to the run if it has more than `most` bytes,
    for which only the rows are loaded that its length follows from."""
    if result.status == "failed":
        return msgspec.Raw(encode_value(failure_value(result)))
    name, stored = run_name(data, result), result.value
    if type(stored) is Inline:
        return value_or_reference(name, stored.data, most)
    if type(stored) is Large and stored.size > most:
        return reference(name, stored.size)
    if type(stored) is not Large and type(stored) is not Same:
        return NOTHING
    reader = data.reader()

    def read() -> msgspec.Raw:
        if type(stored) is Same:
            _, size = reader.written(stored.ref)
            if size > most:
                return reference(name, size)
        return msgspec.Raw(reader.encoded(result))

    try:
        while True:
            try:
                return read()
            except ValueNotLoaded as missing:
                await data.load(missing.what, reader)
    finally:
        reader.close()


def run_name(data: ExecutionData, result: NodeResult) -> str:
    """The name of a node run in a reference. The value that it names is the output of that run, never the payload of
    the node it came from, which may have another output."""
    return f"{data.accepted.id}/{token_name(result.node, result.path, data.plan.ids)}"


async def start_of(data: ExecutionData, most: int = MAX_PUBLISHED_BYTES) -> msgspec.Raw:
    """The start payload, loaded if it is a blob; a reference if it is larger than `most` bytes."""
    name, size = f"{data.accepted.id}/start", input_size(data.accepted)
    return reference(name, size) if size > most else msgspec.Raw(await data.encoded_start())


def value_or_reference(name: str, value: bytes, most: int) -> msgspec.Raw:
    """A value, or a reference to it if it is large."""
    return msgspec.Raw(value) if len(value) <= most else reference(name, len(value))


def reference(name: str, size: int) -> msgspec.Raw:
    """A reference to a value that is too large for a message."""
    return msgspec.Raw(encode_value({"$ref": name, "bytes": size}))


def is_reference(value: bytes, name: str) -> bool:
    """Return whether a value was replaced by a reference of this name."""
    return value.startswith(bytes(reference(name, 0))[:-2])
