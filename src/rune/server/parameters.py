"""Path parameters and headers of the API, with their patterns and descriptions."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Path
from pydantic import Field

from rune.server.routing import Omittable

ID = r"[A-Za-z0-9_-]{1,128}"
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"

WorkflowId = Annotated[str, Path(pattern=f"^{ID}$", description="The id of a workflow.")]
VersionName = Annotated[str, Path(pattern=f"^{ID}$", description="A version number (`3`, `v3`) or an alias.")]
AliasName = Annotated[str, Path(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,127}$", description="An alias.")]
ExecutionId = Annotated[str, Path(pattern=f"^{ID}$", description="The id of an execution.")]
OtherExecutionId = Annotated[str, Path(pattern=f"^{ID}$", description="The id of another execution.")]
NodeId = Annotated[str, Path(pattern=f"^{ID}$", description="The id of a node.")]
DefinitionHash = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9:_-]{1,128}$", description="The hash of a definition.")
]
LetterId = Annotated[str, Path(pattern=f"^{ID}$", description="The id of a dead letter.")]
MessageId = Annotated[str, Path(pattern=r"^m[0-9a-f]{16}$", description="The id of a dead message.")]
NodeType = Annotated[str, Path(pattern=f"^{NAME}$", description="A node type or one of its aliases.")]
CredentialName = Annotated[str, Path(pattern=f"^{NAME}$", description="The name or id of a credential.")]
BlobKey = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9_.:@#/-]{1,400}$",
        description="The key of a blob, without the id of the execution.",
    ),
]
KeyId = Annotated[str, Path(pattern=r"^k[0-9a-f]{16}$", description="The id of an API key.")]
TriggerId = Annotated[str, Path(pattern=r"^t[0-9a-f]{24}$", description="The id of a trigger.")]

_Printable = Annotated[str, Field(min_length=1, max_length=255, pattern="^[!-~]([ -~]*[!-~])?$")]
IdempotencyKey = Annotated[
    Omittable[_Printable],
    Header(
        alias="Idempotency-Key",
        description="The operation takes place at most once under this key; a repeated request returns the first"
        " response.",
    ),
]
IfMatch = Annotated[
    Omittable[str],
    Header(alias="If-Match", description="Apply the change only if the resource still has this `ETag`."),
]
IfNoneMatch = Annotated[
    Omittable[str],
    Header(
        alias="If-None-Match",
        description="Apply or respond only if the resource has another `ETag`; `*`: only if it does not exist.",
    ),
]
LastEventId = Annotated[
    Omittable[str],
    Header(
        alias="Last-Event-ID",
        description="The `id` of the last received event.",
        json_schema_extra={"pattern": "^[0-9]{1,15}$"},  # browsers also send an empty one
    ),
]

Id = Annotated[str, Field(pattern=f"^{ID}$")]
"""An id in a body or in a query."""
Item = Annotated[str, Field(max_length=400, description="An item such as `users:5` or `users:5/orders:2`.")]
