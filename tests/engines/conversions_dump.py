"""What PyTorch and vLLM make of numbers in smaller types. Usage: conversions_dump.py OUT

PyTorch casts values around the borders of rounding. vLLM's own functions quantize a matrix with
scales of blocks (per_block_cast_to_fp8, which is DeepGEMM's), and one with scales of channels.
"""

import os
import pathlib
import sys

# The package was installed without any device, which leaves out nothing but kernels.
os.environ["VLLM_TARGET_DEVICE"] = "cpu"
os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
# Not compiled: each operation is PyTorch's own, with its rounding.
os.environ["TORCHDYNAMO_DISABLE"] = "1"

import numpy
import torch
from safetensors.torch import save_file
from vllm.model_executor.layers.quantization.online import fp8
from vllm.utils.deep_gemm import per_block_cast_to_fp8

import coordinates


def random_bits(count):
    """A 32-bit generator with a name (Numerical Recipes' ranqd1), the same in every version."""
    state, numbers = 1, []
    for _ in range(count):
        state = (1664525 * state + 1013904223) % 2**32
        numbers.append(state)
    return numpy.array(numbers, dtype=numpy.uint32)


def random_normals(count):
    """Nearly normal: sums of twelve, as f32."""
    bits = random_bits(12 * count).astype(numpy.float64) / 2**32
    return torch.from_numpy((bits.reshape(count, 12).sum(axis=1) - 6).astype(numpy.float32))


def borders_of(dtype, codes):
    """f32 half way between numbers of a type and the next larger ones, and right beside."""
    bits = torch.int8 if dtype.itemsize == 1 else torch.int16
    low = codes.to(bits).view(dtype).to(torch.float64)
    high = (codes + 1).to(bits).view(dtype).to(torch.float64)
    middle = ((low + high) / 2).to(torch.float32)
    around = [(middle.view(torch.int32) + step).view(torch.float32) for step in (-1, 0, 1)]
    return torch.cat(around + [-values for values in around])


def casts():
    values = torch.cat([
        borders_of(torch.float16, torch.arange(0, 0x7bff, 61)),
        borders_of(torch.bfloat16, torch.arange(0, 0x7f7f, 67)),
        borders_of(torch.float8_e4m3fn, torch.arange(0, 0x7e)),
        torch.from_numpy(random_bits(1000).view(numpy.float32)),
        torch.tensor([0.0, -0.0, 448, 449, 464, 465, 65504, 65519.99, 65520, 3.4028235e38, 1e-45,
                      float("inf"), float("-inf"), float("nan")]),
    ])
    halves = torch.arange(0, 2**16, 13).to(torch.uint16).view(torch.int16)
    f16, bf16 = halves.view(torch.float16), halves.clone().view(torch.bfloat16)
    return {
        "f32": values,
        "f32_to_f16": values.to(torch.float16),
        "f32_to_bf16": values.to(torch.bfloat16),
        # Beyond 448 the cast alone gives NaN: who quantizes clamps before.
        "f32_to_f8_e4m3": values.clamp(-448, 448).to(torch.float8_e4m3fn),
        "f16": f16,
        "f16_to_f32": f16.to(torch.float32),
        "f16_to_bf16": f16.to(torch.bfloat16),
        "bf16": bf16,
        "bf16_to_f32": bf16.to(torch.float32),
        "bf16_to_f16": bf16.to(torch.float16),
        "f8_e4m3": torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn),
        "f8_e4m3_to_f32": torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn).float(),
    }


# Beside a largest value of 3.0625, these over its scale lie half way between two codes, and times
# the scale's reciprocal they don't; so does 1.125 beside 2.25 for INT8. Found by trying all bf16.
LARGEST = 3.0625
BESIDE = torch.tensor([0.6836, 0.7930, 1.3672, 1.5859, 2.7344]).to(torch.bfloat16).float()


def blocks():
    """2 x 3 blocks, the last ones cut: of zeros, of tiny numbers, with an infinity, with a NaN."""
    weights = (random_normals(140 * 300).reshape(140, 300) * 0.02).to(torch.bfloat16)
    weights[0, 0] = LARGEST / 32
    weights[1, :5] = BESIDE / 32
    weights[128:, :128] *= 1e-5
    weights[128:, 128:256] = 0
    weights[5, 290] = float("inf")
    weights[131, 270] = float("nan")
    codes, scales = per_block_cast_to_fp8(weights, [128, 128], use_ue8m0=False)
    ue8m0_codes, ue8m0_scales = per_block_cast_to_fp8(weights, [128, 128], use_ue8m0=True)
    of_elements = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)[:140, :300]
    return {
        "weights": weights,
        "codes": codes,
        "scales": scales.contiguous(),
        "ue8m0_codes": ue8m0_codes,
        "ue8m0_scales": ue8m0_scales.contiguous(),
        "dequantized": (codes.to(torch.float32) * of_elements).to(torch.bfloat16),
    }


def channels():
    """A scale for each row; one is of zeros."""
    sizes = torch.tensor([1e-7, 1e-4, 0.02, 0.02, 1, 100, 1e30, 0]).reshape(8, 1)
    weights = random_normals(8 * 500).reshape(8, 500) * sizes
    weights[2, 0] = LARGEST / 32
    weights[2, 1:6] = BESIDE / 32
    weights[3, :2] = torch.tensor([2.25, 1.125]) / 16
    scales = fp8._fp8_channel_scale(weights.abs().amax(dim=1, keepdim=True))
    # As vLLM's Int8 experts, in the type that the weights have. Zeros over zero would be NaN.
    i8_scales = weights.abs().amax(dim=1) / 127
    i8_scales[i8_scales == 0] = 2**-23
    i8_codes = weights.div(i8_scales.unsqueeze(1)).round().clamp(-127, 127).to(torch.int8)
    return {
        "weights": weights,
        "f8_codes": fp8._fp8_quant_per_channel(weights, scales),
        "f8_scales": scales.reshape(8).contiguous(),
        "i8_codes": i8_codes,
        "i8_scales": i8_scales,
        "i8_dequantized": (i8_codes.float() * i8_scales.unsqueeze(1)).to(torch.float16),
    }


def main():
    for case in (casts, blocks, channels):
        folder = pathlib.Path(sys.argv[1]) / "conversions" / case.__name__
        coordinates.fresh_folder(folder)
        save_file(case(), folder / "values.safetensors",
                  metadata={"engine": coordinates.versions("torch", "vllm")})


if __name__ == "__main__":
    main()
