"""Node types: their declarations and behaviour, independent of the engine."""
