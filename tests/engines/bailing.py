"""Ling and Ring, whose model code is published beside their weights and is no part of Transformers.

Names and shapes are those that vLLM's loader takes; whether it takes them all is checked when it
has loaded. Unlike Megatron's, the fused projection is all of Q, then all of K, then all of V.
"""


def register():
    """Makes Transformers read such a config.json, as the published code would."""
    import transformers

    class BailingConfig(transformers.PretrainedConfig):
        model_type = "bailing_moe"

        def __init__(self, rope_theta=10000.0, **settings):
            super().__init__(**settings)
            self.rope_parameters = {"rope_type": "default", "rope_theta": rope_theta}

    transformers.AutoConfig.register("bailing_moe", BailingConfig)


def names_and_shapes(config):
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    shapes = {"model.word_embeddings.weight": [vocabulary, hidden],
              "model.norm.weight": [hidden], "lm_head.weight": [vocabulary, hidden]}
    for index in range(config["num_hidden_layers"]):
        for name, shape in layer_shapes(config, index).items():
            shapes[f"model.layers.{index}.{name}.weight"] = shape
    for index in range(config["first_k_dense_replace"], config["num_hidden_layers"]):
        shapes[f"model.layers.{index}.mlp.gate.expert_bias"] = [config["num_experts"]]
    return dict(sorted(shapes.items()))


def layer_shapes(config, index):
    hidden, head = config["hidden_size"], config["head_dim"]
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    shapes = {"input_layernorm": [hidden], "post_attention_layernorm": [hidden],
              "attention.query_key_value": [(heads + 2 * groups) * head, hidden],
              "attention.query_layernorm": [head], "attention.key_layernorm": [head],
              "attention.dense": [hidden, heads * head]}
    if index < config["first_k_dense_replace"]:
        return shapes | gated_shapes("mlp", config["intermediate_size"], hidden)
    width = config["moe_intermediate_size"]
    shapes["mlp.gate"] = [config["num_experts"], hidden]
    shapes |= gated_shapes("mlp.shared_experts", width * config["num_shared_experts"], hidden)
    for expert in range(config["num_experts"]):
        shapes |= gated_shapes(f"mlp.experts.{expert}", width, hidden)
    return shapes


def gated_shapes(prefix, width, hidden):
    return {f"{prefix}.gate_proj": [width, hidden], f"{prefix}.up_proj": [width, hidden],
            f"{prefix}.down_proj": [hidden, width]}
