"""Live hints: what runs now, reported by workers to processes that follow."""
