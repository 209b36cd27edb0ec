"""`rune deploy` and `rune workflows`."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.limits import LIMITS
from rune.documents.yaml import decode_yaml, to_yaml
from tests.support.cli_process import TIMEOUT_S, Rune, until
from tests.support.documents import Raw, document, node
from tests.support.in_process_cli import InProcessCli

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


class Deployments:
    """A home folder and documents to deploy there."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.rune = InProcessCli(folder / "home")

    def file(self, raw: Raw) -> str:
        path = self.folder / "document.json"
        path.write_text(json.dumps(raw))
        return str(path)

    def deploy(self, raw: Raw, *options: str) -> Any:
        return self.rune.json("deploy", self.file(raw), *options)


@pytest.fixture
def deployments(tmp_path: pathlib.Path) -> Deployments:
    return Deployments(tmp_path)


@pytest.fixture
def two_versions(deployments: Deployments) -> Deployments:
    """Two versions of `orders`; the first is `stable`."""
    deployments.deploy(orders(), "--alias", "stable")
    later = orders("http://b", settings={"priority": 7})
    later["nodes"][2] = node("mail", "smtp", {"to": "x@example.com", "subject": "Hi"}, name="Mail")
    later["edges"][1]["dst"] = "mail"
    deployments.deploy(later)
    return deployments


def test_deploy_prints_new_version(deployments: Deployments) -> None:
    first = deployments.deploy(orders())
    second = deployments.deploy(orders("http://b"), "--alias", "stable")

    assert (first["status"], first["workflow_id"], first["version"]) == ("deployed", "orders", 1)
    assert (first["aliases"], first["change"], first["problems"]) == (["latest"], "created", [])
    assert (second["version"], second["aliases"]) == (2, ["latest", "stable"])
    assert second["hash"] == deployments.rune.json("check", deployments.file(orders("http://b")))["hash"]


def test_unchanged_deploy_is_reported(deployments: Deployments) -> None:
    path = deployments.file(orders())

    assert deployments.rune.output("deploy", path) == "orders@1 deployed (latest)\n"
    assert "orders@1" in deployments.rune.output("deploy", path)
    assert "nothing changed" in deployments.rune.output("deploy", path)
    assert deployments.deploy(orders())["change"] == "none"


def test_deploy_of_earlier_content_moves_latest_back(two_versions: Deployments) -> None:
    again = two_versions.deploy(orders())

    assert (again["version"], again["change"], again["aliases"]) == (1, "moved", ["latest", "stable"])
    two_versions.deploy(orders("http://c"))
    output = two_versions.rune.output("deploy", two_versions.file(orders()))
    assert output == "orders@1 was deployed before and is now latest, stable\n"


def test_deploy_rejects_what_check_rejects(deployments: Deployments) -> None:
    broken = orders()
    broken["nodes"][1]["type"] = "htp"
    broken["edges"][1]["dst"] = "nobody"
    path = deployments.file(broken)

    refusal = deployments.rune.json("deploy", path, code=2)

    assert refusal["status"] == "invalid"
    assert refusal["problems"] == deployments.rune.json("check", path, code=2)["problems"]
    done = deployments.rune("deploy", path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "htp" in done.stderr
    assert not list(deployments.rune.home.iterdir())


def test_deploy_prints_warnings_and_succeeds(deployments: Deployments) -> None:
    warned = document([node("start", "input"), node("json")], "start>json")
    path = deployments.file(warned)
    problems = deployments.rune.json("check", path)["problems"]
    assert [each["severity"] for each in problems] == ["warning"]

    assert deployments.deploy(warned)["problems"] == problems
    done = deployments.rune("deploy", path)
    assert done.exit_code == 0
    assert problems[0]["message"] in done.stderr


def test_deploy_reads_stdin_and_folders(deployments: Deployments) -> None:
    done = deployments.rune("deploy", "-", stdin=json.dumps(orders()))

    assert done.stdout == "orders@1 deployed (latest)\n"
    assert deployments.rune.output("deploy", str(EXAMPLES / "hello")) == "hello@1 deployed (latest)\n"


@pytest.mark.parametrize("alias", ["3", "v3", "a b", ""])
def test_alias_that_looks_like_version_is_rejected(deployments: Deployments, alias: str) -> None:
    (problem,) = deployments.rune.json("deploy", deployments.file(orders()), "--alias", alias, code=2)[
        "problems"
    ]

    assert problem["code"] == "BAD_ALIAS"
    assert not list(deployments.rune.home.iterdir())


def test_list_shows_versions_and_aliases(two_versions: Deployments) -> None:
    two_versions.deploy(document([node("a", "input")], id="mails"))

    mails, listed = two_versions.rune.json("workflows")["workflows"]
    assert two_versions.rune.json("workflows", "list")["workflows"] == [mails, listed]
    assert listed.pop("deployed_at").endswith("Z")
    assert listed == {
        "workflow_id": "orders",
        "name": "Orders",
        "latest": 2,
        "versions": 2,
        "aliases": {"latest": 2, "stable": 1},
        "hidden": False,
    }
    header, _, line = two_versions.rune.output("workflows").splitlines()
    assert header.split() == ["workflow", "latest", "versions", "deployed", "aliases", "name"]
    assert line.split()[:3] == ["orders", "2", "2"]
    assert line.split()[-2:] == ["stable=1", "Orders"]


def test_commands_without_database_create_nothing(deployments: Deployments) -> None:
    assert deployments.rune.json("workflows") == {"workflows": []}
    assert deployments.rune.output("workflows") == "no workflows\n"
    for command in (
        ("show", "orders"),
        ("diff", "orders", "1", "2"),
        ("restore", "orders@1"),
        ("alias", "orders", "stable", "1"),
        ("remove", "orders"),
    ):
        (problem,) = deployments.rune.json("workflows", *command, code=2)["problems"]
        assert (problem["code"], problem["hint"]) == (
            "UNKNOWN_WORKFLOW",
            "see `rune workflows`",
        )
    assert not list(deployments.rune.home.iterdir())


def test_option_before_subcommand_is_rejected(deployments: Deployments) -> None:
    assert deployments.rune("workflows", "--json", "list").exit_code == 2


@pytest.mark.parametrize(
    ("which", "version"), [("", 2), ("@1", 1), ("@v1", 1), ("@stable", 1), ("@latest", 2), ("@2", 2)]
)
def test_show_resolves_version(two_versions: Deployments, which: str, version: int) -> None:
    result = two_versions.rune.json("workflows", "show", f"orders{which}")

    assert result["version"] == version
    assert result["aliases"] == {"latest": 2, "stable": 1}
    assert [each["version"] for each in result["versions"]] == [1, 2]
    assert result["hash"] == result["versions"][version - 1]["hash"]
    assert result["definition"]["nodes"][1]["parameters"] == {
        "url": "http://a" if version == 1 else "http://b"
    }


def test_show_prints_summary(two_versions: Deployments) -> None:
    text = two_versions.rune.output("workflows", "show", "orders")

    assert text.startswith("orders: Orders\n")
    assert "orders@2: 3 nodes, 2 edges" in text
    assert text.splitlines()[-1].split() == ["mail", "smtp", "Mail"]
    for number in range(30):
        two_versions.deploy(orders(f"http://{number}"))
    assert "… and 12 earlier versions" in two_versions.rune.output("workflows", "show", "orders")


def test_unknown_version_lists_known_versions(two_versions: Deployments) -> None:
    done = two_versions.rune("workflows", "show", "orders@7")

    assert done.exit_code == 2
    assert "versions 1 to 2, and latest (2), stable (1)" in done.stderr


@pytest.mark.parametrize(
    "name", ["branch-and-merge", "errors-and-retries", "fan-out", "hello", "nested-loops"]
)
def test_yaml_of_show_deploys_as_same_version(deployments: Deployments, name: str) -> None:
    first = deployments.rune.json("deploy", str(EXAMPLES / name))
    text = deployments.rune.output("workflows", "show", first["workflow_id"], "--yaml")
    path = deployments.folder / "again.yaml"
    path.write_text(text)

    assert deployments.rune.json("deploy", str(path))["change"] == "none"


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
def test_yaml_round_trip_keeps_values(parameters: Raw) -> None:
    definition = {"edges": [], "id": "w", "nodes": [{"id": "n", "parameters": parameters, "type": "log"}]}

    decoded = decode_yaml(to_yaml(definition), max_bytes=LIMITS.definition_bytes, max_depth=LIMITS.json_depth)

    assert decoded.problems == ()
    assert json.dumps(decoded.value, sort_keys=True) == json.dumps(definition, sort_keys=True)


def test_diff_lists_nodes_edges_and_settings(two_versions: Deployments) -> None:
    result = two_versions.rune.json("workflows", "diff", "orders", "stable", "latest")

    assert (result["from"]["version"], result["to"]["version"]) == (1, 2)
    assert [(each["what"], each["id"], each["kind"]) for each in result["changes"]] == [
        ("settings", "", "changed"),
        ("node", "fetch", "changed"),
        ("node", "mail", "added"),
        ("node", "note", "removed"),
        ("edge", "fetch-mail", "added"),
        ("edge", "fetch-note", "removed"),
    ]
    assert result["changes"][1]["fields"] == [
        {"path": "parameters.url", "kind": "changed", "before": "http://a", "after": "http://b"}
    ]


def test_diff_prints_changes(two_versions: Deployments) -> None:
    assert two_versions.rune.output("workflows", "diff", "orders", "1").splitlines() == [
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
        two_versions.rune.output("workflows", "diff", "orders", "2", "latest")
        == "orders@2 and orders@2 are the same\n"
    )


def test_diff_of_text_order_and_labels(deployments: Deployments) -> None:
    def branching(text: str, *pairs: str) -> Raw:
        choice = node("c", "conditional", {"expression": "true"})
        return document([node("start", "input"), choice, node("n", "log", {"message": text})], *pairs, id="b")

    deployments.deploy(branching("one\ntwo\nthree", "start>c", "c>n:true"))
    later = branching("one\n2\nthree", "start>c", "c>n:false")
    later["nodes"][1], later["nodes"][2] = later["nodes"][2], later["nodes"][1]
    later["edges"][0]["id"] = "first"
    deployments.deploy(later)

    assert deployments.rune.output("workflows", "diff", "b", "1", "2").splitlines() == [
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


def test_diff_unified(two_versions: Deployments) -> None:
    lines = two_versions.rune.output("workflows", "diff", "orders", "1", "2", "--unified").splitlines()

    assert lines[:2] == ["--- orders@1", "+++ orders@2"]
    assert '-        "url": "http://a"' in lines


def test_restore_moves_latest_back(two_versions: Deployments) -> None:
    result = two_versions.rune.json("workflows", "restore", "orders@1")

    assert (result["version"], result["change"], result["aliases"]) == (1, "moved", ["latest", "stable"])
    assert two_versions.rune.json("workflows", "show", "orders")["version"] == 1
    assert two_versions.rune.output("workflows", "restore", "orders@stable") == "orders@1 is already latest\n"
    assert two_versions.rune.output("workflows", "restore", "orders@v2") == "orders@2 is now latest\n"


def test_restore_requires_version(two_versions: Deployments) -> None:
    (problem,) = two_versions.rune.json("workflows", "restore", "orders", code=2)["problems"]

    assert problem["code"] == "MISSING_VERSION"


def test_alias_points_to_given_version(two_versions: Deployments) -> None:
    assert (
        two_versions.rune.output("workflows", "alias", "orders", "canary", "2") == "orders@2 is now canary\n"
    )
    assert (
        two_versions.rune.output("workflows", "alias", "orders", "stable", "canary")
        == "orders@2 is now stable\n"
    )
    assert two_versions.rune.json("workflows")["workflows"][0]["aliases"] == {
        "canary": 2,
        "latest": 2,
        "stable": 2,
    }
    (problem,) = two_versions.rune.json("workflows", "alias", "orders", "v1", "2", code=2)["problems"]
    assert problem["code"] == "BAD_ALIAS"


def test_alias_weights_are_set_and_cleared(two_versions: Deployments) -> None:
    output = two_versions.rune.output("workflows", "alias", "orders", "stable", "1", "latest=30")
    assert output == "orders@1 is now stable, 30 % of its starts use version 2\n"
    shown = two_versions.rune.output("workflows", "show", "orders")
    assert "stable 70 %" in shown
    assert "stable 30 %" in shown
    assert two_versions.rune.json("workflows", "show", "orders")["weights"] == {"stable": {"2": 30.0}}
    again = two_versions.rune.json("workflows", "alias", "orders", "stable", "1", "2=30%")
    assert (again["change"], again["weights"]) == ("none", {"2": 30.0})
    for wrong in (("2",), ("2=much",), ("2=0",), ("2=60", "latest=10"), ("1=60", "2=60")):
        (problem,) = two_versions.rune.json("workflows", "alias", "orders", "stable", "1", *wrong, code=2)[
            "problems"
        ]
        assert problem["code"] == "BAD_WEIGHTS"
    assert (
        two_versions.rune.output("workflows", "alias", "orders", "stable", "1") == "orders@1 is now stable\n"
    )
    assert two_versions.rune.json("workflows", "show", "orders")["weights"] == {}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            ["1=50"],
            "`stable` points at version 1, which gets what the weights leave: give weights for other versions",
        ),
        (["2=10", "v1=5"], "`stable` points at version 1, which gets"),
        (["3=10", "latest=10"], "`latest=10`: version 3 is given twice"),
        (["2=60", "2=60"], "`2=60`: version 2 is given twice"),
        (["=10"], "`=10` names no version"),
        (["2="], "`2=` has no percentage"),
        (["2=nan"], "version 2 cannot get nan % of the starts"),
        (["2=-5"], "version 2 cannot get -5 % of the starts"),
        (["2=0"], "version 2 cannot get 0 % of the starts"),
        (["2=101"], "version 2 cannot get 101 % of the starts"),
        (["2=60", "3=60"], "the weights add up to 120 %"),
    ],
)
def test_weights_that_make_no_sense_are_named(
    two_versions: Deployments, weights: list[str], message: str
) -> None:
    two_versions.rune.output("deploy", two_versions.file(orders("http://c")))
    two_versions.rune.output("workflows", "alias", "orders", "stable", "1")

    (problem,) = two_versions.rune.json("workflows", "alias", "orders", "stable", "1", *weights, code=2)[
        "problems"
    ]

    assert problem["code"] == "BAD_WEIGHTS"
    assert problem["message"].startswith(message)
    assert two_versions.rune.json("workflows", "show", "orders")["weights"] == {}


def test_start_by_weighted_alias_uses_weighted_version(two_versions: Deployments) -> None:
    two_versions.rune.output("workflows", "alias", "orders", "stable", "1", "2=100")
    started = two_versions.rune.json("start", "orders@stable", "--key", "a", "--fake-time")
    second = two_versions.rune.json("workflows", "show", "orders@2")["hash"]
    assert started["hash"] == second


def test_remove_hides_workflow_until_restore(two_versions: Deployments) -> None:
    assert two_versions.rune.json("workflows", "remove", "orders") == {
        "status": "removed",
        "workflow_id": "orders",
        "changed": True,
    }
    assert two_versions.rune.output("workflows", "remove", "orders") == "orders was already removed\n"
    assert two_versions.rune.json("workflows")["workflows"] == []
    assert two_versions.rune.json("workflows", "--all")["workflows"][0]["hidden"] is True
    assert "(removed)" in two_versions.rune.output("workflows", "list", "--all")
    assert two_versions.rune.json("workflows", "show", "orders")["hidden"] is True
    assert "removed" in two_versions.rune("workflows", "alias", "orders", "stable", "2").stderr

    assert two_versions.rune.output("workflows", "restore", "orders@2") == "orders@2 is now latest\n"
    assert two_versions.rune.json("workflows")["workflows"][0]["latest"] == 2


def test_concurrent_deploys_get_consecutive_versions(deployments: Deployments) -> None:
    rune = Rune(deployments.rune.home)
    paths = []
    for number in range(4):
        paths.append(deployments.folder / f"{number}.json")
        paths[-1].write_text(json.dumps(orders(f"http://{number}")))

    running = [rune.begin("deploy", str(path), "--json") for path in paths]
    answers = [(*each.communicate(timeout=TIMEOUT_S), each.returncode) for each in running]

    assert [code for _, _, code in answers] == [0] * 4, answers
    assert sorted(json.loads(out)["version"] for out, _, _ in answers) == [1, 2, 3, 4]


def test_deploy_works_beside_file_owner(deployments: Deployments) -> None:
    nap = document([node("nap", "wait", {"amount": 1, "unit": "hours"})], id="nap")
    rune = Rune(deployments.rune.home)
    with rune.begin("run", deployments.file(nap)) as owner:
        try:
            until(lambda: deployments.rune.json("list")["executions"] or None, "it runs")
            result = deployments.deploy(orders())
            assert owner.poll() is None
        finally:
            owner.kill()

    assert result["version"] == 1
    assert deployments.rune.json("workflows", "show", "orders")["version"] == 1
