"""README.md and the pages: reports are what the commands print, programs run, commands and links exist.

``python -m tests.test_readme`` runs the commands of README's reports and writes what they print into it.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tinyxp.cli.commands import cli

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, ROOT / "examples" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
REPORT = re.compile(r"```console\n\$ tinyxp (?P<command>.*)\n(?P<report>(?:.*\n)*?)```\n")
NUMBER = re.compile(r"\d+(\.\d+)?e[+-]\d+|\d+\.\d+")


def printed(command: str) -> str:
    """What a tinyxp command prints, in the repository's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        result = CliRunner().invoke(cli, shlex.split(command), standalone_mode=False)
    assert result.return_value == 1, result.output  # the two sides differ
    return "".join(f"{line.rstrip()}\n" for line in result.output.splitlines())


def normalised(report: str) -> list[str]:
    """The report without its measured numbers, which depend on the machine, and the spaces around them."""
    return [" ".join(NUMBER.sub("N", line).split()) for line in report.splitlines()]


@pytest.mark.parametrize("command", ["diff", "diagnose"])
def test_reports_are_what_the_commands_print(command: str) -> None:
    (match,) = [m for m in REPORT.finditer(README.read_text()) if m["command"].startswith(f"{command} ")]
    assert normalised(match["report"]) == normalised(printed(match["command"]))


def test_the_report_names_the_mistake_of_the_port() -> None:
    port = (ROOT / "examples" / "faulty_port.py").read_text()
    assert "np.tile" in port
    *_, diagnosis = REPORT.finditer(README.read_text())
    assert "not tile" in diagnosis["report"]


@pytest.mark.parametrize("page", ["README.md", "docs/library.md"])
def test_programs_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jax")
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(program, names)
    for name, shape in re.findall(r"\b(logits|points)\b.*# .*\((\d[\d, ]*)\)", program):
        x = names[name]
        x = x["blocks.0.attn.weights"] if name == "points" else x  # type: ignore[index]
        assert ", ".join(map(str, x.shape)) == shape  # type: ignore[attr-defined]


def test_commands_exist() -> None:
    code = "\n".join(re.findall(r"```sh\n.*?```|`[^`\n]+`", "\n".join(map(Path.read_text, PAGES)), re.DOTALL))
    mentioned = set(re.findall(r"\btinyxp ([a-z]+)\b", code))
    assert {"generate", "diff", "diagnose", "trace", "train"} <= mentioned <= set(cli.commands)


def test_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    mentioned = set(re.findall(r"(?:^|`)make ([\w-]+)", "\n".join(map(Path.read_text, PAGES)), re.MULTILINE))
    assert {"demo", "test"} <= mentioned <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_readme_links_every_page() -> None:
    links = set(re.findall(r"\]\(docs/(\w[\w-]*\.md)\)", README.read_text()))
    assert links == {page.name for page in (ROOT / "docs").glob("*.md")}


def test_the_number_of_planted_faults() -> None:
    (count,) = set(re.findall(r"\[(\d+) planted faults\]", README.read_text()))
    assert (
        f"\n{count} of {count} rows are right on all three backends."
        in (ROOT / "docs" / "faults.md").read_text()
    )


def fill() -> None:
    """Write the reports into README.md."""
    text = README.read_text()
    for match in reversed(list(REPORT.finditer(text))):
        text = text[: match.start("report")] + printed(match["command"]) + text[match.end("report") :]
    README.write_text(text)


if __name__ == "__main__":
    fill()
