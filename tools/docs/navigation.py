"""The order of the pages: tutorials, guides, reference, explanation.

Many files are in `docs/` itself; the site has them in the folder of their kind. An entry is a page, a folder of
generated pages (`reference/nodes/`), or a title with its entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

Entry: TypeAlias = "str | tuple[str, tuple[Entry, ...]]"

NAVIGATION: tuple[Entry, ...] = (
    "index.md",
    (
        "Start",
        (
            "start/first-workflow.md",
            "start/branch-and-join.md",
            "start/ten-thousand-items.md",
            "start/wait-for-a-person.md",
            "start/your-own-node.md",
            "start/test-it.md",
            "start/python.md",
            "start/with-curl.md",
            "start/from-n8n.md",
            "start/a-cluster-on-one-machine.md",
            ("Examples", ("examples/",)),
        ),
    ),
    (
        "Guides",
        (
            (
                "Author",
                (
                    "guides/author/call-an-api.md",
                    "guides/author/page-through-results.md",
                    "guides/author/fan-out-within-a-window.md",
                    "guides/author/tolerate-failures.md",
                    "guides/author/race.md",
                    "guides/author/retry-well.md",
                    "guides/author/secrets.md",
                    "guides/author/approvals.md",
                    "guides/author/version-and-roll-out.md",
                    "guides/author/rerun-and-repair.md",
                    "guides/author/large-data.md",
                    "guides/author/keys-hooks-schedules.md",
                    "guides/author/workflows.md",
                    "guides/author/triggers.md",
                    "guides/author/credentials.md",
                ),
            ),
            (
                "Operate",
                (
                    "guides/operate/what-to-do-when.md",
                    "guides/operate/ui.md",
                    "guides/operate/editor.md",
                    "guides/operate/deploy.md",
                    "guides/operate/cluster.md",
                    "guides/operate/rabbitmq.md",
                    "guides/operate/processes.md",
                    "guides/operate/scale.md",
                    "guides/operate/upgrade.md",
                    "guides/operate/backup.md",
                    "guides/operate/retention.md",
                    "guides/operate/watch-and-alert.md",
                    "guides/operate/tell-people.md",
                    "guides/operate/operate.md",
                    "guides/operate/rotate-keys.md",
                    "guides/operate/dead-letters.md",
                    "guides/operate/access.md",
                    "guides/operate/limits.md",
                ),
            ),
            (
                "Develop",
                (
                    "guides/develop/custom-nodes.md",
                    "guides/develop/client.md",
                    "guides/develop/testing.md",
                    "guides/develop/import.md",
                    "guides/develop/embed.md",
                ),
            ),
        ),
    ),
    (
        "Reference",
        (
            "reference/language.md",
            "reference/expressions.md",
            "reference/protocol.md",
            ("Node types", ("reference/nodes/", "reference/nodes-http-smtp.md", "reference/nodes-llm.md")),
            ("Error codes", ("reference/errors/",)),
            ("Command line", ("reference/cli.md", "reference/cli/")),
            ("API", ("reference/api.md", "reference/api/")),
            ("Python", ("reference/python/",)),
            "reference/messages.md",
            "reference/settings.md",
            "reference/metrics.md",
            "reference/limits.md",
            "reference/glossary.md",
        ),
    ),
    (
        "About",
        (
            "about/why.md",
            "about/architecture.md",
            "about/walk.md",
            "about/hazards.md",
            "about/backends.md",
            "about/reliability.md",
            "about/security.md",
            "about/benchmarks.md",
            "about/compared.md",
            "about/rfcs.md",
            "about/scale.md",
            "about/contributing.md",
            "about/releasing.md",
            "about/changelog.md",
            ("Decisions", ("about/pages.md", "about/adr/")),
        ),
    ),
)


FOLDERS: Mapping[str, tuple[str, ...]] = {
    "start": (
        "python.md",
        "from-n8n.md",
    ),
    "guides/author": (
        "workflows.md",
        "triggers.md",
        "credentials.md",
    ),
    "guides/operate": (
        "ui.md",
        "editor.md",
        "deploy.md",
        "cluster.md",
        "rabbitmq.md",
        "processes.md",
        "scale.md",
        "upgrade.md",
        "backup.md",
        "retention.md",
        "operate.md",
        "access.md",
        "limits.md",
    ),
    "guides/develop": (
        "custom-nodes.md",
        "testing.md",
        "import.md",
    ),
    "reference": (
        "language.md",
        "expressions.md",
        "protocol.md",
        "nodes-http-smtp.md",
        "nodes-llm.md",
        "cli.md",
        "api.md",
    ),
    "about": (
        "architecture.md",
        "walk.md",
        "hazards.md",
        "backends.md",
        "reliability.md",
        "security.md",
        "benchmarks.md",
        "contributing.md",
        "releasing.md",
        "changelog.md",
        "pages.md",
    ),
}
"""Pages that are files of `docs/` itself, or of the repository, by the folder of the site that has them."""


def place_of(page: str) -> str:
    """Return the place in the site of a file of `docs/`."""
    if page.startswith("adr/"):
        return f"about/{page}"
    return next((f"{folder}/{page}" for folder, pages in FOLDERS.items() if page in pages), page)


def expand(entries: Iterable[Entry], pages: Mapping[str, str]) -> list[Entry]:
    """Replace folders by their pages, the page that lists them first."""
    found: list[Entry] = []
    for entry in entries:
        if isinstance(entry, str):
            found += _pages_at(entry, pages)
        else:
            found.append((entry[0], tuple(expand(entry[1], pages))))
    return found


def _pages_at(place: str, pages: Mapping[str, str]) -> list[str]:
    if not place.endswith("/"):
        return [place]
    inside = [path for path in pages if path.startswith(place) and path.endswith(".md")]
    return sorted(inside, key=lambda path: (not path.endswith("/index.md"), path))


def paths(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield all pages in their order."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            yield from paths(entry[1])
