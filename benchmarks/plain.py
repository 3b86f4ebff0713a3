"""A typical implementation: GPT-2 as a torch module with fused attention, and a step of AdamW."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from tinyxp import Config


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        d = config.d_model
        self.heads = config.n_heads
        self.attn_norm, self.mlp_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, config.d_ff), nn.Linear(config.d_ff, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        split = self.qkv(self.attn_norm(x)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Decoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = nn.Embedding(config.max_seq_len, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = nn.LayerNorm(config.d_model)
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.embed.weight)


def plain_step(config: Config, ids: torch.Tensor, targets: torch.Tensor) -> Callable[[], float]:
    """Return a step of training by torch itself: forward, backward, clipping and the update."""
    model = Decoder(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step
