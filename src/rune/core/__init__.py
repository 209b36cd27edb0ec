"""The pure core of the engine: definitions, plans, expressions and the rules of an execution, without I/O."""
