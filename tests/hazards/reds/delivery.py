"""C and F: delivery, waits and timers."""

from __future__ import annotations

from tests.hazards.reds.patch import NO_SECOND_TRY, RUNS_THE_DONE, Red, red

_C = "test_hazards_c.py::test_h_"
_F = "test_hazards_f.py::test_h_"

UNKNOWN_IS_TRIED_AGAIN = (
    "runtime/attempt.py",
    "raise Unservable(unknown.message, code=unknown.code) from None",
    "raise",
)

TABLE: dict[str, Red] = {
    "c3": red(
        _C + "c3_a_message_that_cannot_be_handled_ends_its_execution",
        (
            "runtime/worker.py",
            'await self._endings.finish(delivery.execution, Finish("failed", failure), self._clock.now())',
            "await self._queue.ack(delivery)",
        ),
    ),
    "c4": red(
        _C + "c4_a_message_that_fails_comes_back_later_and_not_for_ever",
        ("runtime/failures.py", "return DELAYS[count]", "return 0.0"),
    ),
    "c5": red(
        _C + "c5_what_is_not_json_fails_its_node_once",
        ("nodes/boundary.py", "if not math.isfinite(value):", "if False:"),
    ),
    "c6": red(
        _C + "c6_an_error_in_an_expression_is_its_node_s",
        (
            "runtime/runner.py",
            "node.parameters.resolve(scope))\n            except RuneError as error:",
            "node.parameters.resolve(scope))\n            except OSError as error:",
        ),
        NO_SECOND_TRY,
    ),
    "c7": red(
        _C + "c7_a_stop_fails_no_node",
        (
            "runtime/engine.py",
            "            await self._worker.drain(grace)\n            for",
            "            for",
        ),
    ),
    "c7-sigterm": red(
        "test_hazards_h.py::test_h_c7_sigterm_during_a_request_fails_no_node",
        (
            "nodes/registry.py",
            "if isinstance(error, asyncio.CancelledError) and _is_cancelled():",
            "if False:",
        ),
    ),
    "c8": red(
        _C + "c8_a_message_delivered_again_runs_nothing_again",
        RUNS_THE_DONE,
    ),
    "c10": red(
        _C + "c10_a_slow_node_holds_one_slot_and_nothing_else",
        ("runtime/worker.py", "for _ in range(self._slots):", "for _ in range(1):"),
        hangs=True,
    ),
    "c12": red(
        _C + "c12_a_message_carries_neither_definition_nor_context",
        (
            "runtime/attempt.py",
            "self._queue.send(execution, left,",
            "self._queue.send(execution, [replace(each, signal=str(book.start)) for each in left],",
        ),
    ),
    "c14": red(
        _C + "c14_events_are_numbered_without_gaps_in_the_order_of_the_journal",
        ("runtime/history.py", "(self._event(number, each) for", "(self._event(each.fact.at, each) for"),
    ),
    "c15": red(
        _C + "c15_a_message_of_nothing_known_ends_with_its_last_try",
        UNKNOWN_IS_TRIED_AGAIN,
        ("runtime/failures.py", "if count >= len(DELAYS):", "if False:"),
        ("runtime/failures.py", "return DELAYS[count]", "return DELAYS[-1]"),
    ),
    "f1": red(
        _F + "f1_a_timer_survives_the_process",
        ("core/fold.py", "applied.armed = timers_of(self._plan, self.state)", "applied.armed = []"),
        hangs=True,
    ),
    "f3": red(
        _F + "f3_timers_have_names_and_a_wait_resumes_once",
        ("runtime/runner.py", 'call.timer_id = f"wait:{name}"', 'call.timer_id = f"wait:{id(call)}"'),
    ),
    "f4": red(
        _F + "f4_waits_that_end_a_split_complete_once",
        (
            "core/transition.py",
            "                del self.state.scopes[scope.path]\n",
            '                del self.state.scopes[scope.path]\n                self.finish(Finish("completed"))\n',
        ),
    ),
    "f5": red(
        _F + "f5_timers_of_an_ended_execution_do_nothing",
        (
            "core/control.py",
            'if state.ended or state.finish is not None:\n        return "void"',
            "if False:\n        pass",
        ),
        (
            "adapters/embedded/state.py",
            "        running = self._running.pop(execution, None)\n        if running is not None:\n            end(",
            "        running = None\n        if running is not None:\n            end(",
        ),
    ),
    "f8-fractions": red(
        _F + "f8_fractions_of_a_unit_count",
        ("nodes/control/wait.py", "round(min(parameters.amount,", "round(min(int(parameters.amount),"),
    ),
    "f8-overflow": red(
        _F + "f8_an_amount_beyond_all_dates_fails_its_node",
        (
            "nodes/control/wait.py",
            'raise NodeFailure("the wait is longer than a century", code="LIMIT_EXCEEDED")',
            "due = call.now",
        ),
    ),
    "f9": red(
        _F + "f9_more_timers_than_a_batch_all_fire",
        (
            "adapters/embedded/state.py",
            "while len(found) < limit and (ringing := self._timers.ring(now)) is not None:\n",
            "while (ringing := self._timers.ring(now)) is not None:\n"
            "            if len(found) >= limit:\n                continue\n",
        ),
    ),
    "f11": red(
        _F + "f11_many_due_timers_do_not_starve_fresh_work",
        (
            "runtime/scheduler.py",
            "                busy = await self._turn()\n",
            "                while busy := await self._turn():\n                    pass\n",
        ),
        ("ports/queue.py", "return min(own + items, LOWEST)", "return own"),
    ),
}
