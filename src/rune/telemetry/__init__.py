"""Telemetry: metrics, traces and logs of the engine. It affects no decision and may be lost."""
