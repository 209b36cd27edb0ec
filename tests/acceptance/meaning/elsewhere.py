"""Rows whose promise another test keeps: it needs a server, a broker, a clock of its own or several processes."""

from __future__ import annotations

ELSEWHERE: dict[str, tuple[str, str]] = {
    "type:http": ("unit/nodes/io/test_http.py", "test_raise_on_status_decides_failure"),
    "type:call_external_service": ("unit/nodes/io/test_http.py", "test_raise_on_status_decides_failure"),
    "type:smtp": ("unit/nodes/io/test_smtp.py", "test_mail_is_delivered_with_headers_and_parts"),
    "type:llm_service": ("unit/nodes/io/test_llm_service.py", "test_prompt_returns_text_and_usage"),
    "type:webhook": ("integration/triggers/test_webhooks.py", "test_webhook_follows_stable_alias"),
    "type:schedule": ("integration/triggers/test_schedules.py", "test_interval_ticks_do_not_drift"),
    "overlap:skip": ("integration/triggers/test_schedules.py", "test_overlap_skip_skips_ticks_while_running"),
    "overlap:queue": (
        "integration/triggers/test_schedules.py",
        "test_overlap_queue_starts_ticks_one_after_another",
    ),
    "overlap:cancel": (
        "integration/triggers/test_schedules.py",
        "test_overlap_cancel_cancels_previous_execution",
    ),
    "overlap:allow": ("integration/triggers/test_schedules.py", "test_overlap_allow_runs_ticks_in_parallel"),
    "catch_up:none": ("integration/triggers/test_schedules.py", "test_missed_ticks_follow_catch_up_setting"),
    "catch_up:latest": (
        "integration/triggers/test_schedules.py",
        "test_missed_ticks_follow_catch_up_setting",
    ),
    "catch_up:all": ("integration/triggers/test_schedules.py", "test_missed_ticks_follow_catch_up_setting"),
    "node:at_most_once": (
        "integration/embedded/test_operation_crashes.py",
        "test_at_most_once_node_runs_at_most_once_after_kill",
    ),
    "node:credentials": (
        "unit/nodes/io/test_credentials.py",
        "test_smtp_credential_sets_server_login_and_sender",
    ),
    "node:queue": ("integration/cluster/test_workers.py", "test_node_runs_only_on_workers_of_its_queue"),
    "settings:priority": ("contract/suites/queue.py", "test_high_priority_is_delivered_first"),
    "settings:executor": (
        "integration/cluster/test_rabbitmq_commands.py",
        "test_start_for_legacy_engine_is_published",
    ),
    "settings:on_failure": (
        "integration/triggers/test_hooks.py",
        "test_failed_execution_starts_its_handler_once",
    ),
    "settings:expect_within": (
        "integration/triggers/test_hooks.py",
        "test_late_execution_starts_its_handler_once_and_goes_on",
    ),
    "settings:on_late": (
        "integration/triggers/test_hooks.py",
        "test_late_execution_starts_its_handler_once_and_goes_on",
    ),
    "settings:expect_every": (
        "integration/triggers/test_missing.py",
        "test_handler_starts_once_for_each_period_without_completion",
    ),
    "settings:on_missing": (
        "integration/triggers/test_missing.py",
        "test_expectation_follows_the_deployed_version",
    ),
    "settings:callable_by": (
        "acceptance/access/test_children.py",
        "test_version_starts_only_children_of_its_deployer",
    ),
    "command:audit-log --follow": (
        "acceptance/access/test_commands.py",
        "test_keys_and_log_commands_against_server",
    ),
    "command:handlers set --on-late": (
        "acceptance/cli/test_handlers.py",
        "test_default_handlers_are_set_shown_and_removed",
    ),
    "command:bulk start --since": ("acceptance/cli/test_views.py", "test_bulk_retry_starts_new_executions"),
    "command:bulk start --stuck": (
        "integration/history/test_stuck.py",
        "test_execution_without_progress_is_stuck",
    ),
    "command:bulk start --until": (
        "acceptance/cli/test_read_commands.py",
        "test_list_filters_by_label_age_and_version",
    ),
    "command:dlq requeue --wait": (
        "acceptance/cli/test_owner_operations.py",
        "test_dead_letter_is_listed_shown_and_requeued",
    ),
    "command:keys create --days": ("acceptance/access/test_keys.py", "test_expired_key_is_rejected"),
    "command:keys create --running": ("acceptance/api/test_limits.py", "test_key_limits_apply_to_one_key"),
    "command:keys limit --running": (
        "acceptance/api/test_limits.py",
        "test_key_limits_change_takes_effect_immediately",
    ),
    "command:list --since": (
        "acceptance/cli/test_read_commands.py",
        "test_list_filters_by_label_age_and_version",
    ),
    "command:list --stuck": ("integration/history/test_stuck.py", "test_execution_without_progress_is_stuck"),
    "command:list --until": (
        "acceptance/cli/test_read_commands.py",
        "test_list_filters_by_label_age_and_version",
    ),
    "command:logs --follow": (
        "acceptance/cli/test_logs.py",
        "test_follow_prints_lines_of_running_node_until_the_end",
    ),
    "command:prune --vacuum": ("acceptance/cli/test_gc.py", "test_vacuum_rewrites_file_without_auto_vacuum"),
    "command:prune --older-than": ("acceptance/cli/test_gc.py", "test_workflow_and_status_filter_executions"),
    "command:rerun --wait": (
        "acceptance/cli/test_owner_operations.py",
        "test_rerun_of_edited_file_and_start_with_pins",
    ),
    "command:retry --wait": (
        "acceptance/cli/test_owner_operations.py",
        "test_retry_and_rerun_keep_successful_results",
    ),
    "command:run --fake-time": (
        "acceptance/meaning/test_virtual_time.py",
        "test_deadline_wins_against_slower_child",
    ),
    "command:serve worker --slots": (
        "acceptance/meaning/test_table.py",
        "test_slots_bound_the_nodes_that_run_at_once",
    ),
    "command:start --fake-time": (
        "acceptance/meaning/test_virtual_time.py",
        "test_deadline_wins_against_slower_child",
    ),
    "command:start --wait": ("acceptance/api/test_commands.py", "test_start_wait_exits_like_run"),
    "command:stats --since": ("acceptance/cli/test_views.py", "test_stats_count_by_status_and_workflow"),
    "command:triggers preview --count": (
        "acceptance/cli/test_views.py",
        "test_schedule_preview_prints_times_or_what_is_wrong",
    ),
    "command:triggers preview --timezone": (
        "acceptance/cli/test_views.py",
        "test_schedule_preview_prints_times_or_what_is_wrong",
    ),
    "command:workflows limit --running": (
        "acceptance/api/test_limits.py",
        "test_running_limit_covers_starts_hooks_and_retries",
    ),
    "command:workflows limit --waiting": (
        "acceptance/api/test_limits.py",
        "test_start_is_rejected_while_queue_is_too_long",
    ),
}
