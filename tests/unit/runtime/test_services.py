"""The services of other processes have the names of `Services`, which lists them all."""

from __future__ import annotations

from typing import Any, cast

from rune.cli.remote.services import RemoteServices
from rune.client import AsyncClient
from rune.codec.rpc import RpcMethods
from rune.runtime.components import RPC_METHODS, OwnerServices, Services


async def _call(method: Any, arguments: Any) -> None:
    pass


def test_owner_offers_every_service_under_its_name() -> None:
    owner = OwnerServices(RpcMethods(Services, RPC_METHODS), _call)
    assert set(vars(owner)) == set(Services.__struct_fields__)


def test_server_offers_its_services_under_the_same_names() -> None:
    remote = RemoteServices(cast("AsyncClient", None))
    assert set(vars(remote)) < set(Services.__struct_fields__)
