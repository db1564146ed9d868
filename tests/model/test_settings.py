"""One site file, one reader: a wrong key is named together with the right one."""

import pytest

from ones_slurm.model.errors import UsageError
from ones_slurm.model.settings import Site, load_site


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "site.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_every_table_may_be_left_out(write):
    assert load_site(write("")) == Site()


def test_a_full_file_is_read(write):
    site = load_site(write('name = "lab"\n[partitions.v100]\ngpus_per_node = 4\n[engine]\ninterval_s = 5\n'))
    assert site.name == "lab"
    assert site.partitions["v100"].gpus_per_node == 4
    assert site.engine.interval_s == 5


def test_the_environment_names_the_file(write, monkeypatch):
    monkeypatch.setenv("ONES_SITE", str(write('name = "from-env"')))
    assert load_site().name == "from-env"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[engine]\nintervall_s = 3", "did you mean 'interval_s'"),
        ("[partitions.v100]\ngpu_per_node = 4", "did you mean 'gpus_per_node'"),
        ("[policy.constants]\nalfa = 3", "did you mean 'alpha'"),
        ("nme = 3", "did you mean 'name'"),
        ("[engine]\ninterval_s = -3", r"engine.interval_s"),
        ("[engine]\ninterval_s = 'soon'", r"engine.interval_s"),
        ("[engine", "is not TOML"),
        ("a = = 3", "is not TOML"),
    ],
)
def test_a_wrong_file_is_answered_with_file_key_and_remedy(write, text, says):
    path = write(text)
    with pytest.raises(UsageError, match=says) as caught:
        load_site(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere\.toml"):
        load_site(tmp_path / "nowhere.toml")
