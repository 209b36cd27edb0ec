"""Workflow documents: read from YAML or JSON, checked against their input schema."""
