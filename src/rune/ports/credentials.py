"""Credentials: their types and fields, the store that keeps them, and the grants that permit their use.

The fields of every credential type are defined here only, so that the store and the nodes that use a credential agree.
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
"""A secret value: never part of a list, log line or error message."""

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
_CREDENTIAL_ID_PATTERN = re.compile(r"c[0-9a-f]{32}")
ANY_HOST = "*"
"""The entry in `hosts` of a credential that may be sent to any host."""

_CONNECTION_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"}
)


class Fields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of all credential types."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def secrets(self) -> tuple[str, ...]:
        """Return the secret values and the strings that protocols derive from them, for redaction."""
        names = secret_names(type(self))
        return tuple(value for name in names if isinstance(value := getattr(self, name), str))


class Basic(Fields, frozen=True, kw_only=True, tag="basic"):
    """Username and password."""

    username: Annotated[str, Meta(max_length=4_096, pattern=r"^[^:]*$")]
    password: Hidden

    def secrets(self) -> tuple[str, ...]:
        return self.password, f"{self.username}:{self.password}"


class Bearer(Fields, frozen=True, kw_only=True, tag="bearer"):
    """A token for `Authorization: Bearer`."""

    token: Hidden
    base_url: Text | None = None


class Header(Fields, frozen=True, kw_only=True, tag="header"):
    """An HTTP header with a secret value."""

    name: Annotated[str, Meta(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$")]
    value: Hidden


class ApiKey(Fields, frozen=True, kw_only=True, tag="api_key"):
    """An API key that is sent in a header or in the query string."""

    key: Hidden
    name: Annotated[str, Meta(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$")] = "X-API-Key"
    place: Literal["header", "query"] = "header"
    base_url: Text | None = None


class OAuth2(Fields, frozen=True, kw_only=True, tag="oauth2"):
    """An OAuth 2 client that obtains its tokens with the client credentials grant."""

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
    """A mail server with its login. `sender` is the From address of mails whose node sets none."""

    host: Text
    port: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    security: Literal["tls", "starttls", "none"] = "tls"
    username: Text | None = None
    password: Hidden | None = None
    sender: Text | None = None

    def secrets(self) -> tuple[str, ...]:
        if self.password is None:
            return ()
        # SASL PLAIN sends username and password as one string.
        return self.password, f"\0{self.username or ''}\0{self.password}"


class Custom(Fields, frozen=True, kw_only=True, tag="custom"):
    """Values for a custom node; all of them are secret."""

    values: Annotated[dict[Text, Hidden], Meta(min_length=1, max_length=64, extra={"secret": True})]

    def secrets(self) -> tuple[str, ...]:
        return tuple(self.values.values())


AnyFields = Basic | Bearer | Header | ApiKey | OAuth2 | Smtp | Custom
TYPES: dict[str, type[Fields]] = {str(each.__struct_config__.tag): each for each in get_args(AnyFields)}


@cache
def secret_names(kind: type[Fields]) -> tuple[str, ...]:
    """Return the names of the secret fields of a credential type."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(name for name in kind.__struct_fields__ if _is_secret(hints[name]))


def _is_secret(hint: Any) -> bool:
    marked = any(isinstance(item, Meta) and bool(item.extra) for item in getattr(hint, "__metadata__", ()))
    return marked or any(_is_secret(argument) for argument in get_args(hint) if argument is not hint)


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A decrypted credential. A node holds it for the duration of one call."""

    id: str
    name: str
    type: str
    version: int
    fields: AnyFields
    hosts: tuple[str, ...] = ()
    insecure: bool | None = None  # None: stored by an older version, which had no such field

    def __repr__(self) -> str:
        return f"Credential({self.name}, {self.type}, version {self.version})"

    def fits(self, host: str) -> bool:
        """Return whether the credential may be sent to this host. Credentials of older versions may have no `hosts`;
        these are sent to any."""
        name = host.lower().removesuffix(".")
        return not self.hosts or any(
            name.endswith(pattern[1:]) if pattern.startswith("*.") else pattern in (name, ANY_HOST)
            for pattern in self.hosts
        )


class CredentialSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A credential without its values."""

    id: str
    name: str
    type: str
    version: int
    fields: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    insecure: bool | None = None
    key: str = ""  # name of the encryption key
    created_at: int = 0
    changed_at: int = 0


class NewCredential(msgspec.Struct, frozen=True, kw_only=True):
    """A credential to store, with its first grants; None: the default grants."""

    id: str
    name: str
    fields: AnyFields
    hosts: tuple[str, ...] = ()
    insecure: bool = False
    grants: frozenset[str] | None = None
    at: int

    def __repr__(self) -> str:
        return f"NewCredential({self.name})"


class CredentialError(RuneError):
    """A credential cannot be stored or used."""

    code = "BAD_CREDENTIAL"


class CredentialNameTakenError(CredentialError):
    """Another credential has this name."""

    code = "CREDENTIAL_EXISTS"


class CredentialNotFoundError(CredentialError):
    """No credential has this name or id."""

    code = "CREDENTIAL_MISSING"


class CredentialUnreadableError(CredentialError):
    """A stored credential cannot be decrypted: its encryption key is missing, or it was altered."""

    code = "CREDENTIAL_UNREADABLE"


class CredentialDeniedError(CredentialError):
    """The principal that started the execution has no grant for the credential."""

    code = "CREDENTIAL_DENIED"


class EncryptionKeyError(CredentialError):
    """The encryption key is missing, malformed, or readable by other users."""

    code = "SECRET_KEY"


def credential_not_found(reference: str) -> CredentialNotFoundError:
    return CredentialNotFoundError(f"there is no credential `{reference[:128]}`")


def is_id(reference: str) -> bool:
    """Return whether a reference is an id rather than a name. Names of this form are not permitted."""
    return _CREDENTIAL_ID_PATTERN.fullmatch(reference) is not None


def described_types() -> list[dict[str, Any]]:
    """Describe every credential type: its name, a summary, the JSON Schema of its fields, and the secret ones."""
    descriptions: list[dict[str, Any]] = []
    for name, kind in TYPES.items():
        (_, schemas) = msgspec.json.schema_components([kind], ref_template="{name}")
        schema = dict(schemas[kind.__name__])
        schema.pop("title", None)
        summary = schema.pop("description", "")
        schema["properties"] = {key: value for key, value in schema["properties"].items() if key != "type"}
        schema["required"] = [key for key in schema.get("required", []) if key != "type"]
        if kind is Custom:  # given without the field around them
            schema = schema["properties"]["values"]
        descriptions.append(
            {
                "type": name,
                "summary": summary,
                "fields": schema,
                "secrets": ["*"] if kind is Custom else list(secret_names(kind)),
            }
        )
    return descriptions


def fields_of(type: str, values: Mapping[str, Any]) -> AnyFields:
    """Convert values to the fields of a credential type. Error messages name the field and contain no values."""
    kind = TYPES.get(type)
    if kind is None:
        raise CredentialError(f"`{type[:40]}` is not a credential type; the types are {', '.join(TYPES)}")
    content: Mapping[str, Any] = values
    if kind is Custom and not (set(values) == {"values"} and isinstance(values["values"], dict)):
        content = {"values": dict(values)}
    try:
        fields: AnyFields = msgspec.convert(content, kind, strict=False)  # type: ignore[assignment]
    except msgspec.ValidationError as error:
        raise CredentialError(f"a credential of type {type}: {_decode_error(error)}") from None
    header = isinstance(fields, Header) or (isinstance(fields, ApiKey) and fields.place == "header")
    if header and getattr(fields, "name", "").lower() in _CONNECTION_HEADERS:
        raise CredentialError(
            f"a credential of type {type}: `name` is a header that is reserved for the connection"
        )
    for name in kind.__struct_fields__:
        value = getattr(fields, name)
        if isinstance(value, str) and re.search(r"[\x00-\x1f\x7f]", value):
            raise CredentialError(
                f"a credential of type {type}: `{name}` contains a line break or control character"
            )
    return fields


def _decode_error(error: msgspec.ValidationError) -> str:
    """Return the message without values: msgspec quotes unexpected ones, which may be secrets in the wrong field."""
    text, _, place = str(error).partition(" - at `$.")
    if not place:
        return text.replace("Object missing required field", "missing field").replace(
            "Object contains", "has"
        )
    field = place.rstrip("`")
    if text.startswith(("Expected `str` matching regex", "Invalid enum value")):
        return f"`{field}` has an invalid format"
    return f"`{field}`: {text}"


class CredentialStore(Protocol):
    """Credentials by name or id, encrypted at rest. Changes are durable when the method returns."""

    async def put(self, draft: NewCredential) -> CredentialSummary:
        """Store a new credential with its grants. Idempotent by id and name.

        CredentialNameTakenError if another one has its name.
        """

    async def resolve(self, reference: str) -> Credential | None:
        """Return a credential with its values, as they are stored now; None if there is none.

        CredentialUnreadableError or EncryptionKeyError if it cannot be decrypted.
        """

    async def list(self) -> Sequence[CredentialSummary]:
        """Return all credentials without their values, ordered by name."""

    async def find(self, reference: str) -> CredentialSummary | None:
        """Return a credential without its values."""

    async def rotate(
        self,
        reference: str,
        values: Mapping[str, Any],
        hosts: tuple[str, ...] | None,
        at: int,
        insecure: bool | None = None,
    ) -> CredentialSummary:
        """Replace the given values, keep the others, and increment the version. `hosts` None: keep the hosts; so too
        `insecure`.

        CredentialNotFoundError if there is none.
        """

    async def remove(self, reference: str) -> CredentialSummary:
        """Delete a credential with its grants and return it; CredentialNotFoundError if there is none."""

    async def reencrypt(self) -> int:
        """Encrypt with the newest key whatever an older key encrypts, and return the number of credentials changed.
        If one of them cannot be decrypted, none is changed."""


class CredentialGrants(Protocol):
    """Grants by the id of a credential. They are deleted with it."""

    async def of(self, credential: str) -> frozenset[str]:
        """Return the principals that may use a credential; the default grants if they were never changed."""

    async def change(self, credential: str, add: Collection[str], remove: Collection[str]) -> frozenset[str]:
        """Add and remove grants in one transaction and return the resulting ones. Durable when this returns."""
