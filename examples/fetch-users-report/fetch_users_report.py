# Fetches users, then the orders of each user, and sends a report by mail.

from rune.build import Retry, Workflow, aggregator, edit, expr, http, input, output, smtp, split

flow = Workflow(
    "fetch-users-report",
    name="Users and their orders",
    inputs={
        "type": "object",
        "required": ["base_url", "to"],
        "properties": {"base_url": {"type": "string"}, "to": {"type": "string"}},
    },
)
with flow:
    start = input("start")
    users = http(
        "users",
        url=f"{flow.trigger.base_url}/users",
        pagination={"style": "next", "path": "paging.next", "items": "users"},
        raise_on_status="4xx,5xx",
        retry=Retry(4, initial_delay=0.2),
    )
    each = split("each", input_array=users.out.body, max_in_flight=4)
    orders = http(
        "orders",
        url=f"{flow.trigger.base_url}/users/{flow.item.id}/orders",
        raise_on_status="4xx,5xx",
        retry=Retry(4, initial_delay=0.2),
    )
    line = edit(
        "line",
        assignments=[
            {"name": "name", "value": flow.item.name},
            {"name": "count", "value": expr("len($orders.body)")},
            {
                "name": "total",
                "value": expr("round(sum([each.total for each in $orders.body]), 2)"),
            },
        ],
        mode="keep_only",
    )
    all_ = aggregator("all")
    mail = smtp(
        "mail",
        to=flow.trigger.to,
        from_="Reports <reports@shop.example>",
        subject="Orders of {{ len($all) }} users",
        body=(
            '{{ join([each.name + ": " + str(each.count) + " orders, " + str(each.total) '
            'for each in $all], "\\n") }}\n'
            "\n"
            "In all: {{ round(sum([each.total for each in $all]), 2) }}\n"
        ),
        attachments=[
            {
                "filename": "orders.csv",
                "content": (
                    "{{ join(['name,orders,total'] + [join([each.name, str(each.count), "
                    "str(each.total)], ',') for each in $all], '\n"
                    "') }}\n"
                ),
            },
        ],
    )
    done = output(
        "done",
        value={
            "users": expr("len($all)"),
            "total": expr("round(sum([each.total for each in $all]), 2)"),
            "accepted": mail.out.accepted,
        },
    )

start >> users >> each >> orders >> line >> all_ >> mail >> done
