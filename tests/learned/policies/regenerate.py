"""Writes the goldens of tests/learned/policies anew: python tests/learned/policies/regenerate.py, then look at the
difference."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.learned.policies.test_policies import GOLDENS, POLICIES, golden_run

GOLDENS.write_text(json.dumps({name: golden_run(name) for name in POLICIES}, indent=1) + "\n")
