"""The rules of the engine: pure functions over immutable definitions and foldable state."""
