"""Telemetry: what is counted, traced and logged of the engine. It decides nothing and may be lost."""
