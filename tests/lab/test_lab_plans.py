"""What can be said of a lab without building one."""

import stat
from pathlib import Path

import pytest

from ones_slurm.cli.lab import PROFILE_NAMES
from ones_slurm.lab import PROFILES, LabSpec, packages, people, slurm_conf
from ones_slurm.lab.lab import Lab
from ones_slurm.model.errors import NotAllowed, UsageError


def test_a_spec_refuses_what_cannot_be_built() -> None:
    for wrong in ({"name": "Über"}, {"nodes": 0}, {"nodes": 255}, {"cpus_per_gpu": 0}, {"profile": "slinky"}):
        with pytest.raises(UsageError):
            LabSpec(**wrong)


def test_a_whole_node_site_never_mentions_gpus_to_slurm(tmp_path: Path) -> None:
    files = slurm_conf.config_files(LabSpec(profile="whole-node"), tmp_path, (22, 5))
    text = files["slurm.conf"][0].lower()
    assert "gres" not in text
    assert "oversubscribe=exclusive" in text
    assert "gres.conf" not in files


def test_overrides_replace_keys_and_files_are_added(tmp_path: Path) -> None:
    spec = LabSpec(slurm_conf={"KillWait": "30", "JobSubmitPlugins": "lua"}, etc_slurm={"job_submit.lua": "return 0"})
    files = slurm_conf.config_files(spec, tmp_path, (24, 11))
    lines = files["slurm.conf"][0].splitlines()
    assert [line for line in lines if line.startswith("KillWait")] == ["KillWait=30"]
    assert "JobSubmitPlugins=lua" in lines
    assert files["job_submit.lua"] == ("return 0", 0o644)
    assert files["cgroup.conf"][0] == "CgroupPlugin=disabled\n"


def test_the_labs_users_are_added_to_the_machines_own() -> None:
    passwd, mode = people.account_files()["passwd"]
    assert mode == 0o644
    assert passwd.startswith(Path("/etc/passwd").read_text().splitlines()[0])
    assert passwd.splitlines()[-1] == "user2:x:61002:61002:user2 of the lab:/home/user2:/bin/bash"


def test_no_password_of_the_machine_goes_into_a_lab() -> None:
    shadow, mode = people.account_files()["shadow"]
    assert mode == 0o600
    assert {line.split(":")[1] for line in shadow.splitlines()} == {"*"}


def test_the_command_knows_every_profile() -> None:
    assert tuple(PROFILES) == PROFILE_NAMES


def test_without_root_one_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(NotAllowed, match="needs root"):
        Lab().up()
    monkeypatch.setattr(packages, "missing", lambda: ["slurmd", "munge"])
    with pytest.raises(NotAllowed) as refusal:
        packages.ensure()
    assert refusal.value.message == "packages are missing: slurmd munge"
    assert refusal.value.hint == "as root: apt-get install -y --no-install-recommends slurmd munge"


def test_services_are_forbidden_during_an_install_and_the_old_policy_returns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    policy = tmp_path / "policy-rc.d"
    policy.write_text("the site's own")
    monkeypatch.setattr(packages, "POLICY", policy)
    with packages._no_service_starts():
        assert "exit 101" in policy.read_text()
        assert policy.stat().st_mode & stat.S_IXUSR
    assert policy.read_text() == "the site's own"
    assert list(tmp_path.iterdir()) == [policy]
