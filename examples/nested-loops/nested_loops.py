# A list of customers, each with a list of orders: a split inside a split, with two aggregators.

from rune.build import Workflow, aggregator, edit, expr, input, output, split

flow = Workflow(
    "nested-loops",
    name="Nested loops",
    inputs={"type": "object", "required": ["customers"]},
)
with flow:
    start = input("start")
    customers = split("customers", input_array=flow.trigger.customers)
    # $item is the customer here, and the order inside the inner split.
    customer = edit(
        "customer",
        assignments=[
            {"name": "name", "value": flow.item.name},
            {"name": "rebate", "value": expr("$item.rebate ?? 0")},
        ],
        mode="keep_only",
    )
    orders = split("orders", input_array=flow.item.orders, max_in_flight=2)
    price = edit(
        "price",
        assignments=[
            {"name": "line", "value": f"{customer.out.name}/{flow.index}"},
            {"name": "price", "value": expr("$item.pieces * $item.each * (1 - $customer.rebate)")},
        ],
        mode="keep_only",
    )
    priced = aggregator("priced")
    bill = edit(
        "bill",
        assignments=[
            {"name": "name", "value": customer.out.name},
            {"name": "lines", "value": expr("[each.line for each in $priced]")},
            {"name": "total", "value": expr("sum([each.price for each in $priced])")},
        ],
        mode="keep_only",
    )
    bills = aggregator("bills")
    done = output("done", value=bills.out)

start >> customers >> customer >> orders >> price >> priced >> bill >> bills >> done
