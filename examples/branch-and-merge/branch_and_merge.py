# A switch takes one of three branches, another branch runs in parallel, and a merge waits for the branches taken.

from rune.build import Workflow, edit, expr, input, merge, output, switch

flow = Workflow(
    "branch-and-merge",
    name="Branch and merge",
    inputs={
        "type": "object",
        "required": ["amount", "country"],
        "properties": {"amount": {"type": "number", "minimum": 0}, "country": {"type": "string"}},
    },
)
with flow:
    order = input("order")
    size = switch(
        "size",
        rules=[
            {"value": flow.trigger.amount, "operator": ">=", "compare": 1000},
            {"value": flow.trigger.amount, "operator": ">=", "compare": 100},
        ],
    )
    large = edit(
        "large",
        assignments=[{"name": "discount", "value": 0.1}, {"name": "approval", "value": "manager"}],
        mode="keep_only",
    )
    medium = edit("medium", assignments=[{"name": "discount", "value": 0.05}], mode="keep_only")
    small = edit("small", assignments=[{"name": "discount", "value": 0}], mode="keep_only")
    # Parallel to the switch: this branch is always taken.
    tax = edit(
        "tax",
        assignments=[{"name": "rate", "value": expr("0.19 if $trigger.country == 'DE' else 0.2")}],
        mode="keep_only",
    )
    # Four edges lead here. Two of the three from the switch are dead, so the merge waits for two.
    terms = merge("terms", mode="combine")
    done = output(
        "done",
        value={
            "total": expr("round($trigger.amount * (1 - $terms.discount) * (1 + $terms.rate), 2)"),
            "approval": expr("$terms.approval ?? 'none'"),
        },
    )

order >> [size, tax]
size.case(0) >> large
size.case(1) >> medium
size.fallback >> small
[large, medium, small, tax] >> terms
terms >> done
