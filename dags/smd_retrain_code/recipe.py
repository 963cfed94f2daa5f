"""What both training scripts share: arguments, learning rate, and how a sample is read."""

import argparse
import io
import math
import os
import re
import sys

CLASSES, FEATURES, LARGEST = 10, 64, 16.0
"""The handwritten digits: 8 by 8 pixels of 0 to 16."""


def _positive(kind):
    def read(text):
        if not (number := kind(text)) > 0:
            raise argparse.ArgumentTypeError(f"{text} is not above 0")
        return number

    return read


def arguments(argv=None):
    """Return the options; SageMaker passes each hyperparameter as `--name value`.

    `--batch_size_per_gpu` means `--batch-size-per-gpu`. What nobody here knows is ignored with a note: images
    and launchers add hyperparameters of their own.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--epochs", type=_positive(int), default=30)
    add("--batch-size-per-gpu", type=_positive(int), default=16, help="samples a step of one process")
    add("--learning-rate", type=_positive(float), default=0.1)
    add(
        "--learning-rate-is",
        choices=("base", "scaled"),
        default="base",
        help="base: for --base-batch-size samples a step, scaled to the global one; scaled: used as it is",
    )
    add("--base-batch-size", type=_positive(int), default=32)
    add("--warmup-epochs", type=float, default=3.0)
    add("--momentum", type=float, default=0.9)
    add("--seed", type=int, default=0)
    add("--target-accuracy", type=float, default=0.0, help="fail below this validation accuracy")
    add("--report-seconds", type=float, default=2.0, help="at most this long without a line")
    add("--data-dir", default=os.environ.get("SM_CHANNEL_TRAINING", "/opt/ml/input/data/training"))
    add("--model-dir", default=os.environ.get("SM_MODEL_DIR", "/opt/ml/model"))
    add("--checkpoint-dir", default="/opt/ml/checkpoints", help="no checkpoints where it does not exist")
    words = sys.argv[1:] if argv is None else argv
    options, unknown = parser.parse_known_args(
        [re.sub("^--[^=]+", lambda name: name[0].replace("_", "-"), word) for word in words]
    )
    if unknown:
        print(f"Ignored, since unknown here: {' '.join(unknown)}", file=sys.stderr)
    return options


def learning_rate(options, step, steps_per_epoch, global_batch):
    """Return the rate of one step: linear scaling with warm-up (Goyal et al. 2017), then half a cosine to 0.

    k times the samples a step, k times the rate; it begins at the base rate, since the first steps of a large
    batch are the fragile ones, and reaches the scaled rate after the warm-up.
    """
    times = global_batch / options.base_batch_size
    if options.learning_rate_is == "base":
        base, scaled = options.learning_rate, options.learning_rate * times
    else:
        base, scaled = options.learning_rate / times, options.learning_rate
    total = options.epochs * steps_per_epoch
    warmup = min(total, math.ceil(options.warmup_epochs * steps_per_epoch)) if times > 1 else 0
    if step < warmup:
        return base + (scaled - base) * step / warmup
    return scaled * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup))) / 2


def decode(sample):
    """Return a shard's sample as 64 features of 0 to 1 and the digit."""
    import numpy as np

    features = np.load(io.BytesIO(sample["npy"])).astype(np.float32) / LARGEST
    return features.reshape(FEATURES), int(sample["cls"])
