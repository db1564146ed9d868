"""`ones-run` whose daemon is a file: `$ORDERS/order.json` holds the standing order, `$ORDERS/said.jsonl` what it hears.

python scripted_run.py -- python train.py
"""

import os
import pathlib
import sys
import time
from typing import Any

import msgspec

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(CHECKOUT))

from ones_slurm.elastic import wrapper_cli  # noqa: E402
from ones_slurm.model.wire import Order, Reply, Sync  # noqa: E402


class FileDaemon:
    """Answers as onesd does: at once where there is an order that was not followed yet, else after the wait."""

    def __init__(self, *_: Any) -> None:
        self._folder = pathlib.Path(os.environ["ORDERS"])

    def sync(self, job_id: str, sync: Sync, wait_s: float = 0.0) -> Reply:
        with (self._folder / "said.jsonl").open("ab") as said:
            said.write(msgspec.json.encode(sync) + b"\n")
        until = time.monotonic() + (0.0 if not sync.ranks else wait_s)
        while True:
            order = self._order()
            if (order is not None and order.generation > sync.generation) or time.monotonic() >= until:
                return Reply(order)
            time.sleep(0.05)

    def _order(self) -> Order | None:
        try:
            return msgspec.json.decode((self._folder / "order.json").read_bytes(), type=Order)
        except FileNotFoundError:
            return None


if __name__ == "__main__":
    wrapper_cli.Client = FileDaemon  # type: ignore[misc,assignment]
    sys.argv[0] = str(CHECKOUT / "wrappers" / "ones-run")
    wrapper_cli.main(prog_name="ones-run")
