"""A call of each `rune` command, with what it does on a cluster and while the other stores of the cluster are away.

`test_every_command.py` generates its tests from the command tree and these rows: a command without a row fails there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.support.help_examples import RUNE

FLOW = """\
id: every
nodes:
  - {id: in, type: webhook, parameters: {auth: hmac}}
  - {id: orders, type: split, parameters: {input_array: "{{ range(3) }}"}}
  - {id: charge, type: log, parameters: {message: charged}}
  - {id: all, type: aggregator}
  - {id: mail, type: output, parameters: {value: sent}}
edges:
  - {src: in, dst: orders}
  - {src: orders, dst: charge}
  - {src: charge, dst: all}
  - {src: all, dst: mail}
"""
WAITS = """\
id: every-waits
nodes:
  - {id: in, type: input}
  - {id: approval, type: wait, parameters: {resume: signal, name: approve}}
edges:
  - {src: in, dst: approval}
"""
FAILS = """\
id: every-fails
nodes:
  - {id: in, type: input}
  - {id: lost, type: fail, parameters: {message: lost}}
edges:
  - {src: in, dst: lost}
"""
TESTS = """\
workflow: flow.yaml
tests:
  - case: mail is sent
    expect: {status: completed, output: sent}
"""
MACHINE = {"StartAt": "Greet", "States": {"Greet": {"Type": "Pass", "Result": 1, "End": True}}}
FILES = {
    "flow.yaml": FLOW,
    "waits.yaml": WAITS,
    "fails.yaml": FAILS,
    "tests.yaml": TESTS,
    "machine.json": json.dumps(MACHINE),
}


class Row(NamedTuple):
    """A call: the words after `rune`, in which `{ended}` names an execution and so on.

    `code`: the exit code on a cluster. `away`: that while Redis does not answer; None: it waits until Redis is back.
    `stays`: the command runs until it is stopped, and prints this when it is ready.
    """

    words: str
    code: int = 0
    away: int | None = 0
    stdin: str | None = None
    stays: str = ""


REFUSED = 2
NEEDS_REDIS = 3

ROWS = (
    Row("up --port 0", away=NEEDS_REDIS, stays="Rune is up"),
    Row("run {flow}", away=NEEDS_REDIS),
    Row("run {flow} --no-worker", away=None),
    Row("start every"),
    Row("start every --idempotency-key {new}"),
    Row("serve worker", away=NEEDS_REDIS, stays="is ready"),
    Row("serve scheduler", away=NEEDS_REDIS, stays="is ready"),
    Row("serve api --port 0", away=NEEDS_REDIS, stays="is ready"),
    Row("list"),
    Row("list --failed"),
    Row("show {ended}"),
    Row("show {ended} --node mail"),
    Row("show {ended} --graph"),
    Row("show {ended} --graph --at 2"),
    Row("watch {ended}"),
    Row("items {ended}"),
    Row("items {ended} --counts"),
    Row("value {ended}"),
    Row("value {ended} --find sent"),
    Row("compare {ended} {other}"),
    Row("compare {ended} {other} --runs"),
    Row("waiting"),
    Row("stats"),
    Row("stats --by workflow"),
    Row("explain {waiting}"),
    Row("logs {ended}"),
    Row("logs {ended} --follow"),
    Row("verify {ended}"),
    Row("verify --all"),
    Row("signal {waiting} approve", away=NEEDS_REDIS),
    Row("cancel {waiting}"),
    Row("pause {waiting}", away=NEEDS_REDIS),
    Row("resume {waiting}", away=NEEDS_REDIS),
    Row("retry {failed}"),
    Row("rerun {ended} --from mail"),
    Row("bulk start cancel {waiting}", away=None),
    Row("bulk start pause {waiting} --dry-run"),
    Row("bulk list"),
    Row("bulk show {job}"),
    Row("bulk abort {job}"),
    Row("dlq", away=NEEDS_REDIS),
    Row("dlq list", away=NEEDS_REDIS),
    Row("dlq show {dead}"),
    Row("dlq requeue {dead}"),
    Row("dlq drop {dead}"),
    Row("deploy {flow}"),
    Row("workflows"),
    Row("workflows list --all"),
    Row("workflows show every"),
    Row("workflows diff every 1 2"),
    Row("workflows restore every@1"),
    Row("workflows alias every stable 1"),
    Row("workflows limit every"),
    Row("workflows limit every --running 1000"),
    Row("workflows remove {removable}"),
    Row("check {flow}"),
    Row("test {tests}"),
    Row("record {ended}"),
    Row("import {machine} --output {made}.yaml", code=1, away=1),
    Row("graph {flow}"),
    Row("convert {flow} {made}.json"),
    Row("stubs --output {made}.py"),
    Row("nodes"),
    Row("schema"),
    Row("triggers"),
    Row("triggers list"),
    Row("triggers show every"),
    Row("triggers enable every"),
    Row("triggers disable every"),
    Row("triggers rotate every"),
    Row("triggers preview '*/15 * * * *'"),
    Row("handlers"),
    Row("handlers --failed"),
    Row("handlers show"),
    Row("handlers set --on-failure every-fails"),
    Row("handlers set --on-failure none"),
    Row("prune --older-than 1000d"),
    Row("prune --older-than 1000d --dry-run"),
    Row("prune --vacuum"),
    Row("backup {made}.db", code=REFUSED, away=REFUSED),
    Row("restore {flow}", code=REFUSED, away=REFUSED),
    Row("credentials"),
    Row("credentials add {new} --type bearer --host *", stdin="a-token"),
    Row("credentials list"),
    Row("credentials show {credential}"),
    Row("credentials uses {credential}"),
    Row("credentials grant {credential} everyone"),
    Row("credentials withdraw {credential} everyone"),
    Row("credentials rotate {credential}", stdin="a-token"),
    Row("credentials remove {credential} --yes"),
    Row("credentials rekey"),
    Row("credentials key new --print"),
    Row("keys"),
    Row("keys create {new} --role runner"),
    Row("keys list"),
    Row("keys limit {key} --running 5"),
    Row("keys revoke {key}"),
    Row("audit-log"),
    Row("workers", away=NEEDS_REDIS),
    Row("workers list", away=NEEDS_REDIS),
    Row("workers drain {worker}", away=NEEDS_REDIS),
    Row("workers resume {worker}", away=NEEDS_REDIS),
    Row("migrate", away=NEEDS_REDIS),
    Row("topology"),
    Row("settings"),
    Row("doctor", away=1),
)

ELSEWHERE = {"bench": "uses stores of its own in a temporary folder"}
"""Commands that do not open the stores that the settings name, and take too long for a row."""


def command_names(command: Any = RUNE, names: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the names of all commands, such as `workflows show`, and of the groups that are commands too."""
    commands: Mapping[str, Any] = getattr(command, "commands", {})
    if not commands or (names and command.invoke_without_command):
        yield " ".join(names)
    for name in commands:
        yield from command_names(commands[name], (*names, name))


def name_of(row: Row) -> str:
    """Return the name of the command that a row calls."""
    known = set(command_names())
    words = row.words.split()
    return next(name for length in (3, 2, 1) if (name := " ".join(words[:length])) in known)
