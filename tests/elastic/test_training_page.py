"""Every program on the page for users runs as it stands there."""

import importlib.util
import json
import pathlib
import re
import sys

import pytest

pytest.importorskip("torch")

from .conftest import CHECKOUT
from .moving import run_to_its_end

pytestmark = pytest.mark.torch

RUN = "import json, pathlib, sys; [exec(block, {'__name__': '__main__'}) for block in json.load(open(sys.argv[1]))]"


def test_the_programs_of_the_page_run(rank_env: dict[str, str], tmp_path: pathlib.Path) -> None:
    page = (CHECKOUT / "docs" / "training.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    for package in ("lightning", "transformers"):
        if importlib.util.find_spec(package) is None:
            blocks = [block for block in blocks if package not in block]
    (tmp_path / "blocks.json").write_text(json.dumps(blocks))
    # The Trainer writes into the folder where it is started.
    run = f"import os; os.chdir({str(tmp_path)!r}); {RUN}"
    run_to_its_end([sys.executable, "-c", run, str(tmp_path / "blocks.json")], rank_env)
