"""Credential values do not appear in any output or file, even if servers and nodes repeat them."""

from __future__ import annotations

import base64
import json
import pathlib
from typing import Any
from urllib.parse import quote, quote_plus

from tests.support.cli_process import TIMEOUT_S, Rune, until
from tests.support.credential_canary import (
    FETCHED,
    PASSWORD,
    TOKEN,
    EchoServer,
    credentials,
    echo_servers,
    leaks,
    workflow,
)
from tests.support.forked_rune import PATHS
from tests.support.smtp_server import SmtpServer


def stored(home: pathlib.Path) -> dict[str, bytes]:
    """The contents of all files except the key."""
    files = [path for path in home.rglob("*") if path.is_file() and path.name != "secret.key"]
    return {path.name: path.read_bytes() for path in files}


def test_credential_values_appear_in_no_output_or_file(tmp_path: pathlib.Path) -> None:
    rune = Rune(
        tmp_path / "home",
        PYTHONPATH=PATHS,
        RUNE_HTTP_ALLOW="127.0.0.1",
        RUNE_NODES="tests.support.canary_nodes",
    )
    refusal = f"535 me:{PASSWORD} {base64.b64encode(f'{chr(0)}me{chr(0)}{PASSWORD}'.encode()).decode()}"
    sink = SmtpServer({"AUTH": refusal, "MAIL": f"550 {PASSWORD}"})
    web_server = EchoServer()
    outputs: dict[str, str] = {}

    def run(*arguments: str) -> str:
        done = rune(*arguments)
        outputs[" ".join(arguments)] = done.stdout + done.stderr
        return done.stdout

    with echo_servers(web_server, sink) as (http, smtp):
        for name, values in credentials(http, smtp).items():
            file = tmp_path / "given.json"
            file.write_text(json.dumps(values))
            options = ("--type", name.removesuffix("-body"), "--host", "*", "--insecure")
            run("credentials", "add", name, *options, "--from-file", str(file))
        for waits in (True, False):
            (tmp_path / f"{waits}.json").write_text(json.dumps(workflow(http, waits=waits)))

        with rune.begin("run", str(tmp_path / "True.json"), "--id", "loud") as owner:
            try:
                until(lambda: _ended(rune, "loud", 2 * 13) or None, "every node has ended")
                files = stored(rune.home)
                assert files["rune.db-wal"], "the write-ahead log is not empty"
                for command in ("show", "explain", "verify"):
                    run(command, "loud")
                    run(command, "loud", "--json")
                run("credentials", "list")
                run("credentials", "show", "basic", "--json")
            finally:
                owner.kill()
                out, err = owner.communicate(timeout=TIMEOUT_S)
        outputs["the owner"] = out + err
        result = json.loads(run("run", str(tmp_path / "False.json"), "--id", "again", "--json"))
        run("run", str(tmp_path / "False.json"), "--id", "text")
        run("list", "--json")
        run("watch", "again", "--json")
        run("watch", "again")
        run("show", "again", "--json", "--nodes", "100")
        run("doctor", "--json")

    _check_secrets_were_sent(result, web_server, sink, outputs)
    found = {name: leaks(text) for name, text in outputs.items()}
    assert {name: each for name, each in found.items() if each} == {}
    for when, each in (("while it ran", files), ("at the end", stored(rune.home))):
        assert {name: leaks(data) for name, data in each.items() if leaks(data)} == {}, when


def _ended(rune: Rune, execution: str, count: int) -> bool:
    done = rune("show", execution, "--json")
    if done.returncode == 2:
        return False
    nodes = json.loads(done.stdout)["nodes"]
    return bool(sum(each["node_id"] != "start" for each in nodes) >= count)


def _check_secrets_were_sent(
    result: dict[str, Any], web_server: EchoServer, sink: SmtpServer, outputs: dict[str, str]
) -> None:
    """Without this check the test would pass if no secret had been used."""
    requests = "\n".join(web_server.requests)
    assert base64.b64encode(f"me:{PASSWORD}".encode()).decode() in requests
    assert f"Bearer {TOKEN}" in requests
    assert f"Bearer {FETCHED}" in requests
    assert quote(PASSWORD, safe="") in requests
    assert quote_plus(PASSWORD) in requests  # the client secret in a form
    assert any(line.startswith("AUTH") for line in sink.commands)
    nodes = {each["node_id"]: each for each in result["nodes"]}
    assert nodes["fails"]["attempts"] == 2
    codes = {
        name: (each["error"] or {}).get("code")
        for name, each in nodes.items()
        if not name.startswith("after")
    }
    assert codes == {
        "start": None,
        "fails": "HTTP_STATUS",
        "echoes": None,
        "bearer": "HTTP_STATUS",
        "header": None,
        "query": "HTTP_STATUS",
        "nobody": "HTTP_CONNECT",
        "oauth": "HTTP_STATUS",
        "refused": "CREDENTIAL_TOKEN",
        "bytes": None,
        "model": "LLM_PROTOCOL",
        "mail": "SMTP_AUTH",
        "tells": None,
        "raises": "NODE_ERROR",
    }
    assert nodes["tells"]["output"]["value"] == "***"
    assert "***" in nodes["raises"]["error"]["message"]
    assert nodes["header"]["output"]["headers"]["x-auth"] == "none"
    assert "the password is ***" in outputs["the owner"]
