"""The same as megatron_dump.py for models that mbridge does not know, through NVIDIA's own importer
Megatron-Bridge. Usage: megatron_bridge_dump.py OUT [NAME...]
"""

import functools
import pathlib
import sys
import tempfile

import pretence
import te_without_cuda

te_without_cuda.install()

import torch
import torch._inductor.codegen.triton  # looks for triton, and must not find what follows
import transformers

with pretence.while_importing(te_without_cuda.ONLY_WHILE_IMPORTING):
    from megatron.bridge import AutoBridge

import megatron.core.ssm.gated_delta_net

import cases
import coordinates
import megatron_ranks
import models
import ranks


# The kernels of Flash Linear Attention need a device, and are only asked for here.
megatron.core.ssm.gated_delta_net.HAVE_FLA = True


def scatter_contiguous(scatter):
    """Gloo sends the memory behind a view, where NCCL sends the view."""
    def wrapped(tensor, scatter_list=None, **options):
        parts = scatter_list and [part.contiguous() for part in scatter_list]
        return scatter(tensor, parts, **options)
    return wrapped


torch.distributed.scatter = scatter_contiguous(torch.distributed.scatter)


def provider_for(bridge, options):
    """How Megatron-Bridge describes the model, with the settings of this configuration."""
    provider = bridge.to_megatron_provider(load_weights=False)
    provider.tensor_model_parallel_size = options.get("tp", 1)
    provider.pipeline_model_parallel_size = options.get("pp", 1)
    provider.expert_model_parallel_size = options.get("ep", 1)
    provider.expert_tensor_parallel_size = options.get("etp", options.get("tp", 1))
    # It takes the vocabulary as it is; these belong to positions, and gpt-oss lacks them.
    provider.should_pad_vocab = False
    provider.yarn_mscale = provider.yarn_mscale_all_dim = 1.0
    provider.params_dtype = torch.float32
    provider.bf16 = False
    provider.use_cpu_initialization = True
    provider.perform_initialization = False
    provider.moe_permute_fusion = False
    if options.get("experts") == "sequential":
        provider.moe_grouped_gemm = False
    provider.finalize()
    return provider


def stored_minus_one(name):
    """Megatron-Core keeps this norm's weight less one, as it keeps those that the checkpoint, too,
    has less one. The number is what is added to."""
    return name.endswith("self_attention.out_norm.weight")


def dump_rank(case, folder, checkpoint, rank, store):
    ranks.join(rank, case.ranks, store)
    megatron_ranks.do_without_a_device()
    megatron_ranks.start_parallel_state(case.options)
    bridge = AutoBridge.from_hf_pretrained(checkpoint)
    provider = provider_for(bridge, case.options)
    chunks = megatron_ranks.build_chunks(provider.provide, case.options)
    local = megatron_ranks.load_and_number(chunks, bridge.load_hf_weights, checkpoint)
    for name in filter(stored_minus_one, local):
        local[name] += 1
    case.write_rank(folder, rank, local, megatron_ranks.facts())


def dump(case, out):
    config = models.MODELS[case.model]
    shapes = coordinates.names_and_shapes(config)
    folder = coordinates.fresh_folder(out / "megatron_bridge" / case.name)
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = pathlib.Path(scratch) / "checkpoint"
        coordinates.write_checkpoint(checkpoint, config, coordinates.numbered(shapes))
        ranks.run_ranks(case.ranks, functools.partial(dump_rank, case, folder, checkpoint))
    engine = coordinates.versions("megatron-core", "transformer-engine", "megatron-bridge", "torch")
    case.write_case(folder, config, shapes, engine, "Megatron-Bridge loads a numbered checkpoint")


if __name__ == "__main__":
    sys.exit(cases.main("megatron_bridge", dump))
