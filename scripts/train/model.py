"""A decoder of the `llama` family in PyTorch, dense or with experts.

The parameters' names and shapes are those of GGUF, so that a state dict is what the file holds:
  - rotary pairs are neighbours (2i, 2i+1), the order that GGUF stores for this family: export permutes nothing;
  - query head h reads key/value head h / (n_heads / n_kv_heads);
  - expert weights are [experts, rows, columns]; a router picks by the softmax over all experts, the weights of those
    picked sum to 1;
  - the output matrix is the embedding table.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class ModelConfig:
    """Sizes. With `experts` > 0 each has `d_ff` hidden units."""

    vocab: int
    n_embd: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_ff: int
    context: int = 1024
    experts: int = 0
    experts_used: int = 0
    rope_base: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_heads

    def to_dict(self) -> dict[str, int | float]:
        return asdict(self)


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class RmsNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class ExpertWeight(nn.Module):
    """One matrix per expert: [experts, outputs, inputs]."""

    def __init__(self, experts: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x [batch, heads, positions, head_dim]; cos and sin are [positions, head_dim / 2]."""
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).to(x.dtype)


class Block(nn.Module):
    """One layer. The attribute names are GGUF's."""

    def __init__(self, c: ModelConfig, dropout: float) -> None:
        super().__init__()
        self.c, self.dropout = c, dropout
        kv = c.n_kv_heads * c.head_dim
        self.attn_norm = RmsNorm(c.n_embd, c.norm_eps)
        self.attn_q = linear(c.n_embd, c.n_embd)
        self.attn_k = linear(c.n_embd, kv)
        self.attn_v = linear(c.n_embd, kv)
        self.attn_output = linear(c.n_embd, c.n_embd)
        self.ffn_norm = RmsNorm(c.n_embd, c.norm_eps)
        if c.experts:
            self.ffn_gate_inp = linear(c.n_embd, c.experts)
            self.ffn_gate_exps = ExpertWeight(c.experts, c.n_embd, c.d_ff)
            self.ffn_up_exps = ExpertWeight(c.experts, c.n_embd, c.d_ff)
            self.ffn_down_exps = ExpertWeight(c.experts, c.d_ff, c.n_embd)
        else:
            self.ffn_gate = linear(c.n_embd, c.d_ff)
            self.ffn_up = linear(c.n_embd, c.d_ff)
            self.ffn_down = linear(c.d_ff, c.n_embd)

    def attention(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        c = self.c
        batch, length, _ = x.shape

        def heads(y: Tensor, n: int) -> Tensor:
            return y.view(batch, length, n, c.head_dim).transpose(1, 2)

        q = rotate(heads(self.attn_q(x), c.n_heads), cos, sin)
        k = rotate(heads(self.attn_k(x), c.n_kv_heads), cos, sin)
        v = heads(self.attn_v(x), c.n_kv_heads)
        group = c.n_heads // c.n_kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.attn_output(y.transpose(1, 2).reshape(batch, length, c.n_embd))

    def dense(self, x: Tensor) -> Tensor:
        return self.ffn_down(F.silu(self.ffn_gate(x)) * self.ffn_up(x))

    def routes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(weight of each expert for each token: [tokens, experts], 0 where not used; the balance loss).

        The loss is the share of tokens that an expert gets times its mean probability, summed and scaled so that
        perfect balance gives 1.
        """
        c = self.c
        with torch.autocast(x.device.type, enabled=False):
            p = F.softmax(F.linear(x.float(), self.ffn_gate_inp.weight.float()), dim=-1)
        top, index = p.topk(c.experts_used, dim=-1)
        weights = torch.zeros_like(p).scatter(-1, index, top / top.sum(-1, keepdim=True))
        share = (weights > 0).float().mean(0) / c.experts_used
        return weights, c.experts * (share * p.mean(0)).sum()

    def sparse(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """All experts as one wide layer whose hidden units are scaled by the routes: at this size faster than sorting
        tokens by expert, and the same sum."""
        c = self.c
        flat = x.reshape(-1, c.n_embd)
        weights, balance = self.routes(flat)
        gate = F.linear(flat, self.ffn_gate_exps.weight.flatten(0, 1))  # [tokens, experts * d_ff]
        up = F.linear(flat, self.ffn_up_exps.weight.flatten(0, 1))
        hidden = (F.silu(gate) * up).view(-1, c.experts, c.d_ff) * weights.to(gate.dtype).unsqueeze(-1)
        down = self.ffn_down_exps.weight.permute(1, 0, 2).flatten(1)  # [n_embd, experts * d_ff]
        return F.linear(hidden.flatten(1), down).view_as(x), balance

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        x = x + F.dropout(self.attention(self.attn_norm(x), cos, sin), self.dropout, self.training)
        balance = x.new_zeros(())
        h = self.ffn_norm(x)
        if self.c.experts:
            h, balance = self.sparse(h)
        else:
            h = self.dense(h)
        return x + F.dropout(h, self.dropout, self.training), balance


class Model(nn.Module):
    """Token ids [batch, positions] to logits [batch, positions, vocab], and the mean balance loss of the layers."""

    cos: Tensor
    sin: Tensor

    def __init__(self, c: ModelConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.c, self.dropout = c, dropout
        self.token_embd = nn.Embedding(c.vocab, c.n_embd)
        self.blk = nn.ModuleList(Block(c, dropout) for _ in range(c.n_layers))
        self.output_norm = RmsNorm(c.n_embd, c.norm_eps)
        frequency = c.rope_base ** (-torch.arange(0, c.head_dim, 2, dtype=torch.float64) / c.head_dim)
        angle = torch.outer(torch.arange(c.context, dtype=torch.float64), frequency)
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)
        self.reset()

    def reset(self) -> None:
        """Normal weights of the usual size; smaller where a layer writes into the residual stream."""
        into_residual = 0.02 / math.sqrt(2 * self.c.n_layers)
        for name, p in self.named_parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=into_residual if ("attn_output" in name or "ffn_down" in name) else 0.02)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        length = ids.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x = F.dropout(self.token_embd(ids), self.dropout, self.training)
        total = x.new_zeros(())
        for block in self.blk:
            x, balance = block(x, cos, sin)
            total = total + balance
        return F.linear(self.output_norm(x), self.token_embd.weight), total / len(self.blk)

    def n_parameters(self) -> int:
        return sum(p.numel() for p in self.parameters())
