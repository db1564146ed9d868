"""What the configuration of a site allows and rules out."""

from pathlib import Path

import pytest
from places import runner
from scripted import Says, Scripted

from ones_slurm.lab import Lab
from ones_slurm.model.errors import Unreachable
from ones_slurm.slurm.choose import choose_client, rules_out
from ones_slurm.slurm.cli_client import CommandClient
from ones_slurm.slurm.config_text import read_config
from ones_slurm.slurm.probe import probe, site_facts
from ones_slurm.slurm.releases import Release

CONFIG = Path(__file__).with_name("samples").joinpath("config-22.05.8.txt").read_text(encoding="utf-8")


def facts(level: str = "Operator", user: str = "ones", release: Release | None = None, **changed: str):
    return site_facts(read_config(CONFIG) | changed, release or Release(22, 5, 8), user=user, admin_level=level)


def test_a_site_that_allows_everything():
    site = facts()
    assert (site.version, site.cluster, site.can_shrink, site.can_requeue) == ("22.05.8", "lab", True, True)
    assert (site.requeue_delay_s, site.kill_wait_s, site.min_job_age_s) == (6, 5, 300)
    assert (site.gres_types, site.mpi_default, site.select_type) == (("gpu",), "pmix", "select/cons_tres")
    assert (site.accounting, site.comment_in_accounting, site.gpus_counted) == (True, True, True)
    assert (site.rate_limited, site.preempt_requeues, site.is_operator) == (False, False, True)
    assert (site.ruled_out, site.notes) == ((), ())


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"SchedulerParameters": "bf_interval=5,disable_job_shrink"}, "disable_job_shrink"),
        ({"JobRequeue": "0"}, "JobRequeue=0"),
    ],
)
def test_what_a_site_rules_out_is_told_with_its_reason(changed, reason):
    site = facts(**changed)
    assert site.can_shrink is ("shrink" not in reason)
    assert site.can_requeue is ("Requeue" not in reason)
    assert reason in site.ruled_out[0]


@pytest.mark.parametrize(
    ("release", "can"), [((23, 2, 6), False), ((23, 2, 7), True), ((23, 11, 0), False), ((23, 11, 1), True)]
)
def test_releases_that_crash_after_a_resize_are_not_made_to(release, can):
    assert facts(release=Release(*release)).can_shrink is can


@pytest.mark.parametrize(
    ("changed", "seconds"),
    [
        ({"AuthInfo": ""}, 121),
        ({"AuthInfo": "socket=/x,cred_expire=30"}, 31),
        ({"SchedulerParameters": "requeue_delay=7"}, 7),
    ],
)
def test_the_delay_of_a_requeued_job(changed, seconds):
    assert facts(**changed).requeue_delay_s == seconds


@pytest.mark.parametrize(
    ("user", "level", "operator"),
    [("root", "None", True), ("ones", "Administrator", True), ("ones", "None", False), ("ones", "unknown", False)],
)
def test_whose_jobs_can_be_moved(user, level, operator):
    site = facts(level, user)
    assert site.is_operator is operator
    assert any("own jobs" in note for note in site.notes) is not operator


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({"AccountingStorageType": "accounting_storage/none"}, "no slurmdbd"),
        ({"AccountingStorageTRES": "cpu,mem"}, "lacks gres/gpu"),
        ({"AccountingStoreFlags": "job_env"}, "job_comment"),
        ({"GresTypes": ""}, "gpus_per_node"),
        ({"SlurmctldParameters": "rl_enable"}, "rate-limited"),
        ({"SlurmctldParameters": "enable_stepmgr"}, "enable_stepmgr"),
        ({"JobSubmitPlugins": "lua"}, "lua"),
    ],
)
def test_what_is_worth_knowing(changed, note):
    assert any(note in said for said in facts(**changed).notes)


def test_an_accounting_that_does_not_answer_rules_nothing_out():
    slurm = Scripted({"scontrol": CONFIG, "sacctmgr": Says("Connection refused")})
    assert probe("ones", slurm).admin_level == "unknown"


def test_a_slurm_that_does_not_answer_is_no_site():
    with pytest.raises(Unreachable):
        probe("ones", Scripted({"scontrol": Says("Unable to contact slurm controller")}))


@pytest.mark.parametrize(
    ("pyslurm", "slurm", "why"),
    [
        (None, (22, 5, 8), "not installed"),
        ("25.11.2", (22, 5, 8), "another series"),
        ("22.5.3", (22, 5, 8), None),
        ("23.11.1", (23, 11, 4), "requested resources"),
    ],
)
def test_when_pyslurm_is_used(pyslurm, slurm, why):
    reason = rules_out(pyslurm, Release(*slurm))
    assert (reason is None) if why is None else (why in reason)


def test_the_commands_suffice():
    client, why = choose_client(Scripted({"--version": "slurm 15.08.1"}))
    assert isinstance(client, CommandClient)
    assert "commands, because" in why


@pytest.mark.slurm
@pytest.mark.parametrize(("user", "level", "operator"), [("operator", "Operator", True), ("user1", "None", False)])
def test_a_real_slurm_is_probed(slurm_lab: Lab, user, level, operator):
    site = probe(user, runner(slurm_lab, user))
    assert (site.can_shrink, site.can_requeue, site.accounting, site.gpus_counted) == (True, True, True, True)
    assert (site.version, site.admin_level, site.is_operator) == (slurm_lab.slurm_version, level, operator)


@pytest.mark.parametrize(
    ("said", "kept"), [("none", ()), ("jobs", ("jobs",)), ("Jobs,nodes,usage", ("jobs", "nodes", "usage"))]
)
def test_what_slurm_shows_to_the_owner_alone(said, kept):
    assert facts(PrivateData=said).private_data == kept
