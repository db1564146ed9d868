"""Run inside the lab, `look_into_journal.py JOURNAL`: opens a journal, replays it, and says what is open."""

import json
import sys

from ones_slurm.engine.journal import Journal
from ones_slurm.engine.replay import replay
from ones_slurm.policy.registry import policy_named

with Journal.read(sys.argv[1]) as journal:
    ticks, difference = replay(journal, policy_named)
    unfinished = [action.job_id for action in journal.unfinished_actions()]
    print(json.dumps({"ticks": ticks, "difference": repr(difference or ""), "unfinished": unfinished}))
