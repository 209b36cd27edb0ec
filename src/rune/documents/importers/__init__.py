"""Import workflows of other tools, with a report in which nothing is dropped in silence."""

from __future__ import annotations

from rune.documents.importers.importer import import_document
from rune.documents.importers.report import Entry, Import, Report

__all__ = ["Entry", "Import", "Report", "import_document"]
