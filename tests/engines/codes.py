"""Checkpoints whose weights are codes and scales, and what ranks keep of them.

Elements of all scales, in the order of names, are numbered from 1. A code is its scale's number,
less a multiple of CODES, plus 1: so codes are held against scales where the engine keeps them, and
golden files have the scales' elements and, of all else, types and shapes.
"""

import pathlib
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.integrations import finegrained_fp8
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

import coordinates

BLOCK = 128
# The bytes 1 to 126 are finite numbers as FP8, too.
CODES = 126

# What stays as it is, as published checkpoints of qwen3_moe list it. Engines take routers there for
# linear modules like others, and would read codes and scales that do not come.
LEFT = ["lm_head", "model.layers.0.mlp.gate"]

BLOCKS = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
          "weight_block_size": [BLOCK, BLOCK], "modules_to_not_convert": LEFT}


def _channels(kind, style):
    """As llm-compressor writes it: a scale for each output channel, and for each token."""
    facts = {"num_bits": 8, "type": kind, "symmetric": True}
    return {"quant_method": "compressed-tensors", "format": style, "ignore": LEFT,
            "quantization_status": "compressed", "kv_cache_scheme": None,
            "config_groups": {"group_0": {
                "targets": ["Linear"],
                "weights": facts | {"strategy": "channel", "dynamic": False},
                "input_activations": facts | {"strategy": "token", "dynamic": True}}}}


# By the layouts' word: how config.json says it, the type of codes, what scales are called.
QUANTS = {
    "fp8_block": (BLOCKS, torch.float8_e4m3fn, "_scale_inv"),
    "fp8_channel": (_channels("float", "float-quantized"), torch.float8_e4m3fn, "_scale"),
    "int8_channel": (_channels("int", "int-quantized"), torch.int8, "_scale"),
}
TYPES = {torch.float8_e4m3fn: "f8_e4m3", torch.int8: "i8", torch.bfloat16: "bf16",
         torch.float32: "f32"}


def quantized_names(config):
    """The weights beside which Transformers saves scales, when it keeps a model as FP8."""
    quantization = transformers.FineGrainedFP8Config()
    model = finegrained_fp8.replace_with_fp8_linear(
        coordinates.model_of(config), ["lm_head"], quantization, True).to_empty(device="cpu")
    model.hf_quantizer = FineGrainedFP8HfQuantizer(quantization, pre_quantized=True)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        saved = load_file(pathlib.Path(folder) / "model.safetensors")
    suffix = QUANTS["fp8_block"][2]
    scales = {name: list(scale.shape) for name, scale in saved.items() if name.endswith(suffix)}
    names = sorted(name.removesuffix(suffix) for name in scales)
    assert scales == {name + suffix: scales_shape("fp8_block", saved[name].shape) for name in names}
    return names


def block_of(quant, shape):
    """Rows and columns that have one scale."""
    return (BLOCK, BLOCK) if quant == "fp8_block" else (1, shape[-1])


def scales_shape(quant, shape):
    return [-(-extent // block) for extent, block in zip(shape, block_of(quant, shape))]


def scales_of(config, quant, shapes):
    """Names and shapes of the scales of a model with tensors of those shapes."""
    return {name + QUANTS[quant][2]: scales_shape(quant, shapes[name])
            for name in quantized_names(config)}


def codes_of(quant, numbers, shape):
    """The bytes of codes of that shape whose scales have these numbers."""
    tall, wide = block_of(quant, shape)
    spread = numbers.repeat_interleave(tall, dim=-2).repeat_interleave(wide, dim=-1)
    return (spread[..., :shape[-2], :shape[-1]] % CODES + 1).to(torch.uint8)


def write_checkpoint(folder, config, quant, shapes, scales):
    """As it is published. Everything that is not quantized holds ones."""
    folder.mkdir(parents=True)
    facts, code_type, suffix = QUANTS[quant]
    coordinates.write_json(folder / "config.json", config | {"quantization_config": facts})
    tensors = {name: torch.ones(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
    for name, values in coordinates.numbered(scales).items():
        weight = name.removesuffix(suffix)
        values = torch.from_numpy(values)
        tensors[name] = values.to(torch.float32)
        tensors[weight] = codes_of(quant, values, shapes[weight]).view(code_type)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def kept(model, quant):
    """What an engine has loaded: the scales' numbers, and type and shape of everything by name. All
    codes must lie where their scales do."""
    _, code_type, suffix = QUANTS[quant]
    parameters = {name for name, _ in model.named_parameters()}
    tensors = {name: value.detach() for name, value in coordinates.tensors_of(model).items()
               # Single numbers that no checkpoint has are scales of the KV cache.
               if (name in parameters and value.numel() > 1) or (value.float() >= 0).any()}
    scales, described = {}, {}
    for name, value in tensors.items():
        described[name] = " ".join([TYPES[value.dtype], *map(str, value.shape)])
        if name.endswith(suffix):
            scales[name] = coordinates.integers_of(value.numpy())
        elif value.dtype is code_type:
            numbers = tensors[name + suffix].to(torch.int64)
            wrong = value.view(torch.uint8) != codes_of(quant, numbers, value.shape)
            assert not wrong.any(), f"{name}: codes do not lie where their scales do"
        else:
            assert (value.float() >= 0).all(), f"{name}: an element was never loaded"
    return scales, described
