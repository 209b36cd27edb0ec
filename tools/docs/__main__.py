"""Builds the site of the documentation: `make docs`.

    python -m tools.docs [--zensical PROGRAM] [--source-url URL] [--site-url URL] [--issues-url URL]
                         [--folder VERSION] [--newest VERSION]

Collects the pages in `build/docs`, checks their links and their places in the navigation, and lets the site generator
write `build/site`. Without `--zensical` it stops after the checks.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.docs import llms
from tools.docs.footers import last_changes, with_footers
from tools.docs.navigation import NAVIGATION, Entry, expand, paths
from tools.docs.staging import DOCS, ROOT, broken_links, sources, staged
from tools.docs.versions import check_folder, with_notices

STAGE = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
LOGO = ROOT / "src" / "rune" / "server" / "static" / "rune.svg"
EXTERNAL = re.compile(
    r"""<(?:script|link(?! rel="canonical")|img|iframe)\b[^>]*(?:src|href)=["']?(https?://[^"'\s>]+)"""
)
"""What a page loads from another host. A canonical URL is not loaded."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--zensical", default="", help="the program that makes the site")
    parser.add_argument(
        "--source-url", default="", help="URL of the files of this release, for links out of docs/"
    )
    parser.add_argument(
        "--site-url",
        default="",
        help="URL of the newest release of the site, to which pages refer as canonical",
    )
    parser.add_argument("--issues-url", default="", help="URL of a form for reports, linked from every page")
    parser.add_argument(
        "--folder",
        default="",
        type=lambda name: name and check_folder(name),
        help="`latest` or a minor release: the folder of build/site that is written",
    )
    parser.add_argument(
        "--newest",
        default="",
        type=lambda name: name and check_folder(name),
        help="the newest minor release; pages of older ones begin with a notice",
    )
    given = parser.parse_args()
    texts, others = staged(given.source_url)
    navigation = expand(NAVIGATION, texts)
    found = [*broken_links(texts, others), *misplaced(navigation, texts)]
    if found:
        print("\n".join(found), file=sys.stderr)
        return 1
    shown = with_notices(texts, given.folder, given.newest)
    write(with_footers(shown, last_changes(sources()), given.issues_url), others, navigation, given.site_url)
    print(f"{sum(place.endswith('.md') for place in texts)} pages in {STAGE.relative_to(ROOT)}")
    return build(given.zensical, texts, navigation, SITE / given.folder) if given.zensical else 0


def misplaced(navigation: list[Entry], texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the pages that the navigation lacks, names twice or names without their existence."""
    listed = list(paths(navigation))
    pages = {place for place in texts if place.endswith(".md")}
    yield from (f"{place}: not in the navigation" for place in sorted(pages - set(listed)))
    yield from (f"{place}: in the navigation, but no page" for place in sorted(set(listed) - pages))
    yield from (
        f"{place}: twice in the navigation"
        for place in sorted({each for each in listed if listed.count(each) > 1})
    )


def write(
    texts: Mapping[str, str], others: Mapping[str, Path], navigation: list[Entry], site_url: str = ""
) -> None:
    """Write the pages, the other files, and the configuration of the generator."""
    shutil.rmtree(STAGE, ignore_errors=True)
    for place, text in texts.items():
        target = STAGE / "pages" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for place, path in {**others, "rune.svg": LOGO}.items():
        target = STAGE / "pages" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    settings = (DOCS / "zensical.toml").read_text(encoding="utf-8")
    lines = f"nav = {_toml(navigation)}"
    if site_url:
        lines += f"\nsite_url = {json.dumps(site_url)}"
    (STAGE / "zensical.toml").write_text(settings.replace("# nav: generated", lines), encoding="utf-8")


def _toml(entries: list[Entry] | tuple[Entry, ...]) -> str:
    """Return the navigation as a TOML array."""
    parts = [
        json.dumps(each) if isinstance(each, str) else f"{{ {json.dumps(each[0])} = {_toml(each[1])} }}"
        for each in entries
    ]
    return f"[{', '.join(parts)}]"


def build(program: str, texts: Mapping[str, str], navigation: list[Entry], site: Path) -> int:
    """Make the site, add the pages as text, and check that it loads nothing from other hosts."""
    command = [
        str(Path(program).absolute()),
        "build",
        "--clean",
        "--strict",
        "--config-file",
        str(STAGE / "zensical.toml"),
    ]
    shutil.rmtree(site, ignore_errors=True)
    done = subprocess.run(command, cwd=STAGE, check=False)
    if done.returncode:
        return done.returncode
    site.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(STAGE / "site", site)
    for place, text in texts.items():
        if place.endswith(".md"):
            target = site / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    (site / "llms.txt").write_text(llms.index(navigation, texts), encoding="utf-8")
    (site / "llms-full.txt").write_text(llms.full(navigation, texts), encoding="utf-8")
    external = sorted(
        {url for page in site.rglob("*.html") for url in EXTERNAL.findall(page.read_text(encoding="utf-8"))}
    )
    if external:
        print("The site loads from other hosts:", *external, sep="\n", file=sys.stderr)
        return 1
    print(f"{site.relative_to(ROOT)}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
