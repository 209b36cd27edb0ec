"""Credentials as the API shows them, without their secrets."""

from __future__ import annotations

from rune.api.credentials import CredentialView
from rune.ports.clock import moment
from rune.ports.credentials import CredentialSummary


def credential_view(each: CredentialSummary) -> CredentialView:
    return CredentialView(
        id=each.id,
        name=each.name,
        type=each.type,
        version=each.version,
        fields=list(each.fields),
        hosts=list(each.hosts),
        insecure=each.insecure,
        key=each.key,
        created_at=moment(each.created_at),
        changed_at=moment(each.changed_at),
    )
