"""Pictures of a workflow."""
