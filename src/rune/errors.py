"""The base exceptions, and the tree of all exceptions of the package.

Subclasses are in parentheses after their base. Paths are relative to `rune`.

RuneError                              base of all errors that Rune raises on purpose; has a code
├── InvalidDocumentError               a definition or start payload is rejected; holds every problem
├── LimitExceededError                 a size, depth or count exceeds a limit; names the limit
├── NodeFailure                        a node fails with a code and details
├── decoding                           MalformedDataError
├── textedit.document                  TextEditError
├── settings                           SettingsError
├── core.expr.budget                   ExpressionError (MissingError, BudgetError), ExpressionSyntaxError,
│                                      ExpressionSyntaxErrors
├── ports.journal                      StoreUnavailableError (StoreDamagedError), ExecutionEndedError, TokenEndedError,
│                                      ExecutionRemovedError, NewerFormatError, IdempotencyConflictError,
│                                      IdempotencyKeyExpiredError
├── ports.processes                    FileInUseError, NoOwnerError, OwnerLostError: all StoreUnavailableError
├── ports.workflows                    WorkflowNotFoundError, InvalidAliasError, InvalidWeightsError,
│                                      ConcurrentChangeError
├── ports.credentials                  CredentialError (CredentialNotFoundError, CredentialNameTakenError,
│                                      CredentialUnreadableError, CredentialDeniedError, EncryptionKeyError)
├── ports.access                       InvalidKeyError, KeyNotFoundError, InvalidLimitsError, StartLimitError
├── ports.triggers                     TriggerNotFoundError, PathTakenError
├── ports.retention                    InvalidRuleError
├── codec.messages                     InvalidMessageError, MessageTooLargeError
├── codec.rpc                          InvalidFrameError (FrameTooLargeError), InvalidRequestError
├── importing.javascript               UntranslatableError
├── nodes.registry                     UnknownNodeTypeError, NodeModuleError
├── nodes.io.http_client.ssrf          AllowListError
├── runtime.values                     ExecutionNotFoundError
├── runtime.plan_cache                 DefinitionNotFoundError, MissingNodeTypeError
├── runtime.worker.executor            UnservableTokenError
├── runtime.services.executions        RequestRefusedError
├── runtime.services.triggers          SecretNotRotatedError
├── runtime.messaging.external_executor ExternalExecutorError
├── runtime.messaging.foreign_messages UnknownScopeError, DefinitionMismatchError, UnknownNodeError
├── adapters.sqlite.backup             InvalidBackupError
├── adapters.postgres.database         DatabaseRefusedError, OutOfLocksError (a StoreUnavailableError)
├── adapters.redis.client              RedisError (RedirectionError), InvalidAddressError,
│                                      RefusalError (a StoreUnavailableError)
├── adapters.redis.checks              UnsuitableServerError
├── adapters.rabbitmq.amqp.errors      AmqpError (InvalidAddressError, ConnectionRefusedByBrokerError,
│                                      ChannelClosedError, PublishError (UnroutableError, NackedError),
│                                      BrokerUnavailableError, which is also a StoreUnavailableError)
├── adapters.rabbitmq.topology         InvalidQueueNameError, TopologyMismatchError: both AmqpError
├── adapters.blobs.keys                InvalidBlobKeyError
├── server.responses                   ApiError (MethodNotAllowedError, TooManyLoginsError)
├── server.auth                        DeadLetterNotFoundError, UndeclaredPermissionError
├── server.node_runs                   NodeRunNotFoundError
├── server.routes.workflows            BlobNotFoundError
├── build.results                      ExecutionFailed
├── build.deploying                    UnknownTypesError
├── bootstrap                          UnsupportedByBackendError, UnsupportedOverUrlError
├── bootstrap.http                     ServerStartError
├── bootstrap.components               TracingUnavailableError
├── bootstrap.extras                   MissingExtraError
├── client.errors                      ClientError (ConnectionFailedError, ExecutionFailed,
│                                      ApiError (NotFound, Conflict, Forbidden, Invalid, RateLimited))
├── cli.backend                        UnknownReferenceError
└── cli.commands.credentials           SecretInArgumentsError (a CredentialError)

Outside of the tree are exceptions that callers never receive: `nodes.base.Interruption` (a BaseException, with
`runtime.values.ValueNotLoaded`), `nodes.io.llm_service.EventTooLongError`, `adapters.postgres.journal_writes`
(MissingDefinitionError, IdBeingReleasedError), `adapters.rabbitmq.amqp.errors.ProtocolError` and private ones.
"""

from __future__ import annotations

from typing import Any


class RuneError(Exception):
    """An error with a message and a machine-readable code."""

    code = "ERROR"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class NodeFailure(RuneError):  # noqa: N818 - public name, raised by custom nodes
    """Raised by a node to fail its attempt; its retry and error policies then apply.

    `permanent=True`: another attempt would fail as well, so `retry` does not cover it unless its `on` names the code.
    None: as the node type declares for the code, by default transient.
    """

    code = "NODE_FAILED"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        details: dict[str, Any] | None = None,
        permanent: bool | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.details = details or {}
        self.permanent = permanent


class LimitExceededError(RuneError):
    """A configured limit was exceeded."""

    code = "LIMIT_EXCEEDED"

    def __init__(self, limit: str, allowed: int, found: int | None = None) -> None:
        seen = "" if found is None else f", found {found:,}"
        super().__init__(f"{limit}: at most {allowed:,} allowed{seen}")
        self.limit = limit
        self.allowed = allowed


class InvalidDocumentError(RuneError):
    """A document or start payload is rejected. `problems` lists all of its problems."""

    code = "INVALID"

    def __init__(self, problems: tuple[Any, ...]) -> None:
        super().__init__("; ".join(each.text for each in problems[:5]))
        self.problems = problems
