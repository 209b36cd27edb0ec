"""Large values that the server keeps while they are read in parts."""

from __future__ import annotations

import asyncio

from rune.runtime.queries.value_parts import MAX_INLINE_BYTES, JsonObject, JsonText, ValueCache

LARGE = b'"' + b"x" * MAX_INLINE_BYTES + b'"'


class Store:
    """A store that counts its reads."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads = 0

    async def load(self) -> bytes:
        self.reads += 1
        return self.data


def test_large_value_is_loaded_once_and_small_one_each_time() -> None:
    async def read() -> tuple[int, int]:
        cache, large, small = ValueCache(), Store(LARGE), Store(b"1")
        for _ in range(3):
            assert (await cache.get("large", large.load)).data == LARGE
            assert (await cache.get("small", small.load)).data == b"1"
        return large.reads, small.reads

    assert asyncio.run(read()) == (1, 3)


def test_value_that_was_read_longest_ago_gives_way() -> None:
    async def read() -> list[int]:
        cache = ValueCache(max_bytes=2 * len(LARGE))
        stores = [Store(LARGE) for _ in range(3)]
        for key in (0, 1, 0, 2, 0, 1):
            await cache.get(key, stores[key].load)
        return [each.reads for each in stores]

    assert asyncio.run(read()) == [1, 2, 1]


def test_value_is_dropped_when_its_time_is_over() -> None:
    async def read() -> int:
        cache, store = ValueCache(kept_s=0), Store(LARGE)
        await cache.get("key", store.load)
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(0, over.set)
        await over.wait()
        await cache.get("key", store.load)
        return store.reads

    assert asyncio.run(read()) == 2


def test_value_that_is_being_loaded_is_not_loaded_twice() -> None:
    async def read() -> int:
        cache, store = ValueCache(), Store(LARGE)
        gate = asyncio.Event()

        async def load() -> bytes:
            await gate.wait()
            return await store.load()

        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(cache.get("key", load))
            group.create_task(asyncio.sleep(0)).add_done_callback(lambda _: gate.set())
        return store.reads

    assert asyncio.run(read()) == 1


def test_value_under_several_keys_takes_its_bytes_once() -> None:
    async def read() -> tuple[int, int]:
        cache, first, second = ValueCache(max_bytes=2 * len(LARGE)), Store(LARGE), Store(LARGE)

        async def whole() -> JsonText:
            return JsonObject({"node": await cache.get("node", first.load)})

        await cache.get("output", whole)
        await cache.get("other", second.load)
        for _ in range(2):
            await cache.get("node", first.load)
            await cache.get("output", whole)
            await cache.get("other", second.load)
        return first.reads, second.reads

    assert asyncio.run(read()) == (1, 1)
