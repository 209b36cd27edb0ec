"""Control-flow node types: triggers, branching, fan-out, joins, waits and outputs."""
