# A large order needs a person's approval. While it waits, possibly for days, it uses no memory.

from rune.build import Workflow, conditional, edit, expr, input, output, wait

flow = Workflow(
    "approval",
    name="Approval",
    inputs={
        "type": "object",
        "required": ["order", "amount"],
        "properties": {"order": {"type": "integer"}, "amount": {"type": "number"}},
    },
)
with flow:
    start = input("start")
    large = conditional("large", expression=flow.trigger.amount > 1000)
    # Waits for the signal `decision`. After three days without one the edge `expired` is followed.
    ask = wait("ask", resume="signal", name_="decision", timeout=259200)
    granted = conditional("granted", expression=ask.out.approved)
    ship = edit(
        "ship",
        assignments=[
            {"name": "order", "value": flow.trigger.order},
            {"name": "shipped", "value": True},
            {
                "name": "because",
                "value": expr("'approved by ' + $ask.by if exists($ask.by) else 'small'"),
            },
        ],
        mode="keep_only",
    )
    refuse = edit(
        "refuse",
        assignments=[
            {"name": "order", "value": flow.trigger.order},
            {"name": "shipped", "value": False},
            {
                "name": "because",
                "value": expr("'refused by ' + $ask.by if exists($ask.by) else 'nobody answered'"),
            },
        ],
        mode="keep_only",
    )
    done = output("done", value=flow.payload)

start >> large
large["true"] >> ask
large["false"] >> ship
ask >> granted
ask.on_error.named("expired") >> refuse
granted["true"] >> ship
granted["false"] >> refuse
[ship, refuse] >> done
