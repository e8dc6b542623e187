"""Checkpoints that Transformers saves are models to Weir, and Weir's seeded ones to Transformers.

Needs torch and transformers, so it is run by hand and not by `./dev test`. WEIR_BIN names the
folder that holds `model_echo` and `safetensors_echo`. Prints what failed, then
"N passed, M failed".
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import torch
import transformers

SIZES = {
    "vocab_size": 100, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 128,
}
FAMILIES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
}


def run(program, *arguments):
    path = Path(os.environ["WEIR_BIN"]) / program
    done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


def load(*arguments):
    return json.loads(run("model_echo", *arguments))


def check_same(model, found):
    """That `found` is the state of a Transformers model, its tied head left out."""
    state = model.state_dict()
    tied = {}
    if model.config.tie_word_embeddings:
        tied = {"lm_head.weight": "model.embed_tokens.weight"}
        state.pop("lm_head.weight")
    assert found["aliases"] == tied
    shapes = {tensor["name"]: tensor["shape"] for tensor in found["tensors"]}
    assert shapes == {name: list(value.shape) for name, value in state.items()}
    assert all(tensor["parameter"] for tensor in found["tensors"])


def test_what_transformers_saves_is_a_model(folder):
    for family, (config_type, model_type) in FAMILIES.items():
        biases = [{}] if family == "qwen2" else [{}, {"attention_bias": True}]
        if family == "llama":
            biases.append({"mlp_bias": True})
        for tied in (True, False):
            for number, bias in enumerate(biases):
                for limit in ("1GB", "60KB"):
                    config = config_type(**SIZES, **bias, tie_word_embeddings=tied)
                    model = model_type(config).to(torch.bfloat16)
                    path = folder / f"{family}-{tied}-{number}-{limit}"
                    model.save_pretrained(path, max_shard_size=limit)
                    assert (path / "model.safetensors").exists() == (limit == "1GB")
                    found = load(path)
                    assert found["family"] == family
                    check_same(model, found)


def test_the_demo_checkpoint_maker_makes_models(folder):
    maker = Path(__file__).with_name("make_qwen3_checkpoint.py")
    for number, options in enumerate([[], ["--tied"], ["--sharded"], ["--tied", "--sharded"]]):
        path = folder / str(number)
        subprocess.run([sys.executable, maker, path, *options], check=True, capture_output=True)
        found = load(path)
        assert found["type"] == "bf16"
        assert len(found["tensors"]) == 4 * 11 + (2 if "--tied" in options else 3)
        assert (path / "model.safetensors.index.json").exists() == ("--sharded" in options)


def test_transformers_reads_a_seeded_checkpoint(folder):
    found = load(folder / "m", "tiny-qwen3")
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "m", output_loading_info=True
    )
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert model.dtype == torch.bfloat16
    check_same(model, found)
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.isfinite(model(tokens).logits).all()
    model.save_pretrained(folder / "again")
    digests = [run("safetensors_echo", folder / name) for name in ("m", "again")]
    lines = [[line for line in text.splitlines() if "digest" in line] for text in digests]
    assert lines[0] == lines[1]


def test_a_bert_is_a_model_without_family(folder):
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64,
    )
    transformers.BertModel(config).save_pretrained(folder / "bert")
    found = load(folder / "bert")
    assert found["family"] == "" and found["aliases"] == {}
    assert len(found["tensors"]) == 5 + 16 + 2


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
