"""Stored definitions on the command line: deploy, and everything below `rune workflows`."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.cli.arguments import to_yaml
from rune.core.limits import LIMITS
from rune.documents.yaml import decode_yaml
from tests.acceptance.cli.here import Here
from tests.acceptance.cli.process import PATIENCE, Rune, until
from tests.unit.core.documents import Raw, document, node

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


def orders(url: str = "http://a", **more: Any) -> Raw:
    return document(
        [node("start", "input"), node("fetch", "http", {"url": url}), node("note", "log", {"message": "hi"})],
        "start>fetch",
        "fetch>note",
        id="orders",
        name="Orders",
        **more,
    )


class Shelf:
    """A home, and documents to deploy there."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.rune = Here(folder / "home")

    def file(self, raw: Raw) -> str:
        path = self.folder / "document.json"
        path.write_text(json.dumps(raw))
        return str(path)

    def deploy(self, raw: Raw, *options: str) -> Any:
        return self.rune.json("deploy", self.file(raw), *options)


@pytest.fixture
def shelf(tmp_path: pathlib.Path) -> Shelf:
    return Shelf(tmp_path)


@pytest.fixture
def two(shelf: Shelf) -> Shelf:
    """Two versions; the first is stable."""
    shelf.deploy(orders(), "--alias", "stable")
    later = orders("http://b", settings={"priority": 7})
    later["nodes"][2] = node("mail", "smtp", {"to": "x@example.com", "subject": "Hi"}, name="Mail")
    later["edges"][1]["dst"] = "mail"
    shelf.deploy(later)
    return shelf


def test_a_deploy_says_which_version_it_made(shelf: Shelf) -> None:
    first = shelf.deploy(orders())
    second = shelf.deploy(orders("http://b"), "--alias", "stable")

    assert (first["status"], first["workflow_id"], first["version"]) == ("deployed", "orders", 1)
    assert (first["aliases"], first["change"], first["problems"]) == (["latest"], "created", [])
    assert (second["version"], second["aliases"]) == (2, ["latest", "stable"])
    assert second["hash"] == shelf.rune.json("check", shelf.file(orders("http://b")))["hash"]


def test_a_deploy_that_changes_nothing_says_so(shelf: Shelf) -> None:
    path = shelf.file(orders())

    assert shelf.rune.said("deploy", path) == "orders@1 deployed (latest)\n"
    assert "orders@1" in shelf.rune.said("deploy", path)
    assert "nothing changed" in shelf.rune.said("deploy", path)
    assert shelf.deploy(orders())["change"] == "none"


def test_an_earlier_content_becomes_the_latest_again(two: Shelf) -> None:
    again = two.deploy(orders())

    assert (again["version"], again["change"], again["aliases"]) == (1, "moved", ["latest", "stable"])
    two.deploy(orders("http://c"))
    said = two.rune.said("deploy", two.file(orders()))
    assert said == "orders@1 was deployed before and is now latest, stable\n"


def test_a_broken_document_is_refused_like_check_refuses_it(shelf: Shelf) -> None:
    broken = orders()
    broken["nodes"][1]["type"] = "htp"
    broken["edges"][1]["dst"] = "nobody"
    path = shelf.file(broken)

    refusal = shelf.rune.json("deploy", path, code=2)

    assert refusal["status"] == "invalid"
    assert refusal["problems"] == shelf.rune.json("check", path, code=2)["problems"]
    done = shelf.rune("deploy", path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "htp" in done.stderr
    assert not shelf.rune.home.exists()


def test_a_warning_is_said_and_does_not_hinder(shelf: Shelf) -> None:
    warned = document([node("start", "input"), node("json")], "start>json")
    path = shelf.file(warned)
    problems = shelf.rune.json("check", path)["problems"]
    assert [each["severity"] for each in problems] == ["warning"]

    assert shelf.deploy(warned)["problems"] == problems
    done = shelf.rune("deploy", path)
    assert done.exit_code == 0
    assert problems[0]["message"] in done.stderr


def test_a_deploy_reads_standard_input_and_folders(shelf: Shelf) -> None:
    done = shelf.rune("deploy", "-", stdin=json.dumps(orders()))

    assert done.stdout == "orders@1 deployed (latest)\n"
    assert shelf.rune.said("deploy", str(EXAMPLES / "hello")) == "hello@1 deployed (latest)\n"


@pytest.mark.parametrize("alias", ["3", "v3", "a b", ""])
def test_an_alias_must_not_look_like_a_number(shelf: Shelf, alias: str) -> None:
    (problem,) = shelf.rune.json("deploy", shelf.file(orders()), "--alias", alias, code=2)["problems"]

    assert problem["code"] == "BAD_ALIAS"
    assert not shelf.rune.home.exists()


def test_the_list(two: Shelf) -> None:
    two.deploy(document([node("a", "input")], id="mails"))

    mails, listed = two.rune.json("workflows")["workflows"]
    assert two.rune.json("workflows", "list")["workflows"] == [mails, listed]
    assert listed.pop("deployed_at").endswith("Z")
    assert listed == {
        "workflow_id": "orders",
        "name": "Orders",
        "latest": 2,
        "versions": 2,
        "aliases": {"latest": 2, "stable": 1},
        "hidden": False,
    }
    header, _, line = two.rune.said("workflows").splitlines()
    assert header.split() == ["workflow", "latest", "versions", "deployed", "aliases", "name"]
    assert line.split()[:3] == ["orders", "2", "2"]
    assert line.split()[-2:] == ["stable=1", "Orders"]


def test_where_nothing_was_deployed(shelf: Shelf) -> None:
    assert shelf.rune.json("workflows") == {"workflows": []}
    assert shelf.rune.said("workflows") == "no workflows\n"
    for command in (
        ("show", "orders"),
        ("diff", "orders", "1", "2"),
        ("restore", "orders@1"),
        ("alias", "orders", "stable", "1"),
        ("remove", "orders"),
    ):
        (problem,) = shelf.rune.json("workflows", *command, code=2)["problems"]
        assert (problem["code"], problem["hint"]) == (
            "UNKNOWN_WORKFLOW",
            "see `rune workflows`",
        )
    assert not shelf.rune.home.exists()


def test_options_before_a_subcommand_are_not_lost_in_silence(shelf: Shelf) -> None:
    assert shelf.rune("workflows", "--json", "list").exit_code == 2


@pytest.mark.parametrize(
    ("which", "version"), [("", 2), ("@1", 1), ("@v1", 1), ("@stable", 1), ("@latest", 2), ("@2", 2)]
)
def test_show_finds_a_version(two: Shelf, which: str, version: int) -> None:
    told = two.rune.json("workflows", "show", f"orders{which}")

    assert told["version"] == version
    assert told["aliases"] == {"latest": 2, "stable": 1}
    assert [each["version"] for each in told["versions"]] == [1, 2]
    assert told["hash"] == told["versions"][version - 1]["hash"]
    assert told["definition"]["nodes"][1]["parameters"] == {"url": "http://a" if version == 1 else "http://b"}


def test_show_as_text(two: Shelf) -> None:
    text = two.rune.said("workflows", "show", "orders")

    assert text.startswith("orders: Orders\n")
    assert "orders@2: 3 nodes, 2 edges" in text
    assert text.splitlines()[-1].split() == ["mail", "smtp", "Mail"]
    for number in range(30):
        two.deploy(orders(f"http://{number}"))
    assert "… and 12 earlier versions" in two.rune.said("workflows", "show", "orders")


def test_an_unknown_version_is_refused_with_those_there_are(two: Shelf) -> None:
    done = two.rune("workflows", "show", "orders@7")

    assert done.exit_code == 2
    assert "versions 1 to 2, and latest (2), stable (1)" in done.stderr


@pytest.mark.parametrize(
    "name", ["branch-and-merge", "errors-and-retries", "fan-out", "hello", "nested-loops"]
)
def test_what_show_writes_as_yaml_is_the_same_version_again(shelf: Shelf, name: str) -> None:
    first = shelf.rune.json("deploy", str(EXAMPLES / name))
    text = shelf.rune.said("workflows", "show", first["workflow_id"], "--yaml")
    path = shelf.folder / "again.yaml"
    path.write_text(text)

    assert shelf.rune.json("deploy", str(path))["change"] == "none"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["yes", "1_000", "0x1f", "0o7", "~", "null", ".5", "1e5", "2026-01-01", "a: b", "- a"])
    | st.text(alphabet="ab \n\t#:-", max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=8), values, max_size=3))
def test_yaml_is_read_back_to_the_same_values(parameters: Raw) -> None:
    definition = {"edges": [], "id": "w", "nodes": [{"id": "n", "parameters": parameters, "type": "log"}]}

    decoded = decode_yaml(to_yaml(definition), max_bytes=LIMITS.definition_bytes, max_depth=LIMITS.json_depth)

    assert decoded.problems == ()
    assert json.dumps(decoded.value, sort_keys=True) == json.dumps(definition, sort_keys=True)


def test_diff_tells_nodes_edges_and_settings(two: Shelf) -> None:
    told = two.rune.json("workflows", "diff", "orders", "stable", "latest")

    assert (told["from"]["version"], told["to"]["version"]) == (1, 2)
    assert [(each["what"], each["id"], each["kind"]) for each in told["changes"]] == [
        ("settings", "", "changed"),
        ("node", "fetch", "changed"),
        ("node", "mail", "added"),
        ("node", "note", "removed"),
        ("edge", "fetch-mail", "added"),
        ("edge", "fetch-note", "removed"),
    ]
    assert told["changes"][1]["fields"] == [
        {"path": "parameters.url", "kind": "changed", "before": "http://a", "after": "http://b"}
    ]


def test_diff_as_text(two: Shelf) -> None:
    assert two.rune.said("workflows", "diff", "orders", "1").splitlines() == [
        "orders 1 → 2",
        "settings",
        "  + priority: 7",
        "nodes",
        "  ~ fetch (http)",
        '      ~ parameters.url: "http://a" → "http://b"',
        "  + mail (smtp)",
        '      + name: "Mail"',
        '      + parameters.subject: "Hi"',
        '      + parameters.to: "x@example.com"',
        "  - note (log)",
        '      - parameters.message: "hi"',
        "edges",
        "  + fetch → mail",
        "  - fetch → note",
    ]
    assert (
        two.rune.said("workflows", "diff", "orders", "2", "latest") == "orders@2 and orders@2 are the same\n"
    )


def test_diff_of_texts_orders_and_labels(shelf: Shelf) -> None:
    def branching(text: str, *pairs: str) -> Raw:
        choice = node("c", "conditional", {"expression": "true"})
        return document([node("start", "input"), choice, node("n", "log", {"message": text})], *pairs, id="b")

    shelf.deploy(branching("one\ntwo\nthree", "start>c", "c>n:true"))
    later = branching("one\n2\nthree", "start>c", "c>n:false")
    later["nodes"][1], later["nodes"][2] = later["nodes"][2], later["nodes"][1]
    later["edges"][0]["id"] = "first"
    shelf.deploy(later)

    assert shelf.rune.said("workflows", "diff", "b", "1", "2").splitlines() == [
        "b 1 → 2",
        "workflow",
        "  ~ nodes: reordered: start, n, c",
        "nodes",
        "  ~ n (log)",
        "      ~ parameters.message:",
        "          @@ -1,3 +1,3 @@",
        "           one",
        "          -two",
        "          +2",
        "           three",
        "edges",
        "  ~ first: start → c",
        '      ~ id: "start-c" → "first"',
        "  ~ c → n (`false`)",
        '      ~ label: "true" → "false"',
    ]


def test_diff_line_by_line(two: Shelf) -> None:
    lines = two.rune.said("workflows", "diff", "orders", "1", "2", "--unified").splitlines()

    assert lines[:2] == ["--- orders@1", "+++ orders@2"]
    assert '-        "url": "http://a"' in lines


def test_restore_makes_an_earlier_version_the_latest(two: Shelf) -> None:
    told = two.rune.json("workflows", "restore", "orders@1")

    assert (told["version"], told["change"], told["aliases"]) == (1, "moved", ["latest", "stable"])
    assert two.rune.json("workflows", "show", "orders")["version"] == 1
    assert two.rune.said("workflows", "restore", "orders@stable") == "orders@1 is already latest\n"
    assert two.rune.said("workflows", "restore", "orders@v2") == "orders@2 is now latest\n"


def test_restore_wants_a_version(two: Shelf) -> None:
    (problem,) = two.rune.json("workflows", "restore", "orders", code=2)["problems"]

    assert problem["code"] == "MISSING_VERSION"


def test_an_alias_points_where_it_is_told(two: Shelf) -> None:
    assert two.rune.said("workflows", "alias", "orders", "canary", "2") == "orders@2 is now canary\n"
    assert two.rune.said("workflows", "alias", "orders", "stable", "canary") == "orders@2 is now stable\n"
    assert two.rune.json("workflows")["workflows"][0]["aliases"] == {"canary": 2, "latest": 2, "stable": 2}
    (problem,) = two.rune.json("workflows", "alias", "orders", "v1", "2", code=2)["problems"]
    assert problem["code"] == "BAD_ALIAS"


def test_an_alias_spreads_starts_as_it_is_told(two: Shelf) -> None:
    said = two.rune.said("workflows", "alias", "orders", "stable", "1", "latest=30")
    assert said == "orders@1 is now stable, 30 % of its starts use version 2\n"
    shown = two.rune.said("workflows", "show", "orders")
    assert "stable 70 %" in shown
    assert "stable 30 %" in shown
    assert two.rune.json("workflows", "show", "orders")["weights"] == {"stable": {"2": 30.0}}
    again = two.rune.json("workflows", "alias", "orders", "stable", "1", "2=30%")
    assert (again["change"], again["weights"]) == ("none", {"2": 30.0})
    for wrong in (("2",), ("2=much",), ("2=0",), ("2=60", "latest=10"), ("1=60", "2=60")):
        (problem,) = two.rune.json("workflows", "alias", "orders", "stable", "1", *wrong, code=2)["problems"]
        assert problem["code"] == "BAD_WEIGHTS"
    assert two.rune.said("workflows", "alias", "orders", "stable", "1") == "orders@1 is now stable\n"
    assert two.rune.json("workflows", "show", "orders")["weights"] == {}


def test_starts_by_a_weighted_alias_fall_by_their_key(two: Shelf) -> None:
    two.rune.said("workflows", "alias", "orders", "stable", "1", "2=100")
    started = two.rune.json("start", "orders@stable", "--key", "a", "--fake-time")
    second = two.rune.json("workflows", "show", "orders@2")["hash"]
    assert started["hash"] == second


def test_remove_hides_and_loses_nothing(two: Shelf) -> None:
    assert two.rune.json("workflows", "remove", "orders") == {
        "status": "removed",
        "workflow_id": "orders",
        "changed": True,
    }
    assert two.rune.said("workflows", "remove", "orders") == "orders was already removed\n"
    assert two.rune.json("workflows")["workflows"] == []
    assert two.rune.json("workflows", "--all")["workflows"][0]["hidden"] is True
    assert "(removed)" in two.rune.said("workflows", "list", "--all")
    assert two.rune.json("workflows", "show", "orders")["hidden"] is True
    assert "removed" in two.rune("workflows", "alias", "orders", "stable", "2").stderr

    assert two.rune.said("workflows", "restore", "orders@2") == "orders@2 is now latest\n"
    assert two.rune.json("workflows")["workflows"][0]["latest"] == 2


def test_processes_that_deploy_at_once_get_numbers_without_gaps(shelf: Shelf) -> None:
    rune = Rune(shelf.rune.home)
    paths = []
    for number in range(4):
        paths.append(shelf.folder / f"{number}.json")
        paths[-1].write_text(json.dumps(orders(f"http://{number}")))

    running = [rune.begin("deploy", str(path), "--json") for path in paths]
    answers = [(*each.communicate(timeout=PATIENCE), each.returncode) for each in running]

    assert [code for _, _, code in answers] == [0] * 4, answers
    assert sorted(json.loads(out)["version"] for out, _, _ in answers) == [1, 2, 3, 4]


def test_a_deploy_need_not_wait_for_the_process_that_owns_the_file(shelf: Shelf) -> None:
    nap = document([node("nap", "wait", {"amount": 1, "unit": "hours"})], id="nap")
    rune = Rune(shelf.rune.home)
    with rune.begin("run", shelf.file(nap)) as owner:
        try:
            until(lambda: shelf.rune.json("list")["executions"] or None, "it runs")
            told = shelf.deploy(orders())
            assert owner.poll() is None
        finally:
            owner.kill()

    assert told["version"] == 1
    assert shelf.rune.json("workflows", "show", "orders")["version"] == 1
