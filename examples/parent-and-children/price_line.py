# The price of one line of an order. A separate deployed workflow, so that others can use it.

from rune.build import Workflow, edit, expr, fail, input, output, switch

flow = Workflow(
    "price-line",
    name="Price of a line",
    inputs={
        "type": "object",
        "required": ["article", "pieces"],
        "properties": {"article": {"type": "string"}, "pieces": {"type": "integer", "minimum": 1}},
    },
)
with flow:
    start = input("start")
    known = switch(
        "known",
        rules=[
            {"value": flow.trigger.article, "operator": "==", "compare": "pen"},
            {"value": flow.trigger.article, "operator": "==", "compare": "book"},
        ],
    )
    pen = edit("pen", assignments=[{"name": "each", "value": 2}], mode="keep_only")
    book = edit("book", assignments=[{"name": "each", "value": 15}], mode="keep_only")
    unknown = fail(
        "unknown",
        message=f"nobody sells `{flow.trigger.article}`",
        code="UNKNOWN_ARTICLE",
    )
    done = output(
        "done",
        value={"article": flow.trigger.article, "price": expr("$json.each * $trigger.pieces")},
    )

start >> known
known.case(0) >> pen
known.case(1) >> book
known.fallback >> unknown
[pen, book] >> done
