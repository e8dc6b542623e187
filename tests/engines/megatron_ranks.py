"""What dumps of Megatron-Core need: its parallel state, its model chunks, and what they keep."""

import unittest.mock

import torch
from megatron.core import parallel_state

import coordinates
import megatron_attention


def do_without_a_device():
    """What is asked of CUDA while models are made, though the settings say host memory."""
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.Stream = torch.cuda.Event = unittest.mock.MagicMock


def start_parallel_state(options):
    virtual = options.get("vpp", 1)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=options.get("tp", 1),
        pipeline_model_parallel_size=options.get("pp", 1),
        virtual_pipeline_model_parallel_size=virtual if virtual > 1 else None,
        expert_model_parallel_size=options.get("ep", 1),
        expert_tensor_parallel_size=options.get("etp"))


def build_chunks(provider, options):
    """The model chunks of this rank: one, or one for each virtual stage."""
    virtual = options.get("vpp", 1)
    chunks = []
    for stage in range(virtual):
        which = {"ignore_virtual": False, "vp_stage": stage} if virtual > 1 else {}
        chunks.append(provider(pre_process=parallel_state.is_pipeline_first_stage(**which),
                               post_process=parallel_state.is_pipeline_last_stage(**which),
                               vp_stage=stage if virtual > 1 else None))
    return chunks


def tensors_of(chunk):
    """Parameters, and the buffers that a checkpoint keeps. Transformer Engine's extra state is
    about FP8 recipes and holds no weights."""
    return {name: value for name, value in chunk.state_dict().items()
            if not name.endswith("_extra_state") and value is not None}


def check_attention(chunks, tensors):
    for chunk in chunks:
        for layer in chunk.decoder.layers:
            if hasattr(layer.self_attention, "linear_qkv"):
                megatron_attention.check_split(
                    layer.self_attention, layer.layer_number - 1, tensors,
                    parallel_state.get_tensor_model_parallel_world_size(),
                    parallel_state.get_tensor_model_parallel_rank())


def load_and_number(chunks, load, checkpoint):
    """Calls `load(chunks)`, which fills all that it should; then what the rank keeps, by name."""
    with torch.no_grad():
        for chunk in chunks:
            for value in tensors_of(chunk).values():
                value.fill_(coordinates.UNSET)
        load(chunks)
        check_attention(chunks, coordinates.load_numbers(checkpoint))
    local = {}
    for index, chunk in enumerate(chunks):
        prefix = f"model{index}." if len(chunks) > 1 else ""
        for name, value in tensors_of(chunk).items():
            local[prefix + name] = coordinates.integers_of(value.float().numpy())
    return local


def facts():
    """Which rank this is, as Megatron-Core counts."""
    return {"tp": parallel_state.get_tensor_model_parallel_rank(),
            "pp": parallel_state.get_pipeline_model_parallel_rank(),
            "dp": parallel_state.get_data_parallel_rank(),
            "ep": parallel_state.get_expert_model_parallel_rank(),
            "etp": parallel_state.get_expert_tensor_parallel_rank()}
