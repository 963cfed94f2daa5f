"""Stands in for SMDDP's PyTorch backend: importing it makes `init_process_group("smddp")` work, on gloo."""

from typing import Any

import torch.distributed as dist


def _create(options: Any, *rest: Any) -> Any:
    """Make a gloo group; PyTorch hands over one options object or (store, rank, size, timeout)."""
    if rest:
        store, rank, size, timeout = options, *rest
    else:
        store, rank, size, timeout = options.store, options.group_rank, options.group_size, options.timeout
    return dist.ProcessGroupGloo(store, rank, size, timeout)


if "smddp" not in dist.Backend.backend_list:
    dist.Backend.register_backend("smddp", _create, devices=["cpu", "cuda"])
