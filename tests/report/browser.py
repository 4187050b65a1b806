"""Pages looked at in headless Chromium: what a script finds in a page of some width."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape, unescape

import pytest

needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")

_ALONE = ("background-networking", "component-update", "sync", "gpu")


def seen(page, script, width, folder, *, dark=False):
    """What the script, a function of the page's window, returns as JSON.

    The page is in a frame of that width, as a window may have a least one.
    """
    path = folder / "framed.html"
    path.write_text(
        f"""<!doctype html><title>-</title>
        <iframe srcdoc="{escape(page)}" style="width: {width}px; height: 900px; border: 0"></iframe>
        <script>
        onload = () => {{
          const found = ({script})(document.querySelector("iframe").contentWindow);
          document.title = JSON.stringify(found);
        }}
        </script>"""
    )
    command = ["chromium", "--headless", "--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in _ALONE)]
    command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    command += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=3000", "--dump-dom"]
    shown = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, check=True, timeout=120).stdout
    return json.loads(unescape(re.search(r"<title>(.+?)</title>", shown)[1]))
