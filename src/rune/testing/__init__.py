"""For tests of workflows, of node types and of adapters: a harness, a clock that is told the time, contract suites."""
