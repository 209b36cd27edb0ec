# Five ways to handle a failure: retry, ignore, branch, collect, tolerate.

from rune.build import Retry, Workflow, aggregator, edit, expr, fail, input, log, output, split

flow = Workflow("errors-and-retries", name="Errors and retries")
with flow:
    start = input("start")
    # Three attempts, one second and then two seconds apart. All fail, so the error edge is followed.
    flaky = fail(
        "flaky",
        message="the service is down",
        code="SERVICE_DOWN",
        retry=Retry(3, initial_delay=1, backoff=2, jitter=False),
    )
    never = log("never", message="it worked")
    note = edit(
        "note",
        assignments=[{"name": "reason", "value": f"{flow.error.code}: {flow.error.message}"}],
        mode="keep_only",
    )
    # Fails and is ignored: the success edge is followed, and $error contains the error.
    optional = fail("optional", message="nobody minds", error="ignore")
    numbers = split("numbers", input_array=[6, 3, 0, 2])
    # Division by zero. Inside a split only the failed item ends; it becomes an error in the list.
    divide = edit(
        "divide",
        assignments=[{"name": "quotient", "value": expr("12 / $item")}],
        mode="keep_only",
    )
    # Inside a split a failure can also be retried and then ignored: the item continues.
    shaky = fail(
        "shaky",
        message=f"item {flow.index} is shaky",
        retry=Retry(2, initial_delay=0.5, jitter=False),
        error="ignore",
    )
    keep = edit(
        "keep",
        assignments=[
            {"name": "quotient", "value": divide.out.quotient},
            {"name": "warning", "value": flow.error.message},
        ],
        mode="keep_only",
    )
    quotients = aggregator("quotients", tolerate=1)
    done = output(
        "done",
        value={
            "rescued": note.out.reason,
            "good": expr("[each.quotient for each in $quotients if not exists(each.error)]"),
            "bad": expr("[each.error.code for each in $quotients if exists(each.error)]"),
            "warnings": expr("len([each for each in $quotients if exists(each.warning)])"),
        },
    )

start >> flaky >> never
flaky.on_error.named("rescue") >> note
note >> optional >> numbers >> divide >> shaky >> keep >> quotients >> done
