"""The training API: a job that may save, leave and go on elsewhere at the end of any step."""

import atexit
import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from ones_slurm.elastic import chance, checkpoint
from ones_slurm.elastic.agreement import Agreement
from ones_slurm.elastic.balance import Balance
from ones_slurm.elastic.boundary import Boundary
from ones_slurm.elastic.formation import Member, Report
from ones_slurm.elastic.gauge import Gauge
from ones_slurm.elastic.group import is_broken
from ones_slurm.elastic.live import Broken, Live, shape_of
from ones_slurm.elastic.loader import Loader
from ones_slurm.elastic.net import Net
from ones_slurm.elastic.noise import NoiseScale
from ones_slurm.elastic.rates import Ramp, scaled
from ones_slurm.elastic.runfolder import LEFT_CODE, RunFolder, Wanted
from ones_slurm.elastic.sampler import Share, check_fits
from ones_slurm.elastic.sharded import collected, is_sharded, spread
from ones_slurm.elastic.speaker import Speaker
from ones_slurm.elastic.transfer import Parcel, exchange, unpack
from ones_slurm.elastic.world import World, leave
from ones_slurm.model.errors import Failed, OnesError, UsageError


class Job:
    """One training, through all its generations. Made by `ones_slurm.elastic.init`.

    The model is moved to this rank's device. Batches are the script's to move, where they need it (`job.device`).
    """

    # Whether the world may change around this process.
    lives = True

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scheduler: Any,
        *,
        world: World,
        seed: int,
        scaler: "torch.amp.GradScaler | None" = None,
    ) -> None:
        self.world = world
        self.epoch = 0
        self.steps = 0
        self.samples = 0
        self._model, self._optimizer, self._scheduler, self._seed = model, optimizer, scheduler, seed
        self._scaler = scaler
        self._kept: dict[str, Any] = {} if scaler is None else {"scaler": scaler}
        self._loader: Loader | None = None
        self._epochs: int | None = None
        self._position = 0
        self._ramp = Ramp()
        self._sizes: list[dict[str, float]] = []
        self._last_loss: torch.Tensor | None = None
        self._base_batch = 0
        self._chances: list[bytes] = []
        self._folder = RunFolder(world.folder) if world.folder is not None else None
        self._saved_s = time.monotonic()
        atexit.register(leave)
        if not is_sharded(model):
            model.to(
                world.device
            )  # before any state is restored, so that the optimizer's lands where the parameters are
        self._balance: Balance | None = None
        self._weights: tuple[int, ...] = ()
        self._proposed: tuple[int, ...] | None = None
        self._net: Net | None = None
        self._quiet = contextlib.ExitStack()
        self._void: RuntimeError | None = None
        self._pending = "go"
        self._found: dict[str, Any] = {}  # what a checkpoint holds for things that are not yet known
        self._sharded = is_sharded(model)
        lives = self.lives and not self._sharded
        self._live = Live(world.seat, world) if lives and world.seat is not None else None
        self._speaker: Speaker | None = None
        self._gauge = Gauge([], rank=0, ranks=1, device=world.device)
        newcomer = self._live is not None and self._live.formation is None
        self._whole = not newcomer
        self._take_place(world)
        self._boundary: Boundary | None = None
        if newcomer:
            chance.derive(seed, world.rank, 0)
            return
        self._resume()

    def _take_place(self, world: World) -> None:
        """Builds what depends on this rank's place in the world."""
        self.world = world
        formation = self._live.formation if self._live is not None else None
        outside = self._live is not None and formation is None
        store = self._live.store() if self._live is not None and formation is not None else world.store
        self._agreement = Agreement(None if outside else store, world.rank, world.size, self._decide)
        speaks = self._folder is not None and world.rank == 0 and not outside
        notes, metrics = (self._speaker.notes, self._speaker.metrics) if self._speaker else ([], {})
        self._speaker = Speaker(self._folder, world, formation) if speaks and self._folder is not None else None
        if self._speaker is not None:
            self._speaker.notes, self._speaker.metrics = notes, metrics
        before = self._gauge
        parameters = list(self._model.parameters())
        self._gauge = Gauge(parameters, rank=world.rank, ranks=world.size, device=world.device)
        self._gauge.noise, self._gauge.timed = before.noise, before.timed
        if self._balance is not None and store is not None:
            self._balance = Balance(store, world.rank, world.size)

    @property
    def device(self) -> torch.device:
        """Where this rank's model and batches belong."""
        return self.world.device

    @property
    def formation(self) -> int:
        """How often the world has changed around this process, or around those from whom it got its state."""
        known = self._live.formation if self._live is not None else None
        return known.number if known is not None else 0

    @property
    def readers(self) -> World:
        """Between whom the samples are divided."""
        return self.world

    def loader(
        self,
        dataset: "Dataset[Any]",
        batch_size: int,
        *,
        shuffle: bool = False,
        max_local_batch: int | None = None,
        by_speed: bool = False,
        **options: Any,
    ) -> Loader:
        """The loader of the training set. One a job: its place in the epoch is part of the job's state.

        `batch_size` is the global batch, over all ranks, that the script's learning rate was chosen for; the
        co-scheduler may change it. `max_local_batch` is how many samples fit on a rank: a larger part of a batch comes
        in several shares, whose gradients `step` adds up. `by_speed` gives slower ranks smaller parts, as measured.
        `options` go to torch's DataLoader (num_workers, collate_fn, …).
        """
        if self._loader is not None:
            raise UsageError("a job has one training loader", hint="use torch's DataLoader for other data sets")
        if batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, not {batch_size}")
        batch = self.world.batch or batch_size
        self._base_batch = batch_size
        self._loader = Loader(
            dataset,
            world=self.readers,
            batch=batch,
            shuffle=shuffle,
            seed=self._seed,
            begin=self._take_chance,
            drawing=self._draw,
            between=self._between,
            max_local=max_local_batch,
            **options,
        )
        if by_speed and self.world.store is not None and self.readers.size == self.world.size:
            self._balance = Balance(self.world.store, self.world.rank, self.world.size)
            self._gauge.timed = True
            if len(self._weights) == self.world.size:
                self._loader.weights = self._weights
        if self._whole:
            self._begin_generation()
        return self._loader

    def _begin_generation(self) -> None:
        """Batch and rate are those of this generation from here on."""
        assert self._loader is not None
        self._loader.epoch, self._loader.position = self.epoch, self._position
        self._ramp = self._ramp.towards(self.world.lr_scale, self._loader.samples)
        if self.steps == 0:
            # Nothing was trained at another rate yet, so there is nothing to be gentle with.
            self._ramp = Ramp(self.world.lr_scale, self.world.lr_scale)
        batch = self._loader.batch
        self._sizes.append(
            {
                "step": self.steps,
                "samples": self.samples,
                "ranks": self.world.size,
                "batch": batch,
                "lr_scale": self.world.lr_scale,
            }
        )
        if self._speaker is not None:
            self._speaker.begin(self, batch=batch, base_batch=self._base_batch)
            if self._epochs is not None:
                self._speaker.total_samples = self._epochs * self._loader.samples

    def keep(self, **things: Any) -> None:
        """Makes further objects part of the job's state, which checkpoints hold and new ranks get (an average of the
        weights, say). Each has `state_dict` and `load_state_dict`, as torch's own have. Called before the first step,
        on all ranks alike."""
        for name, thing in things.items():
            if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
                raise UsageError(
                    f"{name} cannot be kept: a {type(thing).__name__} has no state_dict and load_state_dict",
                    hint="give it both; the state must be made of tensors and plain containers",
                )
            self._kept[name] = thing
            if name in self._found:
                thing.load_state_dict(self._found.pop(name))

    def wrap(self, model: nn.Module, **options: Any) -> nn.Module:
        """The module to call in the loop, the same one for the job's life: `module` is the model. In a world of several
        it is trained by DistributedDataParallel, which gets the `options` (find_unused_parameters, say)."""
        self._net = Net(model, self._rescue, **options)
        if self._whole and not self._sharded:
            self._net.enter(self.world, known=False)
            self._boundary = Boundary(self._model) if self._live is not None else None
        return self._net

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs that are left of `count`; between two of them the scheduler is stepped. A newcomer waits here
        until it is let in, and goes on where the others are."""
        self._epochs = count
        self._come_in()
        if self._speaker is not None and self._loader is not None:
            self._speaker.total_samples = count * self._loader.samples
        while self.epoch < count:
            running = self.epoch
            yield running
            if self.epoch == running:  # else a failure was survived by taking over the state of one further on
                self._end_epoch()
        self._finish()

    def _end_epoch(self) -> None:
        if self._scheduler is not None:
            self._scheduler.step()
        self.epoch += 1
        self._position = 0
        if self._loader is not None:
            self._loader.epoch, self._loader.position = self.epoch, 0

    def step(self, loss: torch.Tensor) -> bool:
        """Backward, optimizer step, zero_grad. If all ranks agree on it, they save, leave or enter another world before
        the next batch is drawn.

        `loss` is the mean over this rank's samples. It is weighted, so that the gradient is the mean over the whole
        batch however that divides. Where a part of the batch comes in several shares, all but the last only add up
        gradients. Leaving raises SystemExit(75) in the loop: let it pass. False says that the step did not count, for
        somebody died in the midst of it: the loader yields its samples again.
        """
        share = self._drawn()
        weight = share.own * self.world.size / share.batch
        weighted = loss if weight == 1.0 else loss * weight
        if self._scaler is not None:
            weighted = self._scaler.scale(weighted)
        if self._void is None:
            try:
                held = self._net is not None and self._net.parallel
                self._gauge.before_backward(share, held=held)
                weighted.backward()  # type: ignore[no-untyped-call]
                self._gauge.after_backward(share)
                if share.last:
                    self._await_gradients()
            except RuntimeError as error:
                if not self._rescue(error):
                    raise
        if self._void is not None:
            self._take_back(self._void)
            return False
        if share.last:
            self._advance(share, loss)
        return True

    def _await_gradients(self) -> None:
        """On a GPU a collective has only been queued when `backward` returns, and one that is aborted leaves rubbish
        that the optimizer would take for gradients: so they are waited for, and doubted when the world broke meanwhile.
        """
        if self._live is not None and self.world.size > 1 and self.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
            if self._live.broken:
                raise RuntimeError("NCCL: the world broke before the gradients were there")

    def _rescue(self, error: RuntimeError) -> bool:
        """Whether this failure is the world's and not the script's; then the step is void, and the script goes on."""
        if self._live is None or not (self._live.broken or is_broken(error)):
            return False
        self._void = self._void or error
        if self._net is not None:
            self._net.leave()
        return True

    def _take_back(self, error: RuntimeError) -> None:
        """The step that failed is undone, and the next world entered."""
        assert self._live is not None
        self._quiet.close()
        self._gauge.let_go()
        self._optimizer.zero_grad()
        if self._boundary is not None:
            self._boundary.go_back()
        if not self._live.broken:
            self._live.verdict(error)
        self._regroup()

    def _draw(self, share: Share) -> None:
        """Before the script computes on a share: only the last of a step exchanges gradients between ranks."""
        self._quiet.close()
        if not share.last and self._net is not None:
            self._quiet.enter_context(self._net.no_sync())
        self._gauge.drawing(share)
        if self._balance is not None:
            self._balance.tell(self._gauge.samples_per_s)

    def _drawn(self) -> Share:
        """This rank's share of the batch that is being trained on."""
        if self._loader is None or self._loader.drawn is None:
            raise UsageError("a step needs a batch of job.loader()", hint="iterate over the loader that it returns")
        return self._loader.drawn

    def _advance(self, share: Share, loss: torch.Tensor) -> None:
        """The rest of a step, once the gradients are there."""
        with scaled(self._optimizer, self._ramp.factor):
            if self._scaler is None:
                self._optimizer.step()
            else:
                self._scaler.step(self._optimizer)
                self._scaler.update()
        self._optimizer.zero_grad()
        self._ramp = self._ramp.after(share.batch)
        self.steps += 1
        self.samples += share.batch
        self._position = share.position
        if self._loader is not None:
            self._loader.position = share.position
        self._last_loss = loss.detach()
        if self._live is not None and self.world.size > 1:
            self._live.step_done()
            if self._boundary is not None:
                self._boundary.mark()
        try:
            if self._may_leave(share):
                self._pending = self._agreement.after_step()
        except Broken:
            self._pending = "enter"

    def _between(self) -> None:
        """Before the next batch is drawn, when what the script does behind a step (an average of the weights, say) is
        done as well: carries out what was agreed on."""
        verb, self._pending = self._pending, "go"
        try:
            if verb != "go":
                self._carry_out(verb)
        except Broken:
            self._regroup()

    def _may_leave(self, share: Share) -> bool:
        """Not after the last of several steps of an epoch: what a script does behind its loop, often with the last
        loss, would find a loop that ran not once. The word then is given a step later, on all ranks alike."""
        return self._loader is None or share.position < self._loader.samples or share.position == share.batch

    def report(self, **metrics: float) -> None:
        """Tells the wrapper, and through it `ones queue` and the policy, how good the model is now."""
        if self._speaker is not None:
            self._speaker.metrics = {name: torch.as_tensor(value).detach().item() for name, value in metrics.items()}
            self._speaker.say(self)

    @property
    def last_loss(self) -> float | None:
        """The loss of rank 0's share of the last step."""
        return None if self._last_loss is None else float(self._last_loss)

    @property
    def measured(self) -> dict[str, float]:
        """What the policy reads beside the script's own metrics: the gradient's noise, and how many samples fit."""
        fits = self._loader.max_local if self._loader is not None else None
        self._gauge.settle()
        return {
            **({"max_local_batch": float(fits)} if fits is not None else {}),
            **(self._gauge.noise.metrics(self._base_batch) if self._base_batch else {}),
        }

    def _decide(self) -> str:
        """Rank 0, once a window: what all do after this step."""
        if self._speaker is None:
            return "go"
        self._speaker.say_now_and_then(self)
        if (order := self._speaker.wanted()) is not None:
            if not order.live or self._live is None:
                return "leave"
            if self._admit(order):
                return "enter"
        if time.monotonic() - self._saved_s >= self.world.checkpoint_every_s:
            return "save"
        if self._balance is not None and self._loader is not None:
            self._proposed = self._balance.propose(self._loader.batch, self._loader.weights)
            return "share" if self._proposed is not None else "go"
        return "go"

    def _admit(self, order: Wanted) -> bool:
        """Rank 0: whether the formation that a live order asks for was announced; all enter it after this step."""
        assert self._live is not None
        assert self._speaker is not None
        try:
            formation = self._live.planned(order, shape_of(self._model, self._optimizer))
            if formation is None:
                return False
            if self._loader is not None:
                check_fits(self._loader.samples, len(formation.members))
            if order.coming:
                Parcel(self._memory())  # says so if it cannot be sent
        except OnesError as error:
            self._live.dismiss(order)
            self._speaker.decline(str(error))
            self._speaker.say(self)
            return False
        return self._live.announce(formation)

    def _carry_out(self, verb: str) -> None:
        if verb == "share":
            self._share_anew()
            return
        if verb == "enter":
            self._regroup()
            return
        leaving = verb == "leave"
        fault = self._save(leaving=leaving)
        self._saved_s = time.monotonic()
        if leaving and not fault:
            self._part()
            raise SystemExit(LEFT_CODE)
        if fault and self._speaker is not None:
            self._speaker.note(f"the checkpoint after step {self.steps} failed: {fault}; training goes on")
            if leaving:
                self._speaker.decline(f"cannot save: {fault}")
            self._speaker.say(self)

    def _share_anew(self) -> None:
        """Rank 0's weights are everyone's from the next share on."""
        assert self._balance is not None
        assert self._loader is not None
        told = self._agreement.tell(" ".join(map(str, self._proposed or ())))
        self._weights = self._loader.weights = tuple(map(int, told.split()))
        self._loader.plan_again()
        self._balance.changed()
        self._gauge.samples_per_s.clear()

    def _save(self, *, leaving: bool = False) -> str:
        """All ranks save together; returns "" or, on every rank, why it did not work."""
        chances = self._agreement.gather(chance.pack())
        fault, whole = "", collected(self._model, self._optimizer) if self._sharded else {}
        if self._speaker is not None and self._folder is not None:
            try:
                checkpoint.save(self._folder.checkpoints, self.steps, {**self._state(chances), **whole})
                self._speaker.say(self, left=leaving)
            except OSError as error:
                fault = str(error)
        return self._agreement.tell(fault)

    def _finish(self) -> None:
        if self._pending == "enter":
            self._between()
        while True:
            try:
                fault = self._save() if self._folder is not None else ""
                break
            except Broken:
                self._regroup()
        if self._speaker is not None:
            if fault:
                self._speaker.note(f"the last checkpoint failed: {fault}")
            self._speaker.say(self, finished=True)
        self._part()

    def _part(self) -> None:
        if self._live is not None:
            self._live.part()
        else:
            self._agreement.part()

    def _come_in(self) -> None:
        """A newcomer is ready to train, and waits until the others let it in."""
        if self._live is not None and not self._whole:
            self._live.knock(shape_of(self._model, self._optimizer))
            self._live.wait_at_the_door()
            self._regroup()

    def _regroup(self) -> None:
        """Enters the newest formation, with the newest state that anybody in it has."""
        live = self._live
        assert live is not None
        while True:
            formation = live.newest()
            if formation.rank_of(live.member.name) is None:
                live.depart(formation)
            try:
                reports = live.arrive(formation, self.steps if self._whole else -1)
                self._quiet.close()
                if self._net is not None:
                    self._net.leave()
                self.world = live.enter(formation, self.world)
                self._catch_up(reports, formation.members)
                break
            except Broken:
                continue
            except RuntimeError as error:
                if not is_broken(error):
                    raise
                if not live.broken:
                    live.verdict(error)
        self._void = None
        if self._net is not None:
            self._net.enter(self.world, known=True)
            self._boundary = Boundary(self._model)
        if self._loader is not None:
            self._loader.enter(self.world, self.world.batch or self._base_batch)
            self._begin_generation()
        if self._speaker is not None:
            self._speaker.say(self)

    def _catch_up(self, reports: list[Report], members: Sequence[Member]) -> None:
        """Those whose state is behind, newcomers above all, get it from those whose state is the newest."""
        live, rank = self._live, self.world.rank
        assert live is not None
        furthest = max(report.steps for report in reports)
        senders = [at for at, report in enumerate(reports) if report.steps == furthest]
        receivers = [at for at, report in enumerate(reports) if report.steps < furthest]
        self._take_place(self.world)
        if furthest < 0:
            self._resume()
        elif rank in senders and receivers:
            parcel = Parcel(self._memory())
            if rank == senders[0]:
                live.tell("state", parcel.manifest())
            tensors = parcel.tensors
        elif rank in receivers:
            state, tensors = unpack(live.hear("state"), self.device)
        if furthest >= 0 and receivers:
            nodes = [member.node for member in members]
            exchange(tensors, rank=rank, nodes=nodes, senders=senders, receivers=receivers, device=self.world.device)
        if rank in receivers and furthest >= 0:
            self._restore(state, "the state of another rank")
            with torch.no_grad():
                for name, buffer in self._unsaved_buffers().items():
                    buffer.copy_(state["unsaved"][name])
            if not self._whole:
                chance.derive(self._seed, rank, self.steps)
        self._whole = True

    def _memory(self) -> dict[str, Any]:
        """The state as it is sent to another rank."""
        return {**self._state([]), "unsaved": self._unsaved_buffers()}

    def _unsaved_buffers(self) -> dict[str, torch.Tensor]:
        saved = self._model.state_dict().keys()
        return {name: buffer for name, buffer in self._model.named_buffers() if name not in saved}

    def _take_chance(self) -> None:
        """Restores the random numbers when the loop begins to draw data, past all that a script does before it."""
        self._between()
        self._come_in()
        if len(self._chances) == self.world.size:
            chance.restore(self._chances[self.world.rank])
        self._chances = []

    def _state(self, chances: list[bytes]) -> dict[str, Any]:
        return {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "scheduler": self._scheduler.state_dict() if self._scheduler is not None else None,
            "kept": {name: thing.state_dict() for name, thing in self._kept.items()},
            "chances": [torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in chances],
            "epoch": self.epoch,
            "steps": self.steps,
            "samples": self.samples,
            "position": self._position,
            "ramp": [self._ramp.start, self._ramp.end, self._ramp.done, self._ramp.length],
            "seed": self._seed,
            "sizes": self._sizes,
            "weights": list(self._weights),
            "noise": [self._gauge.noise.count, self._gauge.noise.sqr, self._gauge.noise.var],
        }

    def _resume(self) -> None:
        """Every rank loads the checkpoint that rank 0 found to be the newest whole one."""
        name = ""
        if self._folder is not None and self.world.rank == 0:
            found, notes = checkpoint.find_whole(self._folder.checkpoints)
            name = found.name if found is not None else ""
            if self._speaker is not None:
                self._speaker.notes += notes
        name = self._agreement.tell(name)
        if not name or self._folder is None:
            chance.derive(self._seed, self.world.rank, 0)
            return
        self._restore(checkpoint.load(self._folder.checkpoints / name), name)
        chance.derive(self._seed, self.world.rank, self.steps)

    def _restore(self, state: dict[str, Any], name: str) -> None:
        try:
            if self._sharded:
                spread(self._model, self._optimizer, state)
            else:
                self._model.load_state_dict(state["model"])
                self._optimizer.load_state_dict(state["optimizer"])
            if self._scheduler is not None and state["scheduler"] is not None:
                self._scheduler.load_state_dict(state["scheduler"])
            self._found = dict(state.get("kept", {}))
            for kept in self._kept.keys() & self._found.keys():
                self._kept[kept].load_state_dict(self._found.pop(kept))
        except (RuntimeError, ValueError, KeyError) as error:
            raise Failed(
                f"{name} does not fit this script: {error}",
                hint="was the model or the optimizer changed? then start with another run folder (--dir)",
            ) from error
        self.epoch, self.steps, self.samples = state["epoch"], state["steps"], state["samples"]
        self._position, self._sizes, self._seed = state["position"], state["sizes"], state["seed"]
        self._ramp = Ramp(*state["ramp"])
        self._weights = tuple(state.get("weights", ()))
        self._gauge.noise = NoiseScale(*state.get("noise", ()))
        self._chances = [saved.numpy().tobytes() for saved in state["chances"]]
