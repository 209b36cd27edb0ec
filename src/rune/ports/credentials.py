"""Secrets: credentials by name or id. Their fields are typed here and nowhere else, so that whoever stores one
and whoever uses it mean the same.

Grants: who may use a credential.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Protocol, get_args, get_type_hints

import msgspec
from msgspec import Meta

from rune.errors import RuneError

Text = Annotated[str, Meta(min_length=1, max_length=4_096)]
Hidden = Annotated[str, Meta(min_length=1, max_length=65_536, extra={"secret": True})]
"""A value that is shown nowhere."""

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
_ID = re.compile(r"c[0-9a-f]{32}")
_OF_THE_CONNECTION = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"}
)


class Fields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all kinds of credentials."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def secrets(self) -> tuple[str, ...]:
        """The values that nobody may see, and what is made of them on the way."""
        names = secret_names(type(self))
        return tuple(value for name in names if isinstance(value := getattr(self, name), str))


class Basic(Fields, frozen=True, kw_only=True, tag="basic"):
    """A user and a password."""

    username: Annotated[str, Meta(max_length=4_096, pattern=r"^[^:]*$")]
    password: Hidden

    def secrets(self) -> tuple[str, ...]:
        return self.password, f"{self.username}:{self.password}"


class Bearer(Fields, frozen=True, kw_only=True, tag="bearer"):
    """A token for `Authorization: Bearer`."""

    token: Hidden
    base_url: Text | None = None


class Header(Fields, frozen=True, kw_only=True, tag="header"):
    """Any one header."""

    name: Annotated[str, Meta(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$")]
    value: Hidden


class ApiKey(Fields, frozen=True, kw_only=True, tag="api_key"):
    """A key in a header or in the query."""

    key: Hidden
    name: Annotated[str, Meta(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$")] = "X-API-Key"
    place: Literal["header", "query"] = "header"
    base_url: Text | None = None


class OAuth2(Fields, frozen=True, kw_only=True, tag="oauth2"):
    """A client that fetches its tokens itself (client credentials)."""

    token_url: Text
    client_id: Text
    client_secret: Hidden
    scope: Text | None = None
    audience: Text | None = None
    send_as: Literal["basic", "body"] = "basic"
    base_url: Text | None = None

    def secrets(self) -> tuple[str, ...]:
        return self.client_secret, f"{self.client_id}:{self.client_secret}"


class Smtp(Fields, frozen=True, kw_only=True, tag="smtp"):
    """A mail server and a login. `sender` is who mails are from unless their node says so."""

    host: Text
    port: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    security: Literal["tls", "starttls", "none"] = "tls"
    username: Text | None = None
    password: Hidden | None = None
    sender: Text | None = None

    def secrets(self) -> tuple[str, ...]:
        if self.password is None:
            return ()
        # SASL PLAIN sends them in one piece.
        return self.password, f"\0{self.username or ''}\0{self.password}"


class Custom(Fields, frozen=True, kw_only=True, tag="custom"):
    """Whatever a custom node needs; all of it is secret."""

    values: Annotated[dict[Text, Hidden], Meta(min_length=1, max_length=64, extra={"secret": True})]

    def secrets(self) -> tuple[str, ...]:
        return tuple(self.values.values())


AnyFields = Basic | Bearer | Header | ApiKey | OAuth2 | Smtp | Custom
TYPES: dict[str, type[Fields]] = {str(each.__struct_config__.tag): each for each in get_args(AnyFields)}


@cache
def secret_names(kind: type[Fields]) -> tuple[str, ...]:
    """Which fields of a kind are secret."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(name for name in kind.__struct_fields__ if _is_secret(hints[name]))


def _is_secret(hint: Any) -> bool:
    own = any(isinstance(each, Meta) and bool(each.extra) for each in getattr(hint, "__metadata__", ()))
    return own or any(_is_secret(each) for each in get_args(hint) if each is not hint)


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A credential as a node uses it, for the life of one call."""

    id: str
    name: str
    type: str
    version: int
    fields: AnyFields
    hosts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Credential({self.name}, {self.type}, version {self.version})"

    def fits(self, host: str) -> bool:
        """Whether it may be sent to this host."""
        name = host.lower().removesuffix(".")
        return not self.hosts or any(
            name.endswith(each[1:]) if each.startswith("*.") else name == each for each in self.hosts
        )


class CredentialSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What may be told of a credential: everything but its values."""

    id: str
    name: str
    type: str
    version: int
    fields: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    key: str = ""  # the name of the key that seals it
    created_at: int = 0
    changed_at: int = 0


class NewCredential(msgspec.Struct, frozen=True, kw_only=True):
    """A credential to be stored."""

    id: str
    name: str
    fields: AnyFields
    hosts: tuple[str, ...] = ()
    at: int

    def __repr__(self) -> str:
        return f"Draft({self.name})"


class CredentialError(RuneError):
    """A credential cannot be stored or used."""

    code = "BAD_CREDENTIAL"


class CredentialNameTakenError(CredentialError):
    """There is a credential of this name."""

    code = "CREDENTIAL_EXISTS"


class CredentialNotFoundError(CredentialError):
    """There is no credential of this name or id."""

    code = "CREDENTIAL_MISSING"


class CredentialUnreadableError(CredentialError):
    """A credential is there and cannot be opened: sealed with another key, or altered."""

    code = "CREDENTIAL_UNREADABLE"


class CredentialDeniedError(CredentialError):
    """Whoever started the execution was not granted the credential."""

    code = "CREDENTIAL_DENIED"


class EncryptionKeyError(CredentialError):
    """The key is missing, malformed, or open to others."""

    code = "SECRET_KEY"


def is_id(reference: str) -> bool:
    """Whether this is an id; no name may look like one."""
    return _ID.fullmatch(reference) is not None


def fields_of(type: str, values: Mapping[str, Any]) -> AnyFields:
    """Values as the fields of a type. The refusal names the field and shows no value."""
    kind = TYPES.get(type)
    if kind is None:
        raise CredentialError(f"`{type[:40]}` is no type of credential; there are {', '.join(TYPES)}")
    given: Mapping[str, Any] = values
    if kind is Custom and not (set(values) == {"values"} and isinstance(values["values"], dict)):
        given = {"values": dict(values)}
    try:
        found: AnyFields = msgspec.convert(given, kind, strict=False)  # type: ignore[assignment]
    except msgspec.ValidationError as error:
        raise CredentialError(f"a credential of type {type}: {_decode_error(error)}") from None
    header = isinstance(found, Header) or (isinstance(found, ApiKey) and found.place == "header")
    if header and getattr(found, "name", "").lower() in _OF_THE_CONNECTION:
        raise CredentialError(
            f"a credential of type {type}: `name` is a header that belongs to the connection"
        )
    for name in kind.__struct_fields__:
        value = getattr(found, name)
        if isinstance(value, str) and re.search(r"[\x00-\x1f\x7f]", value):
            raise CredentialError(
                f"a credential of type {type}: `{name}` holds a line break or control character"
            )
    return found


def _decode_error(error: msgspec.ValidationError) -> str:
    """The library quotes values that it did not expect; those may be secrets in the wrong field."""
    text, _, place = str(error).partition(" - at `$.")
    if not place:
        return text.replace("Object missing required field", "missing field").replace(
            "Object contains", "has"
        )
    field = place.rstrip("`")
    if text.startswith(("Expected `str` matching regex", "Invalid enum value")):
        return f"`{field}` has a form that is not accepted"
    return f"`{field}`: {text}"


class CredentialStore(Protocol):
    """Credentials by name or id, resolved at run time, each time. Everything that changes one is durable when it
    returns."""

    async def put(self, draft: NewCredential) -> CredentialSummary:
        """Store a new credential; NameTaken if there is another of this name. The same one twice is one."""

    async def resolve(self, reference: str) -> Credential | None:
        """A credential with its values, or None. Unreadable or KeyProblem where it cannot be opened."""

    async def list(self) -> Sequence[CredentialSummary]:
        """All of them by name, without values."""

    async def find(self, reference: str) -> CredentialSummary | None:
        """One of them, without values."""

    async def rotate(
        self, reference: str, values: Mapping[str, Any], hosts: tuple[str, ...] | None, at: int
    ) -> CredentialSummary:
        """Put values in the place of old ones; what is not given stays. The version grows by one."""

    async def remove(self, reference: str) -> CredentialSummary:
        """Forget one; Missing if there is none."""

    async def reencrypt(self) -> int:
        """Seal everything with the newest key; answers how many were sealed otherwise. All or nothing."""


class CredentialGrants(Protocol):
    """Grants by the id of a credential; they go with it."""

    async def of(self, credential: str) -> frozenset[str]:
        """Who may use it; the default where nothing else was said."""

    async def change(self, credential: str, add: Collection[str], remove: Collection[str]) -> frozenset[str]:
        """Grant and withdraw in one act; what holds afterwards. Durable when this returns."""
