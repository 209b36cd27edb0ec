# An order: a separate child execution prices each line, all in parallel.

from rune.build import Workflow, aggregator, expr, input, output, split, workflow

flow = Workflow(
    "order",
    name="Order",
    inputs={"type": "object", "required": ["lines"], "properties": {"lines": {"type": "array"}}},
)
with flow:
    start = input("start")
    lines = split("lines", input_array=flow.trigger.lines)
    # Starts `price-line` with the item as its payload, and continues with its output.
    price = workflow("price", workflow="price-line", input=flow.item)
    prices = aggregator("prices")
    done = output(
        "done",
        value={
            "total": expr("sum([each.price for each in $prices if exists(each.price)])"),
            "refused": expr(
                "[each.error.details.error.code for each in $prices if exists(each.error)]",
            ),
        },
    )

start >> lines >> price >> prices >> done
