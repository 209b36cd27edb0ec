"""Edits of workflow documents as text: comments, order and style of everything else stay as they are.

    edited = update(text, value)                    # from plain data
    edited = act(text, {"do": "set", "path": ["nodes", 0, "timeout"], "value": 30})

A document is never parsed, changed and printed: an edit replaces the characters of the value concerned, found by the
positions of the parsed text.
"""

from rune.documents.textedit.actions import act
from rune.documents.textedit.document import SourceText, TextEdit, TextEditError, apply_edits
from rune.documents.textedit.updates import update

__all__ = ["SourceText", "TextEdit", "TextEditError", "act", "apply_edits", "update"]
