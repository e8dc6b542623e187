"""What each rank of Megatron-Core keeps of the tiny models. Usage: megatron_dump.py OUT [NAME...]

The models are Megatron-Core's own, of Transformer Engine modules, in a group of processes over
gloo; mbridge, an importer that is used in training, loads the numbered Hugging Face checkpoint into
them. So names, shapes and cuts are Megatron's, and the order of rows is what an importer holds
Megatron's attention and MLP to expect; that attention really reads it so is checked besides, by
handing its own splitting a row of numbers.
"""

import functools
import pathlib
import sys
import tempfile

import te_without_cuda

te_without_cuda.install()

import mbridge.core.bridge
import mbridge.models
import torch
from megatron.core.transformer import MLATransformerConfig

import cases
import coordinates
import megatron_ranks
import models
import ranks


class Config:
    """A config.json as mbridge reads it: attributes, and `in`."""

    def __init__(self, facts):
        self.__dict__.update({"attention_dropout": 0.0} | facts)

    def __contains__(self, name):
        return name in self.__dict__


def latent_config(max_position_embeddings, **settings):
    """mbridge knows this setting under the name that it had before Megatron-Core 0.14."""
    return MLATransformerConfig(original_max_position_embeddings=max_position_embeddings,
                                **settings)


mbridge.models.DeepseekV3Bridge.TransformerConfigClass = staticmethod(latent_config)


def bridge_for(config, options):
    tp = options.get("tp", 1)
    family = config["model_type"].replace("kimi_k2", "deepseek_v3")
    kind = mbridge.core.bridge._MODEL_REGISTRY[family]
    # The padding is a setting of Megatron-LM's training script, which multiplies it by TP.
    multiple = options.get("vocab_multiple", 128) * tp
    bridge = kind(Config(config), dtype=torch.float32, make_vocab_size_divisible_by=multiple)
    if config.get("mlp_bias"):
        map_biases(kind)
        bridge.set_extra_args(add_bias_linear=True)
    bridge.set_extra_args(use_cpu_initialization=True, sequence_parallel=False,
                          bias_activation_fusion=False, perform_initialization=False)
    if kind is mbridge.models.DeepseekV3Bridge:
        pad_vocabulary(bridge, config["vocab_size"], multiple)
    # DeepSeek's own reader insists on bf16, which would not hold the numbers.
    bridge._get_safetensor_io = functools.partial(
        mbridge.core.bridge.Bridge._get_safetensor_io, bridge)
    return bridge


def map_biases(kind):
    """mbridge leaves them out. Megatron-Core has biases on all projections, or on QKV alone."""
    layer = "model.layers.{layer_number}."
    kind._ATTENTION_MAPPING |= {
        "self_attention.linear_proj.bias": [layer + "self_attn.o_proj.bias"]}
    kind._MLP_MAPPING |= {
        "mlp.linear_fc1.bias": [layer + "mlp.gate_proj.bias", layer + "mlp.up_proj.bias"],
        "mlp.linear_fc2.bias": [layer + "mlp.down_proj.bias"]}


def pad_vocabulary(bridge, size, multiple):
    """DeepSeek's provider leaves out what mbridge does for all other models."""
    bridge.vocab_size, bridge.padded_vocab_size = size, -(-size // multiple) * multiple
    arguments = bridge._get_gptmodel_args() | {"vocab_size": bridge.padded_vocab_size}
    bridge._get_gptmodel_args = arguments.copy


def dump_rank(case, folder, config, checkpoint, rank, store):
    ranks.join(rank, case.ranks, store)
    megatron_ranks.do_without_a_device()
    megatron_ranks.start_parallel_state(case.options)
    bridge = bridge_for(config, case.options)
    chunks = megatron_ranks.build_chunks(bridge._model_provider([]), case.options)
    local = megatron_ranks.load_and_number(
        chunks, lambda models: bridge.load_weights(models, str(checkpoint)), checkpoint)
    case.write_rank(folder, rank, local, megatron_ranks.facts())


def dump(case, out):
    config = models.MODELS[case.model]
    shapes = coordinates.names_and_shapes(config)
    folder = coordinates.fresh_folder(out / "megatron" / case.name)
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = pathlib.Path(scratch) / "checkpoint"
        coordinates.write_checkpoint(checkpoint, config, coordinates.numbered(shapes))
        ranks.run_ranks(case.ranks, functools.partial(
            dump_rank, case, folder, config, checkpoint))
    engine = coordinates.versions("megatron-core", "transformer-engine", "mbridge", "torch")
    case.write_case(folder, config, shapes, engine, "mbridge loads a numbered checkpoint")


if __name__ == "__main__":
    sys.exit(cases.main("megatron", dump))
