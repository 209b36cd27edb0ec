# Three branches race for one result. The first arrival wins, and the others are cancelled.

from rune.build import Workflow, edit, expr, input, merge, output, wait

flow = Workflow(
    "race",
    name="Race",
    inputs={
        "type": "object",
        "properties": {"near": {"type": "number"}, "far": {"type": "number"}},
    },
)
with flow:
    start = input("start")
    # Placeholders for two slow services.
    near = wait("near", amount=expr("$trigger.near ?? 2"))
    from_near = edit("from_near", assignments=[{"name": "from", "value": "near"}], mode="keep_only")
    far = wait("far", amount=expr("$trigger.far ?? 3600"))
    from_far = edit("from_far", assignments=[{"name": "from", "value": "far"}], mode="keep_only")
    # A person may answer with a signal.
    answer = wait("answer", resume="signal")
    first = merge("first", wait_mode="wait_for_any", cancel_losers=True)
    done = output("done", value=first.out)

start >> [near, far, answer]
near >> from_near
far >> from_far
[from_near, from_far, answer] >> first
first >> done
