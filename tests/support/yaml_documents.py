"""How the server reads documents: `python -m tests.support.yaml_documents` reads one `{"text", "format"}` per line and
prints one line for each: its JSON with sorted keys, or `refused`."""

from __future__ import annotations

import json
import sys

from rune.documents.textedit import TextEditError
from rune.documents.textedit.document import decode


def main() -> None:
    for line in sys.stdin:
        case = json.loads(line)
        try:
            value = decode(case["text"], case["format"])
        except TextEditError:
            sys.stdout.write("refused\n")
        else:
            sys.stdout.write(
                json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True) + "\n"
            )


if __name__ == "__main__":
    main()
