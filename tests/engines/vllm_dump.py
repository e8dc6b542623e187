"""What each rank of vLLM keeps of the tiny models. Usage: vllm_dump.py OUT [NAME...]

vLLM's own model classes are built in a group of processes over gloo, on its CPU platform, and its
own loader, which knows fused and cut parameters, fills them from the numbered checkpoint. What is
dumped is the state between loading and the processing of weights for kernels.
"""

import os
import sys
import unittest.mock

# The package was installed without any device, which leaves out nothing but kernels.
os.environ["VLLM_TARGET_DEVICE"] = "cpu"
os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import vllm.distributed.parallel_state as parallel_state
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.fused_moe import unquantized_fused_moe_method as unquantized
from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
from vllm.model_executor.layers.fused_moe.oracle.int8 import Int8MoeBackend
from vllm.model_executor.layers.quantization import fp8
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe import (
    compressed_tensors_moe_w8a8_fp8, compressed_tensors_moe_w8a8_int8)
from vllm.model_executor.layers.quantization.compressed_tensors.schemes import (
    compressed_tensors_w8a8_fp8, compressed_tensors_w8a8_int8)
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.utils import initialize_model

import bailing
import cases
import coordinates
import models
import ranks


# The kernels that GPUs of the Hopper generation use, and the layout they load. The CPU platform has
# kernels of its own, which are not installed, and would say no.
unquantized.select_unquantized_moe_backend = lambda moe_config: (
    unquantized.UnquantizedMoeBackend.TRITON, None)


def choose_kernels_of_gpus():
    """The same for quantized weights, whose kernels are chosen before there are any weights."""
    for module in (fp8, compressed_tensors_moe_w8a8_fp8):
        module.select_fp8_moe_backend = lambda **_: (Fp8MoeBackend.TRITON, None)
    compressed_tensors_moe_w8a8_int8.select_int8_moe_backend = (
        lambda **_: (Int8MoeBackend.TRITON, None))
    for module in (fp8, compressed_tensors_w8a8_fp8):
        module.init_fp8_linear_kernel = unittest.mock.MagicMock()
    compressed_tensors_w8a8_int8.init_int8_linear_kernel = unittest.mock.MagicMock()


choose_kernels_of_gpus()

bailing.register()


def config_of(checkpoint, options):
    dtype = "bfloat16" if "quant" in options else "float32"
    arguments = EngineArgs(
        model=str(checkpoint), tokenizer=str(checkpoint), skip_tokenizer_init=True,
        dtype=dtype, load_format="safetensors", enforce_eager=True, max_model_len=64,
        tensor_parallel_size=options.get("tp", 1), pipeline_parallel_size=options.get("pp", 1),
        data_parallel_size=options.get("dp", 1), enable_expert_parallel="ep" in options,
        expert_placement_strategy=options.get("placement", "linear"),
        distributed_executor_backend="external_launcher")
    return arguments.create_engine_config()


def start_parallel_state(config, rank, count, store):
    parallel_state.init_distributed_environment(
        world_size=count, rank=rank, local_rank=rank, backend="gloo",
        distributed_init_method=f"file://{store}")
    parallel_state.initialize_model_parallel(
        config.parallel_config.tensor_parallel_size, config.parallel_config.pipeline_parallel_size)


def dump_rank(case, folder, checkpoint, rank, store):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(case.ranks))
    config = config_of(checkpoint, case.options)
    torch.set_default_dtype(config.model_config.dtype)
    with set_current_vllm_config(config):
        start_parallel_state(config, rank, case.ranks, store)
        model = initialize_model(vllm_config=config)
        coordinates.unset(model)
        get_model_loader(config.load_config).load_weights(model, config.model_config)
    ranks.write_loaded(case, folder, rank, model, {
        "tp": parallel_state.get_tp_group().rank_in_group,
        "pp": parallel_state.get_pp_group().rank_in_group,
        "dp": parallel_state.get_dp_group().rank_in_group,
        "ep": parallel_state.get_ep_group().rank_in_group if "ep" in case.options else 0})


def dump(case, out):
    engine = coordinates.versions("vllm", "torch")
    ranks.dump_loaded(case, out / "vllm" / case.name, dump_rank, engine,
                      "its own loader reads a numbered checkpoint")


if __name__ == "__main__":
    sys.exit(cases.main("vllm", dump))
