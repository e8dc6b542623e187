"""Makes the Python half of Transformer Engine importable where there is no CUDA.

Megatron-Core's models are made of its modules, which give parameters their names and shapes. That
is all in Python; the compiled half, which computes, is left out.
"""

import os
import warnings

import pretence

# For kernels and for export. PyTorch must not take them for the real ones later.
ONLY_WHILE_IMPORTING = {"onnx", "onnxscript", "triton"}


def install():
    """To be called before `megatron` is imported."""
    # They keep Transformer Engine from looking for its shared libraries.
    os.environ["NVTE_PROJECT_BUILDING"] = "1"
    os.environ["NVTE_FRAMEWORK"] = "none"
    import torch
    import torch._dynamo  # these two look for triton, and must not find ours
    import torch.utils.flop_counter

    warnings.simplefilter("ignore")
    import transformer_engine.common

    transformer_engine.common.load_framework_extension = lambda framework: None
    pretence.install({"transformer_engine_torch"})
    with pretence.while_importing(ONLY_WHILE_IMPORTING):
        import transformer_engine.pytorch
        import transformer_engine.pytorch.router

    # Modules refuse to be made without CUDA, though they can lie in host memory.
    cuda = pretence.Pretend(torch.cuda, is_available=lambda: True)
    transformer_engine.pytorch.module.base.torch = pretence.Pretend(torch, cuda=cuda)
    attention = transformer_engine.pytorch.attention.dot_product_attention.dot_product_attention
    attention.torch = pretence.Pretend(
        torch, empty=lambda *shape, device=None, **options: torch.empty(*shape, **options))
    transformer_engine.pytorch.cpp_extensions.get_cudnn_version = lambda: 90100
