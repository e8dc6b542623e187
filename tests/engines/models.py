"""The tiny models that every engine is asked to shard, as the text of their `config.json`.

Sizes are small, and uneven where an engine allows it: the vocabulary is no multiple of any padding,
query heads are wider together than the hidden size, and the key-value heads are fewer than the
largest tensor parallelism.
"""

DECODER = {
    "hidden_size": 8,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "vocab_size": 50,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}

EXPERTS = {"moe_intermediate_size": 8, "num_experts_per_tok": 2, "norm_topk_prob": True}

QWEN_EXPERTS = EXPERTS | {
    "num_experts": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "router_aux_loss_coef": 0.001,
}

# GLM-4.5 and DeepSeek-V3 route alike, and begin with dense layers.
SCORED_EXPERTS = EXPERTS | {
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 0,
}

GLM4 = SCORED_EXPERTS | {
    "attention_bias": True,
    "use_qk_norm": True,
    "partial_rotary_factor": 0.5,
}

# vLLM deals experts out in turn only where they are in groups.
LATENT = SCORED_EXPERTS | {
    "n_group": 2,
    "q_lora_rank": 12,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "moe_layer_freq": 1,
    "rope_scaling": None,
    "head_dim": ...,
}

# The first layer is a gated DeltaNet, the second gated attention.
DELTA_NET = QWEN_EXPERTS | {
    "shared_expert_intermediate_size": 12,
    "full_attention_interval": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 2,
    "linear_value_head_dim": 3,
    "linear_conv_kernel_dim": 4,
    "partial_rotary_factor": 0.5,
    "num_attention_heads": 4,
    "head_dim": 8,
}

# With codes in blocks of 128 x 128: heads and experts are one block high on each of two ranks, and
# what is cut on no rank ends with half a block.
IN_BLOCKS = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "torch_dtype": "bfloat16",
}

EXPERTS_IN_BLOCKS = IN_BLOCKS | {"moe_intermediate_size": 256}

LATENT_IN_BLOCKS = EXPERTS_IN_BLOCKS | {
    "num_hidden_layers": 2,
    "q_lora_rank": 128,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 64,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "head_dim": ...,
}

GPT_OSS = {
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "intermediate_size": 8,
    "attention_bias": True,
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention"],
    "swiglu_limit": 7.0,
    "router_aux_loss_coef": 0.9,
    "rope_scaling": None,
}

LING = EXPERTS | {
    "num_experts": 8,
    "num_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
    "routed_scaling_factor": 2.5,
    "score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "router_dtype": "fp32",
    "use_bias": False,
    "use_qkv_bias": False,
    "use_qk_norm": True,
    "use_rmsnorm": True,
    "embedding_dropout": 0.0,
    "partial_rotary_factor": 0.5,
    "norm_head": False,
    "attention_bias": ...,
}


def _model(model_type, architecture, *facts):
    """Later facts win; `...` takes one away."""
    config = {"model_type": model_type, "architectures": [architecture]} | DECODER
    for more in facts:
        config |= more
    return {key: value for key, value in config.items() if value is not ...}


def _llama(**facts):
    return _model("llama", "LlamaForCausalLM", {"mlp_bias": False}, facts)


def _qwen3(**facts):
    return _model("qwen3", "Qwen3ForCausalLM", facts)


def _qwen3_moe(**facts):
    return _model("qwen3_moe", "Qwen3MoeForCausalLM", QWEN_EXPERTS, facts)


def _glm4_moe(**facts):
    return _model("glm4_moe", "Glm4MoeForCausalLM", GLM4, facts)


def _deepseek_v3(model_type="deepseek_v3", **facts):
    return _model(model_type, "DeepseekV3ForCausalLM", LATENT, facts)


MODELS = {
    "llama": _llama(),
    "llama-tied": _llama(tie_word_embeddings=True),
    "llama-bias": _llama(mlp_bias=True, attention_bias=True),
    "qwen2": _model("qwen2", "Qwen2ForCausalLM",
                    {"attention_bias": ..., "head_dim": ..., "hidden_size": 32,
                     "num_hidden_layers": 1}),
    # In so large a vocabulary, of four ranks one has but padding.
    "qwen3": _qwen3(vocab_size=70),
    "qwen3-4-layers": _qwen3(num_hidden_layers=4, intermediate_size=16),
    "qwen3-4-layers-tied": _qwen3(num_hidden_layers=4, intermediate_size=16,
                                  tie_word_embeddings=True),
    "qwen3_moe": _qwen3_moe(),
    "qwen3_moe-10-experts": _qwen3_moe(num_experts=10, num_hidden_layers=1),
    "qwen3_moe-mixed": _qwen3_moe(mlp_only_layers=[0]),
    "glm4_moe": _glm4_moe(),
    "glm4_moe-no-qk-norm": _glm4_moe(use_qk_norm=False),
    "deepseek_v3": _deepseek_v3(),
    "deepseek_v3-no-q_lora": _deepseek_v3(q_lora_rank=None),
    # Kimi K2 calls itself "kimi_k2", and is DeepSeek-V3 in all but its sizes.
    "kimi_k2": _deepseek_v3("kimi_k2", n_group=1, num_attention_heads=2, num_key_value_heads=2),
    "qwen3-blocks": _qwen3(**IN_BLOCKS),
    "qwen3_moe-blocks": _qwen3_moe(**EXPERTS_IN_BLOCKS, num_experts=4),
    "deepseek_v3-blocks": _deepseek_v3(**LATENT_IN_BLOCKS),
    "qwen3_next": _model("qwen3_next", "Qwen3NextForCausalLM", DELTA_NET),
    "bailing_moe": _model("bailing_moe", "BailingMoeV2ForCausalLM", LING),
    "gpt_oss": _model("gpt_oss", "GptOssForCausalLM", GPT_OSS),
}
