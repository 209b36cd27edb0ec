"""Random walk of an execution through core and scripts: results, failures, waits, signals, pauses and duplicates."""

from __future__ import annotations

from random import Random
from typing import Any

from redis import Redis

from rune.core.execution.decision import Decision
from rune.core.execution.fact import NodeResult, PauseChanged, RaceWinner, SignalReceived
from rune.core.execution.outcome import Cancelled, Error, Failure, FanOut, Outcome, Output, Suspend
from rune.core.execution.step import decision_for_fact, step, step_unrun
from rune.core.execution.token import Token, TokenPurpose
from rune.core.limits import LIMITS, Limits
from rune.core.plan.model import Plan
from tests.integration.redis_scripts.mirror import Mirror

STEPS = 400
NAMES = ("go", "other")


class RandomWalk:
    """Makes every choice from its random generator."""

    def __init__(self, redis: Redis, plan: Plan, rng: Random, limits: Limits = LIMITS) -> None:
        self.mirror = Mirror.start(redis, plan, limits=limits)
        self.plan = plan
        self.rng = rng
        self.decisions: list[Decision] = []
        self.pauses = 0
        self.paused = False
        self.signals = 0

    def run(self, steps: int = STEPS) -> None:
        for _ in range(steps):
            if self.mirror.finish is not None and self.rng.random() < 0.3:
                break
            if not self._step():
                break

    def _step(self) -> bool:
        roll = self.rng.random()
        if roll < 0.05 and self.decisions:
            self.mirror.decide(self.rng.choice(self.decisions))
        elif roll < 0.08:
            self._toggle_pause()
        elif roll < 0.13:
            self._signal()
        elif roll < 0.15:
            self._decide_unknown()
        elif roll < 0.3 and self._fire():
            return True
        else:
            return self._run_token() or self._fire() or self._unblock()
        return True

    def _unblock(self) -> bool:
        """End the pause or send a signal when nothing else can move."""
        if self.paused:
            self._toggle_pause()
            return True
        if self.mirror.state.waiting_for_signal:
            self._signal()
            return True
        return False

    def _toggle_pause(self) -> None:
        self.pauses += 1
        self.paused = not self.paused
        fact = PauseChanged(self.mirror.now, self.pauses, self.paused)
        self.mirror.change_pause(fact)
        if self.rng.random() < 0.2:
            self.mirror.change_pause(fact)

    def _signal(self) -> None:
        self.signals += 1
        listening = self.mirror.state.waiting_for_signal
        names = [*listening, *NAMES]
        name = self.rng.choice(names)
        paths = [path for path, _ in listening.get(name, {})]
        path = self.rng.choice(paths) if paths and self.rng.random() < 0.5 else None
        fact = SignalReceived(self.mirror.now, f"s{self.signals}", name, path)
        self.mirror.signal(fact)
        if self.rng.random() < 0.2:
            self.mirror.signal(fact)

    def _decide_unknown(self) -> None:
        node = self.rng.randrange(len(self.plan.nodes))
        paths = [*self.mirror.state.scopes, (0, 0), (self.rng.randrange(len(self.plan.nodes)), 9_999)]
        path = self.rng.choice(paths)
        scope = self.mirror.state.scopes.get(path)
        if scope is None or (
            node not in scope.live and node not in scope.done and not self._has_timeout(node)
        ):
            self.mirror.decide(
                Decision(node, path, self.mirror.now, NodeResult(node, path, self.mirror.now, "ok"))
            )

    def _has_timeout(self, node: int) -> bool:
        return self.plan.nodes[node].timeout is not None

    def _fire(self) -> bool:
        timer = self.mirror.first_timer()
        if timer is None or (self.paused and timer.kind in ("join", "deadline") and self.rng.random() < 0.5):
            return False
        if timer.kind == "finish" and self.rng.random() < 0.5:
            return False
        if self.mirror.fire(timer).late and self.rng.random() < 0.5:
            self.mirror.note_late()  # otherwise it fires again
        return True

    def _run_token(self) -> bool:
        tokens = self.mirror.emitted
        while tokens:
            token = tokens.pop(self.rng.randrange(len(tokens)))
            if self.rng.random() < 0.05:
                tokens.append(token)
            verdict = self.mirror.claim(token, leased=self.rng.random() < 0.3)
            if verdict in ("run", "cancelled"):
                self._finish(token, verdict)
                return True
        return False

    def _finish(self, token: Token, verdict: str) -> None:
        self.mirror.now += self.rng.choice((0, 0, 1, 50, 3_000))
        now = self.mirror.now
        scope = self.mirror.state.scopes[token.path]
        live = scope.live.get(token.node)
        token = live.token if live is not None else token
        if token.fate is not TokenPurpose.RUN:
            self._decide(step_unrun(self.plan, token, now))
            return
        node = self.plan.nodes[token.node]
        if node.needs_choice and verdict == "run" and self.rng.random() < 0.8:
            chosen = RaceWinner(token.node, token.path, now, token.arrived, token.payload, token.error)
            self._decide(decision_for_fact(self.plan, chosen))
        outcome = Cancelled() if verdict == "cancelled" else self._outcome(token)
        self._decide(step(self.plan, token, outcome, now, self.mirror.state.limits))

    def _decide(self, decision: Decision) -> None:
        self.mirror.decide(decision)
        self.decisions.append(decision)
        if decision.fact is not None and self.rng.random() < 0.1:
            self.mirror.decide(decision)

    def _outcome(self, token: Token) -> Outcome:
        node = self.plan.nodes[token.node]
        if self.rng.random() < 0.12:
            details: dict[str, Any] = {"retry_at": self.mirror.now + 7_000} if self.rng.random() < 0.3 else {}
            return Failure(Error(self.rng.choice(("BROKEN", "ODD")), "it broke — “quoted”", details))
        if node.type.suspends and not token.resumed and self.rng.random() < 0.8:
            return self._suspend()
        if node.fans_out:
            return FanOut(self.rng.choice((0, 1, 2, 3, 3, 5, 9)), None)
        return Output(None, self.rng.choice(list(node.by_outlet)))

    def _suspend(self) -> Suspend:
        until = self.mirror.now + self.rng.choice((0, 1, 500, 20_000))
        name = self.rng.choice((*NAMES, "child:1"))
        return self.rng.choice((Suspend(until), Suspend(None, name), Suspend(until, name)))
