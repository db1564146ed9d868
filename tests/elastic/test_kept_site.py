"""A site file that is broken while a job waits for its restart does not end the job."""

import pathlib

import pytest

from ones_slurm.elastic.kept_site import keep_site, read_site
from ones_slurm.elastic.runfolder import RunFolder
from ones_slurm.model.errors import UsageError


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.prepare()
    return made


@pytest.fixture
def site(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "ones.toml"
    path.write_text('name = "good"\n')
    return path


def test_a_restart_goes_on_with_the_file_as_it_was_and_says_so(
    folder: RunFolder, site: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_site(folder, site)
    site.write_text('nam = "broken"\n')
    assert read_site(folder, site).name == "good"
    said = capsys.readouterr().err
    assert "did you mean 'name'?" in said
    assert "going on with the site file as it was" in said


def test_a_file_in_order_counts_as_it_is_now(folder: RunFolder, site: pathlib.Path) -> None:
    keep_site(folder, site)
    site.write_text('name = "new"\n')
    assert read_site(folder, site).name == "new"


def test_a_broken_file_is_not_kept(folder: RunFolder, site: pathlib.Path) -> None:
    keep_site(folder, site)
    site.write_text('nam = "broken"\n')
    keep_site(folder, site)
    assert read_site(folder, site).name == "good"


def test_a_first_run_is_refused_with_the_reason(folder: RunFolder, site: pathlib.Path) -> None:
    site.write_text('nam = "broken"\n')
    with pytest.raises(UsageError, match="nam"):
        read_site(folder, site)


def test_so_is_one_whose_folder_is_not_there_yet(tmp_path: pathlib.Path, site: pathlib.Path) -> None:
    site.write_text('nam = "broken"\n')
    with pytest.raises(UsageError, match="nam"):
        read_site(RunFolder(tmp_path / "none"), site)
