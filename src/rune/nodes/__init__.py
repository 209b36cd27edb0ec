"""Node types: declarations and behaviours. They know nothing of the engine."""
