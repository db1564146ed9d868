"""What a wish says of a pipeline is looked at before anything is started."""

import pathlib

import pytest

pytest.importorskip("ortools")

from ones_slurm.elastic.pipeline_wish import pipeline_file
from ones_slurm.model.errors import NotFound, UsageError
from ones_slurm.pipeline import by_name, write_placement


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    write_placement(by_name("V4"), tmp_path / "blocks.toml")
    (tmp_path / "broken.json").write_text('{"name": "p"}')
    return tmp_path


def test_the_file_is_found_where_the_job_was_submitted(folder: pathlib.Path) -> None:
    wish = "charge:7 ones:pipeline=blocks.toml,devices=4,replicas=1-2"
    assert pipeline_file(wish, str(folder)) == folder / "blocks.toml"
    absolute = f"ones:pipeline={folder}/blocks.toml,replicas=1-2"
    assert pipeline_file(absolute, "/elsewhere") == folder / "blocks.toml"


@pytest.mark.parametrize("comment", ["", "charge:7", "ones:nodes=1-4", "ones:pipeline=blocks.toml"])
def test_other_jobs_have_none_and_a_wish_that_cannot_be_read_stops_no_training(
    folder: pathlib.Path, comment: str
) -> None:
    assert pipeline_file(comment, str(folder)) is None


@pytest.mark.parametrize(
    ("wish", "error", "says"),
    [
        ("pipeline=none.toml,replicas=1-2", NotFound, "there is no file"),
        ("pipeline=broken.json,replicas=1-2", UsageError, "broken.json"),
        ("pipeline=blocks.toml,devices=8,replicas=1-2", UsageError, "places its blocks on 4"),
    ],
)
def test_a_file_that_cannot_be_is_told_before_anything_starts(
    folder: pathlib.Path, wish: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        pipeline_file(f"ones:{wish}", str(folder))
