"""What an administrator gets: a wheel and an sdist that hold all of it, made by the project's own commands."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePath

import pytest

ROOT = Path(__file__).parents[2]
# Beside these, a checkout holds what was made: environments, caches, the tests' own leftovers.
PARTS = ("ones_slurm", "wrappers", "sbatch_templates", "site_configs", "tools")
FILES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "Makefile")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist, made from a copy of this checkout as `make dist` makes them."""
    tree = tmp_path_factory.mktemp("tree")
    for name in PARTS:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)
    subprocess.run([sys.executable, "tools/share.py"], cwd=tree, check=True, env={"PYTHONPATH": str(tree)})
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tree / "dist", tree]
    subprocess.run(build, check=True, capture_output=True)
    return tree / "dist"


def wanted() -> set[str]:
    """All that lies beside the package and must travel, by its path below the prefix."""
    beside = {
        f"share/ones-slurm/{path.relative_to(ROOT)}"
        for folder in ("site_configs", "sbatch_templates")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    made_here = {
        "share/man/man1/ones.1",
        "share/man/man1/ones-queue.1",
        "share/man/man1/onesd.1",
        "share/man/man1/ones-run.1",
        "share/bash-completion/completions/ones",
        "share/zsh/site-functions/_ones",
        "share/fish/vendor_completions.d/ones.fish",
    }
    return beside | made_here


def test_the_wheel_holds_all_of_it(made: Path) -> None:
    (wheel,) = made.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    data = {name.split(".data/data/", 1)[1] for name in names if ".data/data/" in name}
    assert wanted() - data == set()
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "ones_slurm").rglob("*.py")}
    assert modules - set(names) == set()


def test_the_sdist_holds_all_of_it(made: Path) -> None:
    (sdist,) = made.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {str(PurePath(*PurePath(name).parts[1:])) for name in archive.getnames()}
    tracked = {name.removeprefix("share/ones-slurm/") for name in wanted()}
    assert tracked - names == set()


def test_what_is_installed_runs_without_the_checkout(made: Path, tmp_path: Path) -> None:
    (wheel,) = made.glob("*.whl")
    # Without --ignore-installed pip takes the project that it finds away, which is the one under test.
    options = ["-q", "--no-deps", "--no-index", "--ignore-installed", "--prefix", tmp_path]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, wheel], check=True, capture_output=True)
    assert Path(sys.executable).with_name("onesd").exists()
    (site,) = tmp_path.glob("lib/python*/site-packages")
    shown = subprocess.run(
        [tmp_path / "bin" / "ones", "version"],
        env={"PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "ones" in shown.stdout
    page = (tmp_path / "share/man/man1/ones-queue.1").read_text()
    assert ".SH OPTIONS" in page
