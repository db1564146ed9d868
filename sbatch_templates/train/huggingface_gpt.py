"""Train a small GPT-2 on Python's own reference manual with Hugging Face's Trainer, at whatever size the job has.

python huggingface_gpt.py                        on a laptop
sbatch sbatch_templates/huggingface.sbatch       on a cluster; on GPUs with the layers of the smallest GPT-2

Three lines are ours: the callback, the arguments that it gives, and the checkpoint to go on from.
"""

import argparse
from pydoc_data.topics import topics

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from ones_slurm.elastic.huggingface import ElasticCallback

LETTERS, LENGTH = 128, 64


def sequences(count: int | None) -> list[dict[str, torch.Tensor]]:
    """The manual in pieces of LENGTH letters."""
    text = torch.tensor([min(ord(letter), LETTERS - 1) for letter in "\n".join(topics.values())])
    pieces = text[: len(text) // LENGTH * LENGTH].view(-1, LENGTH)[:count]
    return [{"input_ids": piece, "labels": piece} for piece in pieces]


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description="Train a small GPT-2 with Hugging Face's Trainer.")
    parser.add_argument("--epochs", type=int, default=20 if on_gpu else 2)
    parser.add_argument("--samples", type=int, default=None if on_gpu else 1024, help="sequences; all of them: 11,000")
    parser.add_argument("--width", type=int, default=768 if on_gpu else 64)
    parser.add_argument("--layers", type=int, default=12 if on_gpu else 2)
    parser.add_argument("--lr", type=float, default=3e-4 if on_gpu else 3e-3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)

    data = sequences(options.samples)
    heads = max(options.width // 64, 2)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=LETTERS, n_positions=LENGTH, n_embd=options.width, n_layer=options.layers, n_head=heads,
            bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip
    elastic = ElasticCallback(batch_size=64, max_local_batch=64 if on_gpu else 32)
    arguments = TrainingArguments(
        num_train_epochs=options.epochs,
        learning_rate=options.lr,
        bf16=on_gpu,
        logging_steps=8,
        report_to="none",
        disable_tqdm=True,
        **elastic.arguments(len(data)),
    )
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[elastic])
    trainer.train(resume_from_checkpoint=elastic.checkpoint())
    if elastic.world.rank == 0:
        losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
        print(f"loss {losses[-1]:.3f}, at first {losses[0]:.3f}", flush=True)


if __name__ == "__main__":
    main()
