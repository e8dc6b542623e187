"""Which model each engine shards in which configurations, and the command line of a dump."""

import pathlib
import re
import sys
import traceback

from coordinates import Case


def in_quants(engine):
    """Cases of codes and scales."""
    return [Case(f"{model}-blocks", f"{engine}:{degrees},quant={quant}", ranks)
            for quant in ("fp8_block", "fp8_channel", "int8_channel")
            for model, degrees, ranks in (
                ("qwen3", "tp=1", 1), ("qwen3", "tp=2", 2), ("qwen3_moe", "tp=2", 2),
                ("qwen3_moe", "tp=2,ep=2", 2), ("deepseek_v3", "tp=2", 2))]


MEGATRON = [
    Case("llama", "megatron:tp=2,vocab_multiple=8", 2),
    Case("llama-tied", "megatron:tp=2,vocab_multiple=8", 2),
    Case("llama-bias", "megatron:tp=2,vocab_multiple=8", 2),
    Case("qwen2", "megatron:tp=2", 2),
    Case("qwen2", "megatron:tp=4,vocab_multiple=8", 4),
    Case("qwen3", "megatron:tp=1,vocab_multiple=1", 1),
    Case("qwen3", "megatron:tp=2,vocab_multiple=16", 2),
    Case("qwen3", "megatron:tp=4,vocab_multiple=8", 4),
    Case("qwen3-4-layers", "megatron:tp=1,pp=2,vpp=2,vocab_multiple=8", 2),
    Case("qwen3-4-layers", "megatron:tp=2,pp=2,vocab_multiple=8", 4),
    Case("qwen3-4-layers-tied", "megatron:tp=2,pp=2,vocab_multiple=8", 4),
    Case("qwen3-4-layers-tied", "megatron:tp=1,pp=2,vpp=2,vocab_multiple=8", 2),
    Case("qwen3_moe", "megatron:tp=1,vocab_multiple=8", 1),
    Case("qwen3_moe", "megatron:tp=1,ep=2,vocab_multiple=8", 2),
    Case("qwen3_moe", "megatron:tp=2,ep=2,etp=1,vocab_multiple=8", 2),
    Case("qwen3_moe", "megatron:tp=2,pp=2,ep=2,etp=1,vocab_multiple=8", 4),
    Case("qwen3_moe", "megatron:tp=2,ep=2,etp=2,vocab_multiple=8", 4),
    Case("qwen3_moe", "megatron:tp=1,ep=2,etp=2,vocab_multiple=8", 4),
    Case("qwen3_moe", "megatron:tp=4,ep=2,etp=2,vocab_multiple=8", 4),
    Case("qwen3_moe-10-experts", "megatron:tp=1,ep=5,vocab_multiple=8", 5),
    Case("glm4_moe", "megatron:tp=1,vocab_multiple=8", 1),
    Case("glm4_moe", "megatron:tp=2,pp=2,ep=2,etp=1,vocab_multiple=8", 4),
    Case("glm4_moe", "megatron:tp=2,ep=2,etp=2,vocab_multiple=8", 4),
    Case("glm4_moe-no-qk-norm", "megatron:tp=2,ep=4,etp=1,vocab_multiple=8", 4),
    Case("deepseek_v3", "megatron:tp=1,vocab_multiple=8", 1),
    Case("deepseek_v3", "megatron:tp=2,pp=2,ep=2,etp=1,vocab_multiple=8", 4),
    Case("deepseek_v3", "megatron:tp=4,ep=2,etp=2,vocab_multiple=8", 4),
    Case("deepseek_v3-no-q_lora", "megatron:tp=2,ep=4,etp=1,vocab_multiple=8", 4),
    Case("kimi_k2", "megatron:tp=2,pp=2,ep=2,etp=1,vocab_multiple=8", 4),
]

MEGATRON_BRIDGE = [
    Case("qwen3", "megatron:tp=2,vocab_multiple=1", 2),
    Case("qwen3_moe", "megatron:tp=2,experts=sequential,vocab_multiple=1", 2),
    Case("qwen3_next", "megatron:tp=1,vocab_multiple=1", 1),
    Case("qwen3_next", "megatron:tp=2,ep=2,etp=1,vocab_multiple=1", 2),
    Case("gpt_oss", "megatron:tp=1,vocab_multiple=1", 1),
    Case("gpt_oss", "megatron:tp=2,ep=2,etp=1,vocab_multiple=1", 2),
]

VLLM = [
    Case("llama", "vllm:tp=2", 2),
    Case("llama-tied", "vllm:tp=2", 2),
    Case("llama-bias", "vllm:tp=2", 2),
    Case("qwen2", "vllm:tp=2", 2),
    Case("qwen2", "vllm:tp=4", 4),
    Case("qwen3", "vllm:tp=1", 1),
    Case("qwen3", "vllm:tp=4", 4),
    Case("qwen3-4-layers", "vllm:tp=1,pp=2", 2),
    Case("qwen3_moe", "vllm:tp=1", 1),
    Case("qwen3_moe", "vllm:tp=2", 2),
    Case("qwen3_moe", "vllm:tp=2,ep=2", 2),
    Case("qwen3_moe", "vllm:tp=2,dp=2,ep=4", 4),
    Case("qwen3_moe-mixed", "vllm:tp=2", 2),
    Case("qwen3_moe-10-experts", "vllm:tp=4,ep=4", 4),
    Case("glm4_moe", "vllm:tp=1", 1),
    Case("glm4_moe", "vllm:tp=2", 2),
    Case("glm4_moe-no-qk-norm", "vllm:tp=2,ep=2", 2),
    Case("deepseek_v3", "vllm:tp=1", 1),
    Case("deepseek_v3", "vllm:tp=2", 2),
    Case("deepseek_v3", "vllm:tp=4,ep=4", 4),
    Case("deepseek_v3", "vllm:tp=4,ep=4,placement=round_robin", 4),
    Case("deepseek_v3-no-q_lora", "vllm:tp=2", 2),
    Case("kimi_k2", "vllm:tp=2", 2),
    Case("qwen3_next", "vllm:tp=1", 1),
    Case("qwen3_next", "vllm:tp=2", 2),
    Case("bailing_moe", "vllm:tp=1", 1),
    Case("bailing_moe", "vllm:tp=4", 4),
    Case("bailing_moe", "vllm:tp=2,ep=2", 2),
    Case("gpt_oss", "vllm:tp=1", 1),
    Case("gpt_oss", "vllm:tp=2", 2),
    Case("gpt_oss", "vllm:tp=2,ep=2", 2),
    *in_quants("vllm"),
    Case("deepseek_v3-blocks", "vllm:tp=4,quant=fp8_block", 4, refused=True),
]

SGLANG = [
    Case("llama", "sglang:tp=2", 2),
    Case("llama-tied", "sglang:tp=2", 2),
    Case("qwen2", "sglang:tp=4", 4),
    Case("qwen3", "sglang:tp=1", 1),
    Case("qwen3", "sglang:tp=4", 4),
    Case("qwen3_moe", "sglang:tp=2", 2),
    Case("qwen3_moe", "sglang:tp=2,ep=2", 2),
    Case("qwen3_moe", "sglang:tp=4,dp=2,ep=4", 4),
    Case("qwen3-4-layers", "sglang:tp=1,pp=2", 2),
    Case("glm4_moe", "sglang:tp=2", 2),
    Case("deepseek_v3", "sglang:tp=2", 2),
    Case("deepseek_v3", "sglang:tp=4,ep=4", 4),
    Case("deepseek_v3-no-q_lora", "sglang:tp=2", 2),
    Case("qwen3_next", "sglang:tp=2", 2),
    Case("gpt_oss", "sglang:tp=2", 2),
    Case("bailing_moe", "sglang:tp=2", 2),
    *in_quants("sglang"),
    Case("deepseek_v3-blocks", "sglang:tp=4,quant=fp8_block", 4, refused=True),
    Case("qwen3_moe-blocks", "sglang:tp=4,quant=fp8_block", 4, refused=True),
]

FSDP2 = [
    Case("llama-tied", "fsdp2:dp=3", 3),
    Case("llama-bias", "fsdp2:dp=2,hsdp=2", 4),
    Case("qwen2", "fsdp2:dp=4", 4),
    Case("qwen3", "fsdp2:dp=5", 5),
    Case("qwen3_moe", "fsdp2:dp=3,experts=packed", 3),
    Case("glm4_moe", "fsdp2:dp=2,experts=packed", 2),
    Case("deepseek_v3", "fsdp2:dp=2,experts=packed", 2),
    Case("qwen3_next", "fsdp2:dp=3,experts=packed", 3),
    Case("gpt_oss", "fsdp2:dp=3", 3),
]

FSDP2_V4 = [
    Case("qwen3_moe-10-experts", "fsdp2:dp=3", 3),
    Case("deepseek_v3", "fsdp2:dp=2", 2),
    Case("qwen3_next", "fsdp2:dp=3", 3),
]

TRANSFORMERS_V4 = [Case(model, "hf", 1) for model in ("glm4_moe", "deepseek_v3", "gpt_oss")]

TRANSFORMERS = [
    *(Case(model, "hf", 1) for model in (
        "llama-tied", "llama-bias", "qwen2", "qwen3", "qwen3_moe-mixed", "glm4_moe",
        "deepseek_v3", "kimi_k2", "qwen3_next", "gpt_oss")),
    *(Case(model, "hf:experts=packed", 1) for model in (
        "qwen3_moe-mixed", "glm4_moe", "deepseek_v3", "qwen3_next")),
]

ALL = {"megatron": MEGATRON, "megatron_bridge": MEGATRON_BRIDGE, "vllm": VLLM, "sglang": SGLANG,
       "fsdp2": FSDP2, "fsdp2_v4": FSDP2_V4,
       "transformers": TRANSFORMERS, "transformers_v4": TRANSFORMERS_V4}


def main(engine, dump):
    """`dump(case, out)` for every case, or for those whose names match one of the arguments."""
    out, patterns = pathlib.Path(sys.argv[1]), sys.argv[2:]
    bad = 0
    for case in ALL[engine]:
        if patterns and not any(re.search(pattern, case.name) for pattern in patterns):
            continue
        try:
            dump(case, out)
            print(f"{engine}/{case.name}: dumped", flush=True)
        except Exception:
            traceback.print_exc()
            print(f"{engine}/{case.name}: FAILED", flush=True)
            bad += 1
    return 1 if bad else 0
