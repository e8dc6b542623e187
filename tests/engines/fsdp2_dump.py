"""What each rank of FSDP2 keeps of the tiny models. Usage: fsdp2_dump.py OUT [NAME...]

Transformers' models, filled with numbers, are given to `fully_shard`, layer by layer as is usual,
in a group of processes over gloo. What is dumped is each parameter's own local tensor.
"""

import sys

import torch
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import cases
import coordinates
import models
import ranks


# Transformers 4 has a module for each expert; since 5 a layer's experts are packed.
ENGINE = "fsdp2_v4" if transformers.__version__ < "5" else "fsdp2"


def shard(model, options):
    """Over `dp` ranks, in `hsdp` copies: neighbours shard, as in TorchTitan and in verl."""
    copies, ranks_of_one = options.get("hsdp", 1), options["dp"]
    if copies > 1:
        mesh = init_device_mesh("cpu", (copies, ranks_of_one),
                                mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (ranks_of_one,), mesh_dim_names=("shard",))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return mesh


def dump_rank(case, folder, checkpoint, rank, store):
    ranks.join(rank, case.ranks, store)
    model = coordinates.loaded_model_of(checkpoint)
    mesh = shard(model, case.options)
    local = {}
    for name, value in model.state_dict(keep_vars=True).items():
        # A tied head is listed under both names; the copy would be stored twice.
        if name == "lm_head.weight" and value is model.model.embed_tokens.weight:
            continue
        own = value.to_local() if isinstance(value, DTensor) else value
        local[name] = coordinates.integers_of(own.detach().numpy())
    case.write_rank(folder, rank, local, {
        name: mesh.get_local_rank(name) for name in mesh.mesh_dim_names})


def dump(case, out):
    engine = coordinates.versions("torch", "transformers")
    ranks.dump_loaded(case, out / ENGINE / case.name, dump_rank, engine,
                      "fully_shard on a Transformers model that read a numbered checkpoint")


if __name__ == "__main__":
    sys.exit(cases.main(ENGINE, dump))
