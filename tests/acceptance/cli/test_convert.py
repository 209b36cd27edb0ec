"""`rune convert` and `rune stubs`: files in every format, comparison, report and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rune.build import Workflow
from tests.support.in_process_cli import InProcessCli

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
APPROVAL = EXAMPLES / "approval" / "approval.yaml"


@pytest.fixture
def rune(tmp_path: Path) -> InProcessCli:
    return InProcessCli(tmp_path / "home")


def test_convert_to_python_and_back_keeps_meaning_and_comments(rune: InProcessCli, tmp_path: Path) -> None:
    code, text = tmp_path / "flow.py", tmp_path / "flow.yaml"

    rune.output("convert", str(APPROVAL), str(code))
    rune.output("convert", str(code), str(text))

    assert Workflow.load(text).hash == Workflow.load(APPROVAL).hash
    comments = [line.strip() for line in APPROVAL.read_text(encoding="utf-8").splitlines() if "#" in line]
    assert [line.strip() for line in text.read_text(encoding="utf-8").splitlines() if "#" in line] == comments


def test_convert_without_target_prints_yaml(rune: InProcessCli) -> None:
    assert rune.output("convert", str(EXAMPLES / "approval" / "approval.py")).startswith("# A large order")


def test_convert_check_of_twins_exits_0(rune: InProcessCli) -> None:
    result = rune("convert", "--check", str(APPROVAL), str(EXAMPLES / "approval" / "approval.py"))

    assert result.exit_code == 0
    assert result.stdout.startswith("same: ")


def test_convert_check_of_different_files_exits_1_with_changes(rune: InProcessCli, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    flow = Workflow.load(APPROVAL)
    flow["ask"].data["timeout"] = 1
    flow.save(other)

    result = rune("convert", "--check", str(APPROVAL), str(other), "--json")

    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["same"] is False
    assert found["changes"] == [{"what": "node", "id": "ask", "kind": "changed"}]


def test_convert_check_executes_no_file_that_does_more_than_declare_a_workflow(
    rune: InProcessCli, tmp_path: Path
) -> None:
    code, proof = tmp_path / "flow.py", tmp_path / "executed"
    rune.output("convert", str(APPROVAL), str(code))
    declared = code.read_text(encoding="utf-8")
    code.write_text(f"{declared}import os\nos.mkdir({str(proof)!r})\n", encoding="utf-8")

    for files in ([str(APPROVAL), str(code)], [str(code), str(APPROVAL)]):
        result = rune("convert", "--check", *files)
        assert result.exit_code == 2
        assert "is not executed: line" in result.stderr
        assert "--execute" in result.stderr
        assert not proof.exists()

    assert rune("convert", "--check", str(APPROVAL), str(code), "--execute").exit_code == 0
    assert proof.exists()


def test_convert_writes_code_of_the_document_as_text(
    rune: InProcessCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = '" + str(__import__("os").system("id>pwned")) + "{{ $trigger.a }}'
    flow = Workflow.load(
        {"id": "a", "nodes": [{"id": "n", "type": "log", "parameters": {"message": message}}]}
    )
    flow.save("x.yaml")

    rune.output("convert", "x.yaml", "x.py")
    assert rune.output("convert", "--check", "x.yaml", "x.py").startswith("same: ")
    rune.output("convert", "x.py", "back.yaml")

    assert Workflow.load("back.yaml")["n"].parameters == {"message": message}
    assert sorted(each.name for each in tmp_path.iterdir() if each.suffix or each.is_file()) == [
        "back.yaml",
        "x.py",
        "x.yaml",
    ]


def test_convert_report_lists_comments_that_are_not_carried(rune: InProcessCli, tmp_path: Path) -> None:
    source = tmp_path / "a.yaml"
    source.write_text("id: a\nnodes:\n  - id: n\n    # inside\n    type: input\n", encoding="utf-8")

    result = rune("convert", str(source), str(tmp_path / "a.py"), "--report")

    assert result.exit_code == 0
    assert f"{source}:4: not carried: # inside" in result.stderr


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.txt", "x", "UNKNOWN_FORMAT"),
        ("a.py", "raise RuntimeError('no')", "UNKNOWN_FORMAT"),
        ("a.yaml", "nodes: [", "NOT_YAML"),
    ],
)
def test_convert_of_unusable_file_exits_2(
    rune: InProcessCli, tmp_path: Path, name: str, content: str, code: str
) -> None:
    source = tmp_path / name
    source.write_text(content, encoding="utf-8")

    result = rune("convert", str(source), str(tmp_path / "out.py"), "--json")

    assert result.exit_code == 2
    assert [each["code"] for each in json.loads(result.stdout)["problems"]] == [code]


def test_stubs_writes_constructors_that_place_custom_nodes(
    rune: InProcessCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "custom-nodes" / "src"))

    rune.output("stubs", "--nodes", "acme_nodes", "-o", str(tmp_path / "flows"))

    code = (tmp_path / "flows" / "acme_nodes_build.py").read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "acme_nodes_build"}
    exec(compile(code, "acme_nodes_build.py", "exec"), namespace)
    flow = Workflow("stubs")
    with flow:
        made = namespace["acme_slug"]("address", text="A title", longest=10)  # type: ignore[operator]
    assert made.data == {
        "id": "address",
        "type": "acme.slug",
        "parameters": {"text": "A title", "longest": 10},
    }


@pytest.mark.parametrize("target", [[], ["b.yaml"], ["b.json"], ["b.py"]])
@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ('id: t\nname: !!python/object/apply:os.system ["id"]\nnodes: []\n', "apply:os.system` is"),
        ("id: t\nmetadata: {a: &a [1], b: *a}\nnodes: []\n", "anchors and aliases are"),
    ],
)
def test_convert_writes_no_tags_or_aliases_again(
    rune: InProcessCli, tmp_path: Path, text: str, refused: str, target: list[str]
) -> None:
    source = tmp_path / "a.yaml"
    source.write_text(text, encoding="utf-8")

    result = rune("convert", str(source), *(str(tmp_path / each) for each in target))

    assert result.exit_code != 0
    assert "python/object" not in result.stdout
    assert f"{refused} not supported" in result.output
    assert not list(tmp_path.glob("b.*"))
