"""What users and their scripts rely on: names, options, exit codes and a fast start."""

import json
import subprocess
import sys

import click
import pytest

from ones_slurm.cli.main import ones
from ones_slurm.daemon.main import onesd


def options(command: click.Command) -> list[str]:
    context = click.Context(command)
    return sorted(max(param.opts, key=len) for param in command.get_params(context) if param.opts[0].startswith("-"))


def test_the_options_are_these():
    """A change here is a change for every script that calls us: keep old names working, and say so in the changelog."""
    context = click.Context(ones)
    theirs = {"lab", "pipeline", "report", "sim", "trace"}  # frozen beside their own tests
    surface = {name: options(ones.get_command(context, name)) for name in ones.list_commands(context)}
    assert {name: found for name, found in surface.items() if name not in theirs} == {
        "agent": ["--help"],
        "ctl": ["--help"],
        "doctor": ["--help", "--json", "--site"],
        "eff": ["--from", "--help", "--journal", "--json", "--ledger"],
        "info": ["--format", "--help", "--json", "--noheader", "--partition"],
        "page": ["--help"],
        "plan": ["--help", "--json"],
        "queue": ["--format", "--help", "--jobs", "--json", "--noheader", "--partition", "--user"],
        "show": ["--help", "--json"],
        "submit": ["--batch", "--dry-run", "--gpus", "--help", "--nodes", "--pipeline", "--replicas"],
        "version": ["--help"],
        "why": ["--help", "--json", "--last"],
    }
    names = "agent ctl doctor eff info lab page pipeline plan queue report show sim submit trace version why"
    assert sorted(surface) == names.split()
    assert options(ones) == ["--debug", "--help", "--site"]
    assert options(onesd) == ["--debug", "--help", "--observe", "--site", "--user", "--version"]


def test_a_command_loads_little():
    """Heavy libraries are imported by the subcommand that needs them."""
    script = "import sys; from ones_slurm.cli.main import ones; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"aiohttp", "numpy", "torch", "mpi4py", "rich", "ClusterShell", "sqlite3"} & set(loaded)


def test_an_unknown_command_is_wrong_use():
    done = subprocess.run([sys.executable, "-m", "ones_slurm.cli.main", "quueue"], capture_output=True, check=False)
    assert done.returncode == 2


def test_the_doctor_takes_the_site_file_in_its_own_words_too(tmp_path):
    site = tmp_path / "site.toml"
    site.write_text("[engine]\ninterval = 3\n")
    done = subprocess.run(
        [sys.executable, "-m", "ones_slurm.cli.main", "doctor", "--site", site],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert "did you mean 'interval_s'?" in done.stdout


@pytest.mark.parametrize("as_json", [False, True])
def test_without_slurm_the_doctor_says_what_to_install(tmp_path, as_json):
    site = tmp_path / "site.toml"
    site.write_text(f'[daemon]\nauth = "socket"\nsocket = "{tmp_path}/none.sock"\n')
    done = subprocess.run(
        [sys.executable, "-m", "ones_slurm.cli.main", "--site", site, "doctor", *(["--json"] if as_json else [])],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (4, "")
    if as_json:
        answer = json.loads(done.stdout)
        assert answer["version"] == 1
        assert {check["name"] for check in answer["checks"] if check["level"] == "FAIL"} >= {"slurm commands"}
        assert all(check["remedy"] for check in answer["checks"] if check["level"] != "OK")
    else:
        assert "FAIL  slurm commands" in done.stdout
        assert "-> install Slurm's client commands" in done.stdout


@pytest.mark.parametrize("words", [["submit", "--nodes", "1-2", "x.sh"], ["submit", "--nodes", "2", "--wrap", "true"]])
def test_without_slurm_nothing_is_submitted_and_the_exit_code_is_4(tmp_path, words):
    done = subprocess.run(
        [sys.executable, "-m", "ones_slurm.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert done.returncode == 4
    assert "no scontrol on this machine" in done.stderr
