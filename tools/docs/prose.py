"""Prints long sentences of the pages that are written by hand, as warnings: `python -m tools.docs.prose`.

A sentence in a table, a heading or a fence is not counted. Nothing fails: some long sentences are clear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tools.docs.markdown import FENCE, LINK, front_matter
from tools.docs.staging import DOCS, ROOT

MAX_WORDS = 40
_END = re.compile(r"(?<=[.!?:;])\s+")


def long_sentences(text: str, most: int = MAX_WORDS) -> Iterator[tuple[int, str]]:
    """Yield the number of words and the text of each sentence with more than `most` words."""
    body = FENCE.sub("", front_matter(text)[1])
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", body):
        if block.lstrip().startswith(("#", "|", "<!--")):
            continue
        plain = LINK.sub(lambda link: link[1].strip("![]"), re.sub(r"`[^`]*`", "code", block))
        for sentence in _END.split(" ".join(plain.split())):
            words = len(sentence.split())
            if words > most:
                yield words, sentence


def main() -> None:
    pages = [ROOT / "README.md", *(each for each in sorted(DOCS.rglob("*.md")) if "adr" not in each.parts)]
    for page in pages:
        for words, sentence in long_sentences(page.read_text(encoding="utf-8")):
            place = page.relative_to(ROOT).as_posix()
            print(f"warning: {place}: a sentence of {words} words: {sentence[:70]} …")


if __name__ == "__main__":
    main()
