"""What all pages of the site keep to: one question each, few words, and a place in the navigation."""

import re

import pytest

from tests.pages import ROOT, text

PAGES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))
RESEARCH = [page for page in PAGES if page.startswith("docs/research/")]
MOST_WORDS = 1200


def hand_written(page):
    """Without code, generated tables and what is read from docstrings."""
    kept = re.sub(r"^```.*?^```$", "", text(page), flags=re.DOTALL | re.MULTILINE)
    kept = re.sub(r"<!-- (?:tables|generated|research/data).*?<!-- end -->", "", kept, flags=re.DOTALL)
    return re.sub(r"^::: .*\n(?: +.*\n)*", "", kept, flags=re.MULTILINE)


def first_block(page):
    """What follows the heading, up to an empty line."""
    heading, _, rest = text(page).partition("\n\n")
    assert heading.startswith("# ") and "\n" not in heading, f"{page} begins with its question"
    return rest.partition("\n\n")[0].splitlines()


@pytest.mark.parametrize("page", PAGES)
def test_no_page_has_more_words_than_one_reads(page):
    words = re.sub(r"[|`*#>-]|\]\([^)]*\)", " ", hand_written(page)).split()
    assert len(words) <= MOST_WORDS


def test_the_readme_is_read_in_three_minutes():
    assert 400 <= len(text("README.md").split()) <= 700


@pytest.mark.parametrize("page", PAGES)
def test_every_page_asks_one_question_and_opens_with_the_answer(page):
    assert text(page).partition("\n")[0].endswith("?")
    assert re.match(r"[A-Za-z`*\[(-]", first_block(page)[0]), f"{page} opens with a sentence, not with code or a table"


@pytest.mark.parametrize("page", RESEARCH)
def test_every_research_page_opens_with_a_summary_of_five_lines(page):
    lines = first_block(page)
    assert len(lines) == 5
    assert all(line.startswith("- ") and len(line) <= 160 for line in lines)


def test_every_page_is_in_the_navigation_once():
    listed = re.findall(r"^ +- .+: (\S+\.md)$", text("mkdocs.yml"), re.MULTILINE)
    assert sorted(f"docs/{page}" for page in listed) == PAGES


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]:
        for target in re.findall(r"\]\(((?!https?:)[^)#]+)[)#]", text(page)):
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page} -> {target}"


def test_pages_that_code_names_are_there():
    named = {
        (path, name)
        for folder in ("tfplace", "research", "tests", "scripts", "grappler_bridge")
        for path in ROOT.glob(f"{folder}/**/*.py")
        for name in re.findall(r"\bdocs/[\w/]+\.md", path.read_text())
    }
    assert not [(path, name) for path, name in named if not (ROOT / name).exists()]


def test_pages_that_moved_are_listed():
    rows = re.findall(r"^\| `docs/(\w+)\.md` \| (.+) \|$", text("docs/reference/moved.md"), re.MULTILINE)
    assert len(rows) == 30
    for _, found in rows:
        assert re.search(r"\]\([\w./]+\.md\)", found)
