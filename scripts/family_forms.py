"""What the files of a family have whatever their sizes: arguments of synthetic_models.decoder() by architecture, for the
families of which both family_shapes.py and compare-peer-all write files."""

QKV = ("attn_q", "attn_k", "attn_v")
AROUND = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
AFTER_ATTENTION = ("attn_norm", "post_attention_norm")  # the second one in front of the feed-forward network

LFM2 = {"qk_norm": "heads", "hybrid": {"conv": 3}, "tied": True, "final_norm": "token_embd_norm"}
DELTA = {"norms": AFTER_ATTENTION, "qk_norm": "heads"}
NEMOTRON_H = {"norms": ("attn_norm",), "ungated": True}

FORMS = {
    "gemma3": {"norms": AROUND, "qk_norm": "heads", "tied": True},
    "gpt-oss": {"norms": AFTER_ATTENTION, "sinks": True,
                "biases": QKV + ("attn_output", "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")},
    "lfm2": LFM2,
    "lfm2moe": LFM2,
    "nemotron_h": NEMOTRON_H,
    "nemotron_h_moe": NEMOTRON_H,
    "phi3": {"fused": ("qkv", "ffn")},
    "qwen35": DELTA,
    "qwen35moe": DELTA,
    "qwen3next": DELTA,
}


def with_form(architecture, sizes):
    return FORMS.get(architecture, {}) | sizes
