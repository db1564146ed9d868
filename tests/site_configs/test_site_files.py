"""Every site file that we ship can be read, says what it claims, and explains itself."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ones_slurm.model.settings import Site, load_site

FOLDER = Path(__file__).parents[2] / "site_configs"
FILES = sorted(FOLDER.glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_site_file_is_right_and_named_after_itself(path: Path) -> None:
    assert load_site(path).name == path.stem


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_number_has_its_unit_in_its_name(path: Path) -> None:
    counted = {"seed"}
    for line in path.read_text().splitlines():
        if (found := re.match(r"(\w+) = [\d.]+", line)) is not None:
            name = found[1]
            assert name in counted or re.search(r"_(s|gpus|ticks|node|tick|gib|hour)$", name), name


@pytest.mark.parametrize(
    ("name", "claim"),
    [
        ("longhorn", lambda site: site.partitions["v100"].gpus_per_node == 4 and site.moves.companions == "agent"),
        ("frontera-rtx", lambda site: site.partitions["flex"].elastic and not site.partitions["rtx-dev"].elastic),
        ("perlmutter", lambda site: all(part.gpus_per_node == 0 for part in site.partitions.values())),
        ("one-node", lambda site: site.daemon.auth == "socket"),
        ("juwels-booster", lambda site: not site.moves.shrink and site.moves.requeue),
    ],
)
def test_each_file_says_what_its_kind_of_site_needs(name: str, claim: Callable[[Site], bool]) -> None:
    assert claim(load_site(FOLDER / f"{name}.toml"))
