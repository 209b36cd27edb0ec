# A report in three stages. Each can be rerun without the stages before it.

from rune.build import Workflow, aggregator, datetime, edit, expr, input, output, split, wait

flow = Workflow(
    "nightly-report",
    name="Nightly report",
    inputs={"type": "object", "required": ["day"], "properties": {"day": {"type": "string"}}},
)
with flow:
    start = input("start")
    # The shops send their figures after closing time.
    figures = wait("figures", resume="signal")
    shops = split("shops", input_array=figures.out)
    turnover = edit(
        "turnover",
        assignments=[
            {"name": "shop", "value": flow.item.shop},
            {"name": "turnover", "value": expr("sum($item.sales)")},
        ],
        mode="keep_only",
    )
    table = aggregator("table")
    # Not pure, because it reads the clock: each run gives another result.
    written = datetime("written", operation="now")
    report = output(
        "report",
        value={
            "day": flow.trigger.day,
            "written_at": written.out.iso,
            "total": expr("sum([each.turnover for each in $table if exists(each.turnover)])"),
            "missing": expr(
                "[$figures[i].shop for i in range(len($table)) if exists($table[i].error)]",
            ),
        },
    )

start >> figures >> shops >> turnover >> table >> written >> report
