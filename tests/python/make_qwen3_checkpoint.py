"""Saves a small Qwen3ForCausalLM, as Transformers does, for `weir demo --model`.

Needs torch and transformers; not part of the tests. Usage:
    python make_qwen3_checkpoint.py DIR [--tied] [--sharded] [--attention-bias] [--seed N]
"""

import argparse

import torch
import transformers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--tied", action="store_true", help="the head is the embedding")
    parser.add_argument("--sharded", action="store_true", help="several files and an index")
    parser.add_argument("--attention-bias", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    config = transformers.Qwen3Config(
        vocab_size=1000,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=options.tied,
        attention_bias=options.attention_bias,
        dtype="bfloat16",
    )
    model = transformers.Qwen3ForCausalLM(config).to(torch.bfloat16)
    limit = "200KB" if options.sharded else "1GB"
    model.save_pretrained(options.dir, max_shard_size=limit, safe_serialization=True)


if __name__ == "__main__":
    main()
