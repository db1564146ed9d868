"""What runs inside an allocation: the wrapper `ones-run`, the rank starter, and the training API.

    import ones_slurm.elastic as elastic

    job = elastic.init(model, optimizer, scheduler)
    loader = job.loader(train_set, batch_size=64, shuffle=True)
    net = job.wrap(model)
    for epoch in job.epochs(90):
        for x, y in loader:
            ...
            job.step(loss)
        job.report(accuracy=acc)

Importing this package loads neither torch nor mpi4py, for the wrapper has to start fast.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from ones_slurm.elastic.job import Job
    from ones_slurm.elastic.pipeline_job import PipelineJob
    from ones_slurm.elastic.world import World
    from ones_slurm.pipeline.model import PipelineModel


def init(
    model: "torch.nn.Module",
    optimizer: "torch.optim.Optimizer",
    scheduler: Any = None,
    *,
    scaler: "torch.amp.GradScaler | None" = None,
    seed: int = 0,
) -> "Job":
    """Joins the generation that this process was started for and restores the newest whole checkpoint.

    `scheduler` is stepped once per epoch. With a `scaler` the steps are those of mixed precision. `seed` fixes the
    order of samples and the random numbers of ranks that come in later, or after a restart at another size. Started by
    nothing but `python`, the job is a world of one without checkpoints.
    """
    from ones_slurm.elastic.job import Job
    from ones_slurm.elastic.world import join

    return Job(model, optimizer, scheduler, world=join(), seed=seed, scaler=scaler)


def start() -> "World":
    """Enters the world now, for a script that needs torch.distributed before it has an optimizer (`fully_shard` does).

    `init` does it otherwise. Gives rank, size and device.
    """
    from ones_slurm.elastic.world import join

    return join()


def init_pipeline(
    model: "PipelineModel",
    optimizer: "torch.optim.Optimizer",
    scheduler: Any = None,
    *,
    micro_batch: int,
    seed: int = 0,
) -> "PipelineJob":
    """`init` for a model that is a pipeline: as many ranks as its placement has devices make one replica.

    `micro_batch` is the number of samples in each micro-batch; how many of them a step has follows from the batch.
    """
    from ones_slurm.elastic.pipeline_job import PipelineJob
    from ones_slurm.elastic.world import join

    return PipelineJob(model, optimizer, scheduler, micro_batch=micro_batch, world=join(), seed=seed)
