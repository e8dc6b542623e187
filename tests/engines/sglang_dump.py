"""What each rank of SGLang keeps of the tiny models. Usage: sglang_dump.py OUT [NAME...]

SGLang's own model classes are built in a group of processes over gloo, on its CPU platform, and its
own `load_weights` fills them from the numbered checkpoint, as its weight cache daemon does it. What
is dumped is the state between loading and the processing of weights for kernels.
"""

import os
import sys

os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

import pretence

# Kernels and image transforms, which are imported on the way and never called here.
pretence.install({"sgl_kernel", "torchvision"})

import torch
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.distributed import parallel_state
from sglang.srt.layers.dp_attention import init_dp_gathered_buffer, initialize_dp_attention
from sglang.srt.layers.moe import initialize_moe_config
from sglang.srt.layers.quantization.compressed_tensors.compressed_tensors import (
    CompressedTensorsConfig)
from sglang.srt.layers.rotary_embedding import factory
from sglang.srt.model_loader import loader
from sglang.srt.models import registry  # imports all models, here once for all ranks
from sglang.srt.runtime_context import SpawnRanks, publish
from sglang.srt.server_args import ServerArgs

import bailing
import cases
import coordinates
import models
import ranks

bailing.register()
# Rotary tables are no weights, and for the CPU there are but those of scaled positions.
factory.get_rope_cpu = lambda *_, **__: torch.nn.Identity()
# Which asks a GPU for its generation.
CompressedTensorsConfig._check_scheme_supported = lambda *_, **__: True


def dtype_of(case):
    return "bfloat16" if "quant" in case.options else "float32"


def start(case, checkpoint, rank, store):
    """SGLang's settings, made known to the process, and its groups. Returns the model's."""
    options, dtype = case.options, dtype_of(case)
    arguments = ServerArgs(
        model_path=str(checkpoint), device="cpu", dtype=dtype, skip_tokenizer_init=True,
        tp_size=options.get("tp", 1), ep_size=options.get("ep", 1), pp_size=options.get("pp", 1),
        dp_size=options.get("dp", 1), enable_dp_attention="dp" in options, disable_cuda_graph=True,
        disable_radix_cache=True, disable_shared_experts_fusion=True)
    publish(arguments, role="weight_cache_daemon", ranks=SpawnRanks(world_rank=rank, gpu_id=rank))
    initialize_moe_config()
    parallel_state.init_distributed_environment(
        world_size=case.ranks, rank=rank, local_rank=rank, backend="gloo",
        distributed_init_method=f"file://{store}")
    parallel_state.initialize_model_parallel()
    # By its compressed-tensors, which `quantization` overrules, experts of INT8 are for NPUs only.
    model_config = ModelConfig(
        model_path=str(checkpoint), dtype=dtype,
        quantization="w8a8_int8" if options.get("quant") == "int8_channel" else None)
    # Set before this on the CPU, where it differs if tp does not divide the heads.
    facts = model_config.hf_config
    for name in ("linear_num_key_heads", "linear_num_value_heads"):
        if hasattr(facts, name):
            setattr(facts, name + "_cpu", getattr(facts, name))
    initialize_dp_attention(arguments)
    init_dp_gathered_buffer(model_config)
    return model_config


def dump_rank(case, folder, checkpoint, rank, store):
    torch.set_num_threads(1)
    torch.set_default_dtype(getattr(torch, dtype_of(case)))
    model_config = start(case, checkpoint, rank, store)
    assert model_config.hf_config.architectures[0] in registry.ModelRegistry.get_supported_archs()
    load_config = LoadConfig(load_format="safetensors")
    quantization = loader._get_quantization_config(model_config, load_config)
    model = loader._initialize_model(model_config, load_config, quantization)
    # Some parameters are bf16 whatever the settings say, which would not hold the numbers.
    if "quant" not in case.options:
        model = model.float()
    coordinates.unset(model)
    source = loader.DefaultModelLoader(load_config)
    # Called here, the fixup after loading would make derived weights for kernels.
    model.post_load_weights = lambda *_, **__: None
    model.load_weights(source._get_all_weights(model_config, model))
    ranks.write_loaded(case, folder, rank, model, {"tp": rank})


def dump(case, out):
    engine = coordinates.versions("sglang", "torch")
    ranks.dump_loaded(case, out / "sglang" / case.name, dump_rank, engine,
                      "its own loader reads a numbered checkpoint")


if __name__ == "__main__":
    sys.exit(cases.main("sglang", dump))
