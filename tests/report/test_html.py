import dataclasses
from html.parser import HTMLParser

from tests.report.cases import cost, placement
from tfplace.core.stepcost import Failure, FailureKind
from tfplace.report.html import placement_html


class Outline(HTMLParser):
    """Open tags are closed in order; collects tags and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("br", "img", "input", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_tells_what_the_summary_tells():
    placed = placement(0.010, {"single GPU:0": cost(0.0142), "single GPU:1": cost(0.02, peak=(9, 9))})
    outline = Outline(placed._repr_html_())
    text = " ".join(outline.words)
    assert outline.open == []
    assert "1.42 times faster than the best single device (GPU:0)" in text
    assert "does not fit (needs 9.00 GiB of 4.00 GiB on GPU:0)" in text
    widths = [a["style"] for t, a in outline.tags if t == "div" and a.get("class") == "compute"]
    assert widths == ["width:60.0%", "width:30.0%"]
    keys = [a["class"] for t, a in outline.tags if t == "span" and "class" in a]
    assert keys == ["key compute", "key transfer"]


def test_a_notebook_gets_the_style_once():
    assert placement()._repr_html_().count("<style>") == 1


def test_each_table_scrolls_by_itself():
    tags = Outline(placement_html(placement(baselines={"single GPU:0": cost(0.02)}))).tags
    regions = [a for before, (tag, a) in zip(tags[1:], tags, strict=False) if tag == "div" and before[0] == "table"]
    assert [a["aria-label"] for a in regions] == ["Devices (simulated)", "Step times (simulated)"]
    assert all((a["class"], a["tabindex"], a["role"]) == ("wide", "0", "region") for a in regions)


def test_what_tensorflow_said_may_take_several_lines():
    failed = dataclasses.replace(cost(0.02), failure=Failure(FailureKind.ERROR, "many words"))
    assert '<div class="long">failed: error: many words</div>' in placement_html(placement(baselines={"x": failed}))


def test_names_are_escaped_and_nothing_is_loaded():
    page = placement_html(placement(placer="<script>alert(1)</script>"))
    tags = [tag for tag, _ in Outline(page).tags]
    assert "script" not in tags
    assert "&lt;script&gt;" in page
    assert "http" not in page
