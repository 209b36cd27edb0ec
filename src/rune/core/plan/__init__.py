"""Compile a definition into a plan for execution."""
