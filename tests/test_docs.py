import json
import re
from pathlib import Path
from statistics import geometric_mean

from tfplace import Topology
from tfplace.cli.options import parse, place_flags
from tfplace.compare.journal import Journal
from tfplace.compare.placers_table import compare_tables
from tfplace.compare.standings import goals, standings
from tfplace.compare.tables import fidelity_tables, speed_table
from tfplace.learning.metrics import TAGS

ROOT = Path(__file__).resolve().parents[1]


def text(name):
    return (ROOT / name).read_text()


def test_every_flag_is_documented_and_every_documented_flag_exists():
    documented = set(re.findall(r"`--(\w+)", text("docs/cli.md")))
    assert documented == set(place_flags())


def test_every_preset_is_documented():
    assert all(f"`{name}`" in text("docs/topology.md") for name in Topology.presets())


def test_the_example_topology_loads():
    example = json.loads(re.search(r"```json\n(.*?)```", text("docs/topology.md"), re.DOTALL)[1])
    topology = Topology.from_dict(example)
    assert topology.device_names == ("CPU:0", "GPU:0", "GPU:1")
    assert "uplink" in topology.channel_names


def test_the_readme_commands_are_one_line_each_and_parse():
    place, test = re.findall(r"^python3\.11 -m venv .*$", text("README.md"), re.MULTILINE)
    flags = parse(place.partition("tfplace place ")[2].split())
    assert flags.model == "inception_v3"
    assert flags.topology in Topology.presets()
    assert "-m pytest" in test


def test_links_between_documents_lead_somewhere():
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(((?!https?:)[^)#]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} -> {target}"


def test_the_tables_of_fidelity_are_those_of_the_committed_results():
    results = json.loads(text("benchmarks/fidelity.json"))
    assert fidelity_tables(results) in text("docs/fidelity.md")
    assert speed_table(results) in text("README.md")


def test_the_tables_of_the_comparison_are_those_of_the_committed_results():
    header = json.loads(text("benchmarks/compare.jsonl").partition("\n")[0])["header"]
    journal = Journal(ROOT / "benchmarks" / "compare.jsonl", header)
    rows = [row for row in standings(journal) if row.runs]
    assert compare_tables(rows) in text("docs/comparison.md")
    found, readme, page = goals(rows), _unwrapped("README.md"), _unwrapped("docs/comparison.md")
    best = found.cases - found.behind
    behind = max((factor for _, _, factor in found.beaten), default=1.0) - 1
    assert f"every other placer here in {best} of {found.cases} cases and at most {100 * behind:.1f} % behind" in readme
    assert f"`auto` has the best placement in {best} of {found.cases} cases" in page
    assert f"is ahead by at most {100 * behind:.1f} %" in page
    faster = 100 * (1 - geometric_mean(found.over_constructive))
    assert f"by {faster:.0f} % faster than the best list scheduling" in readme


def _unwrapped(name):
    return " ".join(text(name).split())


def test_every_name_that_policies_log_is_documented():
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", text("docs/policies.md").split("## What is logged")[1], re.M)
    assert dict(rows) == TAGS
