"""A page is followed with nothing but what it says: what its reader would miss fails its test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.followed_page import follow

PAGE = "---\nkind: guide\nfor: operator\n---\n\n# A page\n\n<!-- needs: up -->\n\n```console\n{}```\n"
NAMES_THE_SERVER = "$ export RUNE_URL=http://127.0.0.1:8080\n"
USES_THE_SERVER = '$ curl -sS $RUNE_URL/readyz; echo\n{"status":"ready"}\n'


def test_page_that_names_its_server_is_followed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(NAMES_THE_SERVER + USES_THE_SERVER))

    follow(str(page), tmp_path)


@pytest.mark.parametrize("command", [USES_THE_SERVER, "$ printenv RUNE_URL\n…\n"])
def test_page_that_uses_a_server_without_naming_it_fails(command: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("\n".join([PAGE.format(command), "The server of `RUNE_URL` is used."]))

    with pytest.raises(AssertionError):
        follow(str(page), tmp_path)


@pytest.mark.parametrize("name", ["RUNE_URL", "RUNE_API_KEY", "RUNE_HOME"])
def test_setting_of_the_test_does_not_reach_a_page(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("<!-- needs: up -->", "").format(f"$ printenv {name}  # exits 1\n"))
    monkeypatch.setenv(name, "set")

    follow(str(page), tmp_path)
