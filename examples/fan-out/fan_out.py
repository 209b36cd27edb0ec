# Ten thousand items, each in its own scope, collected in order.

from rune.build import Workflow, aggregator, edit, expr, fn, input, output, split

flow = Workflow("fan-out", name="Fan-out")
with flow:
    start = input("start")
    numbers = split("numbers", input_array=fn.range(10000))
    double = edit(
        "double",
        assignments=[{"name": "value", "value": flow.item * 2}],
        mode="keep_only",
    )
    all_ = aggregator("all")
    done = output(
        "done",
        value={
            "count": fn.len(all_.out),
            "sum": expr("sum([each.value for each in $all])"),
            "first": expr("$all[0].value"),
            "last": fn.last(all_.out).value,
        },
    )

start >> numbers >> double >> all_ >> done
