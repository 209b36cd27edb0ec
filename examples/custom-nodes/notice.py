# Three custom node types, placed in a workflow with `.node`.

from acme_nodes import checksum, document, slug

from rune.build import Workflow, input, output

flow = Workflow(
    "notice",
    name="A notice with a checksum",
    inputs={
        "type": "object",
        "required": ["title", "lines"],
        "properties": {
            "title": {"type": "string"},
            "lines": {"type": "array", "items": {"type": "string"}},
        },
    },
)
with flow:
    start = input("start")
    address = slug.node("address", text=flow.trigger.title)
    file = document.node("file", title=flow.trigger.title, lines=flow.trigger.lines)
    total = checksum.node("sum", file=file.out, timeout=30)
    done = output(
        "done",
        value={
            "address": f"/notices/{address.out}",
            "file": f"{file.out.name}",
            "size": f"{total.out.size}",
            "checksum": f"{total.out.checksum}",
        },
    )

start >> address >> file >> total >> done
