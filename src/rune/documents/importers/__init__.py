"""Import workflows of other tools, with a report in which nothing is dropped in silence."""

from __future__ import annotations

from rune.documents.importers.draft import Entry, Import, Report
from rune.documents.importers.importer import import_document

__all__ = ["Entry", "Import", "Report", "import_document"]
