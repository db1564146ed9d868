"""A job grows by a companion and shrinks again while it trains, as onesd decides; only the processes that leave end.

Two sites: one where a job may submit from its batch step, and one that lets nobody submit but from the login node.
"""

import pathlib

import pytest
import toml

SCRIPT = pathlib.Path(__file__).parent / "train_and_beat.py"
# As sites do that bar sbatch on compute nodes.
LOGIN_ONLY = """
function slurm_cli_setup_defaults(options, early) return slurm.SUCCESS end
function slurm_cli_post_submit(offset, job_id, step_id) return slurm.SUCCESS end
function slurm_cli_pre_submit(options, offset)
  if options["type"] == "sbatch" and os.getenv("SLURMD_NODENAME") then
    slurm.log_error("jobs are submitted on login nodes only")
    return slurm.ERROR
  end
  return slurm.SUCCESS
end
"""
EPOCHS = 10_000  # it is cancelled in the end

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.timeout(900)]


class Beats:
    """What `train_and_beat.py` wrote: for each process (node, pid) its steps as (step, rank, world)."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def read(self) -> dict[str, list[tuple[int, int, int]]]:
        told = {}
        for path in self.folder.glob("beat-*"):
            lines = (line.split() for line in path.read_text().splitlines())
            told[path.name.removeprefix("beat-")] = [tuple(map(int, line[1:])) for line in lines if len(line) == 4]
        return told

    def worlds(self) -> list[int]:
        """The sizes of the world that rank 0 trained in, in their order."""
        steps = sorted(step for told in self.read().values() for step in told if step[1] == 0)
        sizes = [size for _, _, size in steps]
        return [size for at, size in enumerate(sizes) if at == 0 or sizes[at - 1] != size]


class Story:
    """A daemon with companions submitted by `who`, and one training of user1 that may have up to three nodes."""

    def __init__(self, site, who: str) -> None:
        self.site, self.who = site, who
        path = site.lab.folder / "home/operator" / f"{who}.toml"
        tables = toml.loads(site.lab.run(["cat", "/etc/slurm/ones.toml"]).stdout)
        tables["moves"]["companions"] = who
        tables["daemon"]["state_dir"] = f"/home/operator/{who}"
        path.write_text(toml.dumps(tables))
        path.chmod(0o644)
        site.lab.run(["chmod", "755", "/home/operator"], user="operator", host="head")
        self.file = f"/home/operator/{who}.toml"
        site.start_daemon("--site", self.file)
        self.beats = Beats(site.home / f"beats-{who}")

    def submit(self) -> str:
        self.job = self.site.lab.run(
            [
                *("sbatch", "--parsable", "--comment=ones:nodes=1-3,batch=64-64", "--nodes=1", "--gres=gpu:1"),
                *("--time=60", f"--output=grows-{self.who}-%j.out"),
                f"--wrap=exec ones-run --site {self.file} -- python {SCRIPT} $HOME/beats-{self.who} {EPOCHS}",
            ]
        ).stdout.strip()
        self.site.until(lambda: self.beats.worlds() == [1], "it trains on one node", 240)
        return self.job

    def companions(self) -> list[str]:
        """State and nodes of each companion that Slurm knows."""
        told = self.site.lab.run(["squeue", "-h", "-o", "%T %D %k"], user="root").stdout.splitlines()
        return [line.rsplit(" ", 1)[0] for line in told if f"companion-of={self.job}" in line]

    def grows(self) -> None:
        site = self.site
        site.until(lambda: self.beats.worlds() == [1, 3], "it trains on three nodes", 240)
        assert site.nodes(self.job) == 1, "Slurm gave the job itself nothing more"
        assert [line.split()[:2] for line in self.companions()] == [["RUNNING", "2"]]
        site.until(lambda: site.row(self.job).get("move") is None, "the growth is over", 60)
        assert len(site.row(self.job)["node_list"]) == 3

    def shrinks(self) -> None:
        site = self.site
        guest = site.sbatch("--nodes=3", "--gres=gpu:1", "--wrap=sleep 600")
        site.until(lambda: site.nodes(guest) == 3, "a guest gets the nodes that were lent", 240)
        site.until(lambda: self.beats.worlds() == [1, 3, 1], "it trains on one node again", 60)
        assert self.companions() == []

    def check_that_it_never_stopped(self) -> None:
        told = self.beats.read()
        (first,) = {who for who, steps in told.items() if steps and steps[0][2] == 1}
        assert [step for step, _, _ in told[first]] == list(range(len(told[first]))), "no step was lost or made twice"
        assert {rank for _, rank, _ in told[first]} == {0}, "the process that began is rank 0 all the time"
        restarts = self.site.lab.run(["squeue", "-h", "-j", self.job, "-O", "RestartCnt"], user="root").stdout.strip()
        assert restarts == "0"

    def ends(self) -> None:
        """The base ends, and nothing of it is left."""
        self.site.lab.run(["scancel", self.job])
        self.site.until(lambda: not self.companions(), "its companion ends with it", 120)
        self.site.until(lambda: not self.site.in_queue(self.job), "it is gone", 120)
        assert self.site.stop_daemon() == 0


def test_a_job_submits_its_companion_and_trains_on_through_growth_and_shrink(site):
    story = Story(site, "job")
    story.submit()
    story.grows()
    story.shrinks()
    story.check_that_it_never_stopped()
    story.ends()
    site.lab.run(["scancel", "--user=user1"])


def test_where_only_the_login_node_may_submit_the_users_agent_does(site):
    (site.lab.folder / "slurm/cli_filter.lua").write_text(LOGIN_ONLY)
    with (site.lab.folder / "slurm/slurm.conf").open("a") as conf:
        conf.write("CliFilterPlugins=cli_filter/lua\n")
    story = Story(site, "agent")
    with (site.lab.folder / "log/agent.log").open("w") as log:
        agent = site.lab.popen(["ones", "--site", story.file, "agent"], user="user1", stdout=log, stderr=log)
    try:
        story.submit()
        refused = site.lab.run(["srun", "--overlap", f"--jobid={story.job}", "sbatch", "--wrap=true"], check=False)
        assert "on login nodes only" in refused.stderr
        story.grows()
        story.check_that_it_never_stopped()
        story.ends()
    finally:
        agent.terminate()
        agent.wait(20)
