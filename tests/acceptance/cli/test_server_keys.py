"""Which API key commands send, and to which server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process_cli import InProcessCli

KEY, OTHER = "rk_environment", "rk_file"


class RecordingServer:
    """A server that records the credentials of requests and returns empty lists."""

    def __init__(self) -> None:
        self.received: list[str | None] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.received.append(self.headers["Authorization"])
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps({"executions": [], "next": None}).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    opened = RecordingServer()
    yield opened
    opened.close()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; the user has no configuration."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("RUNE_URL", "RUNE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return folder


def name_server(project: Path, url: str) -> None:
    (project / "rune.toml").write_text(f'url = "{url}"\n')


def write_keys(project: Path, text: str, mode: int = 0o600) -> None:
    file = project.parent / "config" / "rune" / "keys.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    file.chmod(mode)


def run_list(project: Path, **environment: str) -> tuple[int, str]:
    done = InProcessCli(project / ".rune", **environment)("list", "--json")
    return done.exit_code, done.stdout


def test_environment_key_is_sent_to_server_of_environment(server: RecordingServer, project: Path) -> None:
    name_server(project, "http://127.0.0.1:9")

    code, _ = run_list(project, RUNE_URL=server.url, RUNE_API_KEY=KEY)

    assert (code, server.received) == (0, [f"Bearer {KEY}"])


def test_environment_key_is_not_sent_to_server_of_rune_toml(server: RecordingServer, project: Path) -> None:
    name_server(project, server.url)

    code, output = run_list(project, RUNE_API_KEY=KEY)

    assert (code, server.received) == (2, [])
    (problem,) = json.loads(output)["problems"]
    assert problem["code"] == "KEY_NOT_SENT"
    assert f"set RUNE_URL={server.url}" in problem["message"]
    assert "keys.toml" in problem["message"]
    assert KEY not in output


def test_server_of_rune_toml_gets_its_key_from_user_file(server: RecordingServer, project: Path) -> None:
    name_server(project, f"{server.url}/")
    write_keys(project, f'"{server.url}" = "{OTHER}"\n"https://other.example" = "{KEY}"\n')

    code, _ = run_list(project, RUNE_API_KEY=KEY)

    assert (code, server.received) == (0, [f"Bearer {OTHER}"])


def test_server_of_rune_toml_without_any_key_gets_none(server: RecordingServer, project: Path) -> None:
    name_server(project, server.url)

    assert run_list(project)[0] == 0
    assert server.received == [None]


def test_key_is_not_sent_over_plain_http_to_another_machine(project: Path) -> None:
    code, output = run_list(project, RUNE_URL="http://192.0.2.1:8080", RUNE_API_KEY=KEY)

    (problem,) = json.loads(output)["problems"]
    assert (code, problem["code"]) == (2, "KEY_NOT_SENT")
    assert "use https://" in problem["message"]


@pytest.mark.parametrize(
    ("text", "mode", "expected"),
    [
        (f'"https://x.example" = "{OTHER}"', 0o644, "chmod 600"),
        (f'"https://x.example" = ["{OTHER}"]', 0o600, "not a list of keys"),
        (f"{OTHER}", 0o600, "not a list of keys"),
    ],
)
def test_unusable_user_file_is_rejected_without_its_content(
    project: Path, text: str, mode: int, expected: str
) -> None:
    name_server(project, "https://x.example")
    write_keys(project, text, mode)

    code, output = run_list(project)

    assert code == 2
    assert expected in output
    assert OTHER not in output


def test_source_of_url_cannot_be_set_in_rune_toml(project: Path) -> None:
    (project / "rune.toml").write_text("url_in_file = false\n")

    code, output = run_list(project)

    assert (code, "unknown setting" in output) == (2, True)
