# Greets the person named in the start payload, with a text that depends on the hour.

from rune.build import Workflow, conditional, edit, expr, input, output

flow = Workflow(
    "hello",
    name="Hello",
    inputs={
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "hour": {"type": "integer", "minimum": 0, "maximum": 23},
        },
    },
)
with flow:
    start = input("start")
    early = conditional("early", expression="($trigger.hour ?? 9) < 12")
    morning = edit(
        "morning",
        assignments=[{"name": "greeting", "value": f"Good morning, {flow.trigger.name}!"}],
        mode="keep_only",
    )
    evening = edit(
        "evening",
        assignments=[{"name": "greeting", "value": f"Good evening, {flow.trigger.name}!"}],
        mode="keep_only",
    )
    # Two edges lead here and only one of them is live: the node does not wait for the dead one and runs once.
    done = output("done", value=expr("$json.greeting"))

start >> early
early["true"] >> morning
early["false"] >> evening
[morning, evening] >> done
