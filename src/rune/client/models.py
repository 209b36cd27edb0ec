"""The names of the response types in Python. Each is a type of `rune.api`, which the OpenAPI document names."""

from __future__ import annotations

from rune.api import (
    access,
    bulk,
    comparison,
    credentials,
    dead_letters,
    definitions,
    executions,
    graphs,
    handlers,
    inbox,
    items,
    live,
    node_runs,
    problems,
    system,
    triggers,
    values,
    workflows,
)
from rune.core.definition import problems as documents
from rune.core.execution import reasons, token

ApiKey = access.KeyView
Limits = access.LimitsView
LogEntry = access.EntryView
Me = access.Me
NewApiKey = access.NewKey

BulkJob = bulk.BulkView
BulkOutcome = bulk.BulkOutcomeView
BulkPreview = bulk.BulkPreview

ComparedRun = comparison.ComparedRun
ComparedRunPair = comparison.ComparedRunPair
ComparedVersions = comparison.Compared
Comparison = comparison.ComparisonSummary
Difference = comparison.Difference
DifferenceGroup = comparison.DifferenceGroupView
DifferingRun = comparison.RunChange
VersionChange = comparison.Change

Credential = credentials.CredentialView
CredentialType = credentials.CredentialTypeView
CredentialUse = credentials.CredentialUseView

DeadLetter = dead_letters.DeadLetterView
DeadMessage = dead_letters.DeadMessageView
DeadMessageDetail = dead_letters.DeadMessageDetail
DiscardedMessage = dead_letters.DiscardedMessage
RequeuedMessage = dead_letters.RequeuedMessage

EdgePlace = definitions.EdgePlace
FramePlace = definitions.FramePlace
ImportEntry = definitions.ImportEntry
Imported = definitions.Imported
Layout = definitions.LayoutView
NodePlace = definitions.NodePlace
Preview = definitions.PreviewView

ActionResult = executions.ActionResultView
Count = executions.CountView
ErrorInfo = executions.ErrorView
Event = executions.EventView
ENDED = executions.ENDED
Execution = executions.ExecutionDetail
Explanation = executions.Explanation
Item = executions.ItemView
ListedExecution = executions.ExecutionView
SignalResult = executions.SignalResultView
Started = executions.Started

Graph = graphs.GraphState
NodeState = graphs.NodeState
SplitState = graphs.SplitState

FailedHandler = handlers.FailedHandlerView
Handler = handlers.HandlerView
Handlers = handlers.HandlersView
LateHandler = handlers.LateHandlerView

CodeCount = items.CodeCount
ItemCounts = items.Facets
ItemTimes = items.ItemTimes
SplitItem = items.SplitItemView

FailedRun = live.Failed
LoggedLine = live.LineView
Missed = live.Missed
Now = live.NowView
Rollup = live.Rollup
RunningNode = live.RunningView
SplitRollup = live.SplitRollup

Attempt = node_runs.AttemptView
LogLine = node_runs.LogLineView
NodeInput = node_runs.InputView
NodeLog = node_runs.LogView
NodeRun = node_runs.RunView

ProblemDocument = problems.ProblemDocument

DoctorReport = system.DoctorReport
Finding = system.FindingView
Queue = system.QueueView
ServerVersion = system.ServerVersion
Setting = system.SettingView
Stats = system.Stats
StatsGroup = system.StatsGroup
Worker = system.WorkerView
WorkerRequest = system.WorkerRequest

RotatedTrigger = triggers.RotatedView
Schedule = triggers.ScheduleView
SchedulePreview = triggers.SchedulePreview
Trigger = triggers.TriggerView
Webhook = triggers.HookView

ValueEntry = values.ValueEntry
ValueMatch = values.ValueMatch
ValueMatches = values.ValueMatches
ValuePart = values.ValuePart

WaitingSignal = inbox.WaitingView

Alias = workflows.AliasView
Archived = workflows.Archived
Checked = workflows.Checked
Deployed = workflows.Deployed
Outcome = workflows.OutcomeView
PlannedNode = workflows.PlannedNode
PointedAlias = workflows.PointedAlias
Version = workflows.VersionView
Workflow = workflows.WorkflowView
WorkflowActivity = workflows.WorkflowActivity
WorkflowVersion = workflows.WorkflowDetail

Problem = documents.Problem
Frame = token.Frame
Waiting = reasons.Waiting

# pages
ExecutionPage = executions.ExecutionPage
NodeRunPage = node_runs.RunPage
AttemptList = node_runs.AttemptList
NodeLogPage = node_runs.NodeLogPage
EventPage = executions.EventPage
BulkJobList = bulk.BulkList
BulkOutcomePage = bulk.BulkOutcomePage
ComparedRunPage = comparison.ComparedRunPage
SplitRollupList = live.RollupPage
SplitItemPage = items.SplitItemPage
WaitingSignalPage = inbox.WaitingPage
QueueList = system.QueueList
TimerList = system.TimerList
NextTimer = system.TimerClock
VersionPage = workflows.VersionPage
WorkflowPage = workflows.WorkflowPage
AliasList = workflows.AliasList
DeadLetterPage = dead_letters.DeadLetterPage
DeadMessageList = dead_letters.DeadMessageList
TriggerList = triggers.TriggerList
CredentialList = credentials.CredentialList
CredentialUses = credentials.CredentialUseList
Granted = credentials.GrantList
ApiKeyList = access.KeyList
FailedHandlers = handlers.FailedHandlers
LogPage = access.EntryPage
WorkerList = system.WorkerList
SettingList = system.SettingList
CredentialTypeList = credentials.CredentialTypeList
