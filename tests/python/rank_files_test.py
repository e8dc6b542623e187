"""The files of `weir reshard` are read by the real safetensors library, and hold what they should.

Needs numpy and safetensors 0.8 or newer. WEIR_BIN names the folder that holds the program `weir`.
Prints what failed, then "N passed, M failed"; exit status 0 only if nothing failed.
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import numpy
import safetensors
import safetensors.numpy

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 8, 2, 4, 2, 4, 12, 70


def reshard(source, layout, target):
    command = [Path(os.environ["WEIR_BIN"]) / "weir", "reshard", source, "--to", layout]
    done = subprocess.run(command + ["--out", target, "--verify"], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done.stderr


def make_checkpoint(folder):
    """A small Llama, saved by the real library."""
    folder.mkdir()
    config = {
        "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "intermediate_size": FFN, "vocab_size": VOCAB, "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": [VOCAB, HIDDEN], "lm_head.weight": [VOCAB, HIDDEN],
              "model.norm.weight": [HIDDEN]}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        shapes |= {
            name + "input_layernorm.weight": [HIDDEN],
            name + "post_attention_layernorm.weight": [HIDDEN],
            name + "self_attn.q_proj.weight": [HEADS * HEAD_DIM, HIDDEN],
            name + "self_attn.k_proj.weight": [KV_HEADS * HEAD_DIM, HIDDEN],
            name + "self_attn.v_proj.weight": [KV_HEADS * HEAD_DIM, HIDDEN],
            name + "self_attn.o_proj.weight": [HIDDEN, HEADS * HEAD_DIM],
            name + "mlp.gate_proj.weight": [FFN, HIDDEN],
            name + "mlp.up_proj.weight": [FFN, HIDDEN],
            name + "mlp.down_proj.weight": [HIDDEN, FFN],
        }
    random = numpy.random.default_rng(11)
    tensors = {name: random.standard_normal(shape, numpy.float32)
               for name, shape in shapes.items()}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return tensors


def load_rank(folder, rank, ranks):
    path = folder / f"rank-{rank:05}-of-{ranks:05}.safetensors"
    with safetensors.safe_open(path, framework="np") as file:
        metadata = file.metadata()
        assert metadata["weir.rank"] == str(rank) and metadata["weir.ranks"] == str(ranks)
        return metadata["weir.layout"], {name: file.get_tensor(name) for name in file.keys()}


def test_fsdp2_ranks_are_rows(folder):
    tensors = make_checkpoint(folder / "in")
    reshard(folder / "in", "fsdp2:dp=3", folder / "out")
    ranks = []
    for rank in range(3):
        layout, local = load_rank(folder / "out", rank, 3)
        assert layout == "fsdp2:dp=3"
        assert local.keys() == tensors.keys()
        ranks.append(local)
    for name, tensor in tensors.items():
        joined = numpy.concatenate([local[name] for local in ranks])
        assert numpy.array_equal(joined, tensor), name


def test_vllm_ranks_are_fused_and_padded(folder):
    tensors = make_checkpoint(folder / "in")
    reshard(folder / "in", "vllm:tp=2", folder / "out")
    for rank in range(2):
        _, local = load_rank(folder / "out", rank, 2)
        for layer in range(LAYERS):
            name = f"model.layers.{layer}."
            halves = [numpy.split(tensors[name + part + "_proj.weight"], 2)[rank]
                      for part in ("self_attn.q", "self_attn.k", "self_attn.v")]
            fused = local[name + "self_attn.qkv_proj.weight"]
            assert numpy.array_equal(fused, numpy.concatenate(halves))
            columns = numpy.split(tensors[name + "mlp.down_proj.weight"], 2, axis=1)[rank]
            assert numpy.array_equal(local[name + "mlp.down_proj.weight"], columns)
        padded = numpy.zeros([128, HIDDEN], numpy.float32)
        padded[:VOCAB] = tensors["lm_head.weight"]
        assert numpy.array_equal(local["lm_head.weight"], numpy.split(padded, 2)[rank])


def test_a_checkpoint_comes_back(folder):
    tensors = make_checkpoint(folder / "in")
    reshard(folder / "in", "megatron:tp=2,pp=2", folder / "a")
    reshard(folder / "a", "vllm:tp=4", folder / "b")
    reshard(folder / "b", "hf", folder / "c")
    back = safetensors.numpy.load_file(folder / "c" / "model.safetensors")
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype and numpy.array_equal(back[name], tensor), name
    with safetensors.safe_open(folder / "c" / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}


def main():
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    failed = 0
    for name, test in tests:
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(Path(folder))
            except Exception:
                failed += 1
                print(f"FAILED {name}\n{traceback.format_exc()}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
