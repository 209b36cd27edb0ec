"""H, and credentials wherever they belong: nodes."""

from __future__ import annotations

import copy
import sys
from functools import partial
from ipaddress import ip_address
from typing import Any

import msgspec

from tests.faults.change import edit, replace, skip
from tests.faults.fault import NO_ENGINE_RETRY, Fault, fault

SHORT_COMMANDS = replace("rune.nodes.io.smtp:deliver", lambda deliver: partial(deliver, seconds=1.0))
"""A mail server that does not answer is left after a second."""


def _drop_all_but_text(with_query: Any) -> Any:
    def changed(where: Any, query: dict[str, Any]) -> Any:
        listed = {name: value if isinstance(value, list) else [value] for name, value in query.items()}
        texts = {name: [each for each in values if type(each) is str] for name, values in listed.items()}
        return with_query(where, texts)

    return changed


def _open_client_again(http: Any) -> Any:
    def changed(self: Any) -> Any:
        self._client = None
        return http(self)

    return changed


def _check_first_address(addresses: Any) -> Any:
    """Check the first address of a name, and connect to the others."""

    async def changed(self: Any, host: str, port: int) -> Any:
        every = await self._resolve(host, port)

        async def resolve_first(_host: str, _port: int) -> Any:
            return every[:1]

        one = copy.copy(self)
        one._resolve = resolve_first
        await addresses(one, host, port)
        return [ip_address(each) for each in every[1:]]

    return changed


def _take_number_for_now(date: Any) -> Any:
    def changed(parameters: Any, now: int, meter: Any) -> Any:
        if not isinstance(parameters.date, str):
            parameters = msgspec.structs.replace(parameters, date=msgspec.UNSET)
        return date(parameters, now, meter)

    return changed


def _append_message_to_text(run: Any) -> Any:
    def changed(call: Any) -> Any:
        _ = "" + call.parameters.message
        return run(call)

    return changed


def _keep_credential(resolved: Any) -> Any:
    kept: dict[Any, Any] = {}

    async def changed(reference: Any, secret: Any) -> Any:
        name = reference.get("name")
        if name not in kept:
            kept[name] = await resolved(reference, secret)
        return kept[name]

    return changed


def _ignore_host(credential: Any) -> Any:
    async def changed(self: Any, reference: Any, secret: Any, types: Any, host: Any) -> Any:
        return await credential(self, reference, secret, types, None)

    return changed


def _ignore_unknown_fields(credentials: Any) -> Any:
    def changed(value: Any, path: str, problems: Any) -> Any:
        if isinstance(value, dict):
            value = {key: each for key, each in value.items() if key in ("id", "name", "type")}
        return credentials(value, path, problems)

    return changed


TABLE: dict[str, Fault] = {
    "h1": fault(
        "test_http.py::test_h_h1_query_and_header_values_of_any_type_are_sent",
        replace("rune.nodes.io.http_client.request:_with_query", _drop_all_but_text),
    ),
    "h2": fault(
        "test_credentials.py::test_h_h2_stored_credential_is_sent",
        replace(
            "rune.nodes.io.http_client.exchange:basic",
            lambda basic: lambda username, password: basic("", password),
        ),
    ),
    "h3-size": fault(
        "test_http.py::test_h_h3_large_response_is_rejected",
        replace(
            "rune.nodes.io.http_client.response:read_decoded",
            lambda read_decoded: (
                lambda pieces, encoding, max_bytes, label: read_decoded(pieces, encoding, sys.maxsize, label)
            ),
        ),
    ),
    "h3-pool": fault(
        "test_http.py::test_h_h3_calls_share_connection_pool",
        replace("rune.nodes.base:Resources.http", _open_client_again),
    ),
    "h3-private": fault(
        "test_http.py::test_h_h3_private_address_is_blocked[http://[::1]/]",
        skip("rune.nodes.io.http_client.ssrf:AddressGuard.permits", result=True),
    ),
    "h3-redirect": fault(
        "test_http.py::test_h_h3_redirect_to_private_address_is_blocked",
        skip("rune.nodes.io.http_client.ssrf:AddressGuard.check_target"),
    ),
    "h3-rebinding": fault(
        "test_http.py::test_h_h3_rebound_name_is_blocked",
        replace("rune.nodes.io.http_client.ssrf:AddressGuard.addresses", _check_first_address),
        skip("rune.nodes.io.http_client.client:_Connector._expected", result=True),
    ),
    "h4-headers": fault(
        "test_nodes.py::test_h_h4_line_break_adds_no_header_or_recipient",
        replace("rune.nodes.io.smtp:_line", lambda line: lambda text: text),
    ),
    "h4-silence": fault(
        "test_nodes.py::test_h_h4_silent_mail_server_times_out",
        edit("rune.nodes.io.smtp:deliver", ("asyncio.timeout(DELIVERY_TIMEOUT_S)", "asyncio.timeout(None)")),
        SHORT_COMMANDS,
    ),
    "h4-tls": fault(
        "test_nodes.py::test_h_h4_smtps_starts_with_tls_handshake",
        replace(
            "rune.nodes.io.smtp:Server.options",
            lambda options: lambda self: {**options(self), "use_tls": False},
        ),
        SHORT_COMMANDS,
    ),
    "h5": fault(
        "test_nodes.py::test_h_h5_numeric_date_is_unix_time",
        replace("rune.nodes.data.datetime:_date", _take_number_for_now),
    ),
    "h6": fault(
        "test_nodes.py::test_h_h6_any_value_can_be_logged",
        replace("rune.nodes.data.log:run", _append_message_to_text),
    ),
    "f7": fault(
        "test_credentials.py::test_h_f7_node_after_wait_uses_rotated_credential[embedded]",
        replace("rune.nodes.credentials:_resolve", _keep_credential),
    ),
    "i6-use": fault(
        "test_credentials.py::test_h_i6_credential_is_authorized_when_used",
        replace("rune.nodes.credentials:CredentialUse.credential", _ignore_host),
    ),
    "i6-policy": fault(
        "test_credentials.py::test_h_i6_forbidden_credential_follows_error_policy",
        edit(
            "rune.nodes.registry:execute_async",
            (
                "(StoreUnavailableError, ExecutionEndedError, TokenEndedError, Interruption)",
                "(StoreUnavailableError, ExecutionEndedError, TokenEndedError, Interruption, NodeFailure)",
            ),
        ),
        NO_ENGINE_RETRY,
    ),
    "i7-row": fault(
        "test_credentials.py::test_h_i7_credential_is_not_journaled",
        replace(
            "rune.nodes.credentials:CredentialUse.close_run", lambda ended: lambda self, outcome: outcome
        ),
    ),
    "i7-document": fault(
        "test_credentials.py::test_h_i7_secret_in_document_is_rejected",
        replace("rune.core.definition.fields:credentials", _ignore_unknown_fields),
    ),
    "i7-expression": fault(
        "test_credentials.py::test_h_i7_expression_cannot_read_credential",
        replace("rune.core.expr.names:ROOTS", lambda roots: {**roots, "credentials": "$credentials"}),
    ),
}
