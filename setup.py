"""Packaging. Extras keep a login node light: no Slurm headers, no GPU and no MPI are needed for the plain install."""

import pathlib
import re

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+?)"', (ROOT / "ones_slurm" / "__init__.py").read_text())[1]


def data_files() -> list[tuple[str, list[str]]]:
    """What lies beside the package, by the folder below the prefix that each file goes to.

    `share/` is made by `make dist` from the commands themselves; a plain checkout has none and installs without.
    """
    folders: dict[str, list[str]] = {}
    for source, target in (
        ("site_configs", "share/ones-slurm/site_configs"),
        ("sbatch_templates", "share/ones-slurm/sbatch_templates"),
        ("share", "share"),
    ):
        for path in sorted((ROOT / source).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
                below = path.parent.relative_to(ROOT / source)
                folders.setdefault(str(pathlib.PurePath(target) / below), []).append(str(path.relative_to(ROOT)))
    return list(folders.items())


EXTRAS = {
    "slurm": ["pyslurm"],
    "train": ["torch>=2.6", "mpi4py>=4.0"],
    "lightning": ["lightning>=2.5"],
    "hf": ["transformers>=5.0", "accelerate>=1.10"],
    "report": ["matplotlib>=3.8", "scipy>=1.11"],
    "pipeline": ["ortools>=9.10"],
    "dev": [
        "pytest>=8.2",
        "pytest-rerunfailures>=15",
        "pytest-timeout>=2.3",
        "pytest-xdist>=3.6",
        "hypothesis>=6.100",
        "ruff>=0.6",
        "mypy>=1.11",
        "import-linter>=2.0",
        "types-toml",
        "scikit-learn>=1.4",
        "lupa>=2.2",
        "build>=1.2",
        "click-man>=0.6",
    ],
}

setup(
    name="ones-slurm",
    version=VERSION,
    description="An elastic co-scheduler for deep-learning jobs that sits next to Slurm",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11",
    packages=find_packages(include=["ones_slurm", "ones_slurm.*"]),
    package_data={"ones_slurm": ["*/templates/*"]},
    data_files=data_files(),
    scripts=["wrappers/ones-run", "wrappers/ones-rank"],
    entry_points={"console_scripts": ["ones=ones_slurm.cli.main:main", "onesd=ones_slurm.daemon.main:main"]},
    install_requires=[
        "aiohttp>=3.9",
        "click>=8.1",
        "ClusterShell>=1.9",
        "jinja2>=3.1",
        "msgspec>=0.18.6",
        "numpy>=1.26",
        "prometheus-client>=0.20",
        "rich>=13.7",
        "toml>=0.10.2",
    ],
    # pyslurm is left out of "all": its build demands one very release of Slurm and its headers.
    extras_require={**EXTRAS, "all": EXTRAS["train"] + EXTRAS["report"] + EXTRAS["pipeline"]},
)
