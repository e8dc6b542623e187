"""Asks Megatron-Core's attention which rows of its fused QKV it takes for which heads."""

import torch


class _Rows(torch.nn.Module):
    """Stands where the fused projection was, and answers with what identifies each of its rows."""

    def __init__(self, projection):
        super().__init__()
        self.rows = projection.weight.detach()[:, 0].clone()

    def forward(self, hidden):
        return self.rows.reshape(1, 1, -1), None


def check_split(attention, layer, tensors, tp, tp_rank):
    """The attention's own splitting must yield this rank's heads of q, k and v of that layer, each
    row in its order. `tensors` are the numbered canonical ones."""
    projection, norms = attention.linear_qkv, (attention.q_layernorm, attention.k_layernorm)
    attention.linear_qkv = _Rows(projection)
    attention.q_layernorm = attention.k_layernorm = None
    gated = bool(attention.config.attention_output_gate)
    split = attention.get_query_key_value_tensors(
        torch.zeros(1, 1, 1), output_gate=gated)
    attention.linear_qkv = projection
    attention.q_layernorm, attention.k_layernorm = norms

    for part, rows in zip(["q", "k", "v", "gate"], split):
        # Ranks beyond the number of groups share one.
        cuts = tp if part in ("q", "gate") else min(tp, attention.config.num_query_groups)
        canonical = canonical_rows(tensors, layer, part, gated, attention.config.kv_channels)
        own = canonical.reshape(cuts, -1)[tp_rank * cuts // tp]
        assert rows.to(torch.int32).ravel().tolist() == own.tolist(), f"{part} of layer {layer}"


def canonical_rows(tensors, layer, part, gated, head):
    """With an output gate, each head of the canonical q_proj is its query rows, then its gate's."""
    name = "q" if part == "gate" else part
    rows = tensors[f"model.layers.{layer}.self_attn.{name}_proj.weight"][:, 0]
    if gated and name == "q":
        rows = rows.reshape(-1, 2, head)[:, 1 if part == "gate" else 0].ravel()
    return rows
