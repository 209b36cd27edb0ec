"""Drawings of workflows."""
