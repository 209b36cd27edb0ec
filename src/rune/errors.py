"""The base exceptions, and the tree of all exceptions of the package.

Subclasses of the same module are in parentheses after their base. Paths are relative to `rune`.

RuneError                              base of all errors that Rune raises on purpose; has a code
├── InvalidDocumentError               a definition or start payload is rejected; holds every problem
├── LimitExceededError                 a size, depth or count exceeds a limit; names the limit
├── NodeFailure                        a node fails with a code and details
├── adapters.blobs.keys                       InvalidBlobKeyError
├── adapters.postgres.database                DatabaseRefusedError, OutOfLocksError
├── adapters.rabbitmq.amqp.errors             AmqpError (InvalidAddressError, ConnectionRefusedByBrokerError,
│                                             BrokerUnavailableError, ChannelClosedError, PublishError
│                                             (UnroutableError, NackedError))
├── adapters.rabbitmq.topology                InvalidQueueNameError, TopologyMismatchError
├── adapters.redis.client                     InvalidAddressError, RedisError (RedirectionError), RefusalError,
│                                             LateCommandError, MissingFunctionsError
├── adapters.redis.stores                     UnsuitableServerError
├── adapters.sqlite.backup                    InvalidBackupError
├── bootstrap                                 UnsupportedByBackendError, UnsupportedOverUrlError
├── bootstrap.components                      MissingExtraError, TracingUnavailableError
├── bootstrap.http                            ServerStartError
├── build.operations                          UnknownTypesError
├── build.results                             ExecutionFailed
├── cli.backend                               UnknownReferenceError
├── cli.commands.credentials                  SecretInArgumentsError
├── cli.commands.details                      WhichSplitError
├── client.errors                             ClientError (ConnectionFailedError, ApiError (NotFound, Conflict,
│                                             Forbidden, Invalid, RateLimited), ExecutionFailed)
├── client.transport                          ServerKeyError
├── codec.decode                              MalformedDataError
├── codec.messages                            InvalidMessageError, MessageTooLargeError
├── codec.rpc                                 InvalidFrameError (FrameTooLargeError), InvalidRequestError
├── core.expr.budget                          ExpressionError (MissingError, BudgetError (TimeBudgetError)),
│                                             ExpressionSyntaxError, ExpressionSyntaxErrors
├── core.start_keys                           ReservedKeyError
├── documents.importers.javascript            UntranslatableError
├── documents.textedit.document               TextEditError
├── nodes.io.http_client.ssrf                 AllowListError
├── nodes.registry                            UnknownNodeTypeError, NodeModuleError
├── ports.access                              InvalidKeyError, KeyNotFoundError, InvalidLimitsError, StartLimitError
├── ports.credentials                         CredentialError (CredentialNameTakenError, CredentialNotFoundError,
│                                             CredentialUnreadableError, CredentialDeniedError, EncryptionKeyError)
├── ports.journal                             ExecutionEndedError, TokenEndedError, StoreUnavailableError
│                                             (StoreDamagedError), IdempotencyConflictError,
│                                             IdempotencyKeyExpiredError, ExecutionRemovedError, NewerFormatError
├── ports.processes                           FileInUseError, NoOwnerError, OwnerLostError
├── ports.retention                           InvalidRuleError
├── ports.workflows                           WorkflowNotFoundError, ChildForbiddenError, InvalidAliasError,
│                                             InvalidWeightsError, ConcurrentChangeError, TriggerNotFoundError,
│                                             PathTakenError
├── runtime.execution_data                    ExecutionNotFoundError
├── runtime.lifecycle.launcher                VirtualTimeError
├── runtime.messaging.completion_publisher    ExternalExecutorError
├── runtime.messaging.foreign_messages        UnknownScopeError, DefinitionMismatchError, InputMismatchError,
│                                             UnknownNodeError, UnknownTypeError
├── runtime.plan_cache                        DefinitionNotFoundError, MissingNodeTypeError
├── runtime.queries.record                    NotRecordableError
├── runtime.queries.node_input                ItemNotFoundError
├── runtime.queries.value_parts               InvalidPointerError, PartNotFoundError, NotJsonError
├── runtime.services.bulk                     BulkJobNotFoundError
├── runtime.services.executions               RequestRefusedError
├── runtime.services.rerun_changes            RerunRefusedError
├── runtime.services.signal_checks            SignalRefusedError
├── runtime.services.workers                  UnknownWorkerError, NotAWorkerError
├── runtime.services.workflows                SecretNotRotatedError
├── runtime.worker.executor                   UnservableTokenError
├── server.auth                               DeadLetterNotFoundError, UndeclaredPermissionError
├── server.responses                          ApiError (MethodNotAllowedError, TooManyLoginsError)
├── server.routes.definitions                 BlobNotFoundError
├── server.routes.workflows                   SourceNotFoundError
├── server.views.node_runs                    NodeRunNotFoundError
└── settings                                  SettingsError

Outside of the tree are exceptions that callers never receive: `nodes.base.Interruption` (a BaseException, with
`runtime.value_refs.ValueNotLoaded`), `nodes.io.llm_service.EventTooLongError`, `adapters.postgres.journal_writes`
(MissingDefinitionError, IdBeingReleasedError), `ports.journal.UnknownExecutionError`, `ports.queue.LeftToOthersError`,
`adapters.rabbitmq.amqp.errors.ProtocolError` and private ones.
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
