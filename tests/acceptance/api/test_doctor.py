"""`GET /doctor`: the checks of `rune doctor`, on both backends."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from msgspec.structs import replace

from tests.support.api_clients import BOOTSTRAP, RoleClients
from tests.support.api_server import RunningServer, run
from tests.support.backends import stores
from tests.support.in_process_cli import InProcessCli


def test_doctor_reports_what_the_command_reports(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> set[str]:
        report = await server.client.doctor()
        found = {each.check: each for each in report.checks}
        assert report.status == "ok"
        assert (found["durability"].verdict, found["file"].verdict) == ("warn", "ok")
        assert "RUNE_DURABILITY" in found["durability"].advice
        assert found["owner"].found.startswith("process ")
        return set(found)

    checked = run(tmp_path, work)

    shown = InProcessCli(tmp_path).json("doctor")
    assert checked == {each["check"] for each in shown["checks"]}


def test_doctor_checks_the_stores_of_a_cluster(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        found = {each.check: each for each in (await server.client.doctor()).checks}
        assert (found["postgresql"].verdict, found["redis rights"].verdict) == ("ok", "ok")
        assert found["workers"].found == "1, of default"

    run(tmp_path, work, on=replace(stores(tmp_path), nodes=(), grace=1.0))


def test_doctor_needs_the_right_admin(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        async with AsyncExitStack() as stack:
            clients = await RoleClients(server, stack).connect_all()
            statuses = {
                role: (await each.get("/api/v1/doctor")).status_code for role, each in clients.clients.items()
            }
        assert statuses.pop("admin") == 200
        assert set(statuses.values()) == {401, 403}

    run(tmp_path, work, key=BOOTSTRAP)
