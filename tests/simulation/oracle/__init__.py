"""A second opinion on what a workflow means: it shares no code with the engine it is compared with."""
