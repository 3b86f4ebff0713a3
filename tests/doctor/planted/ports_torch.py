"""GPT-2 and Llama as PyTorch modules, as people port them, with one thing wrong where ``fault`` names it.

Weights have transformers' names and layout, ``c`` is its config.json. ids and mask are (b, t), the mask True
on real tokens. ``keep(name, x) -> x`` is told every trace point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .ports_numpy import interleaved, rope_frequencies

Keep = Callable[[str, Tensor], Tensor]
State = Mapping[str, np.ndarray]
Given = Mapping[str, Any]


class Port(nn.Module):
    def logits(self, ids: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """(b, t, n)"""
        return to_numpy(self.run(ids, mask, lambda name, x: x))

    def trace(self, ids: np.ndarray, mask: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Trace point -> its value."""
        points: dict[str, np.ndarray] = {}

        def keep(name: str, x: Tensor) -> Tensor:
            points[name] = to_numpy(x)
            return x

        self.run(ids, mask, keep)
        return points

    @torch.no_grad()
    def run(self, ids: np.ndarray, mask: np.ndarray | None, keep: Keep) -> Tensor:
        return self(torch.as_tensor(ids), None if mask is None else torch.as_tensor(mask), keep)


class GPT2(Port):
    def __init__(self, state: State, c: Given, fault: str | None = None) -> None:
        super().__init__()
        self.fault = fault
        self.wte = nn.Embedding(c["vocab_size"], c["n_embd"])
        self.wpe = nn.Embedding(c["n_positions"], c["n_embd"])
        self.drop = nn.Dropout(0.1)
        self.h = nn.ModuleList(GPT2Block(c, fault) for _ in range(c["n_layer"]))
        self.ln_f = LayerNorm(c, fault)
        self.lm_head = nn.Linear(c["n_embd"], c["vocab_size"], bias=False)
        conv1d = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
        weights = {}
        for name, x in state.items():
            name = name.removeprefix("transformer.")
            is_turned = name.endswith(conv1d)
            if fault == "o transposed in block 1" and name == "h.1.attn.c_proj.weight":
                is_turned = False
            weights[name] = torch.tensor(x.T.copy() if is_turned else x)
        if fault == "vocabulary shifted":
            weights["wte.weight"] = weights["wte.weight"].roll(1, dims=0)
        self.load_state_dict(weights, strict=False)
        if c["tie_word_embeddings"] and fault != "head not tied":
            self.lm_head.weight = self.wte.weight
        self.train(fault == "dropout").to(torch.bfloat16 if fault == "bfloat16" else torch.float32)

    def forward(self, ids: Tensor, mask: Tensor | None, keep: Keep) -> Tensor:
        x = keep("embed", self.drop(self.wte(ids) + self.wpe(positions(ids, mask, self.fault))))
        layers = list(self.h)
        if self.fault == "layer run twice":
            layers.insert(1, layers[1])
        for i, block in enumerate(layers):
            x = block(x, mask, named(keep, f"blocks.{i}"))
        x = keep("final_norm", self.ln_f(x))
        return keep("logits", self.lm_head(x))


class GPT2Block(nn.Module):
    def __init__(self, c: Given, fault: str | None) -> None:
        super().__init__()
        self.fault = fault
        self.ln_1, self.ln_2 = LayerNorm(c, fault), LayerNorm(c, fault)
        self.attn, self.mlp = GPT2Attention(c, fault), GPT2MLP(c, fault)

    def forward(self, x: Tensor, mask: Tensor | None, keep: Keep) -> Tensor:
        if self.fault == "post-norm":
            x = keep("attn_residual", x + self.attn(x, mask, keep))
            x = keep("attn_norm", self.ln_1(x))
            x = keep("residual", x + self.mlp(x, keep))
            return keep("mlp_norm", self.ln_2(x))
        a = keep("attn_norm", self.ln_1(x))
        x = keep("attn_residual", x + self.attn(a, mask, keep))
        m = keep("mlp_norm", self.ln_2(x))
        y = self.mlp(m, keep)
        return keep("residual", y if self.fault == "no mlp residual" else x + y)


class GPT2Attention(nn.Module):
    def __init__(self, c: Given, fault: str | None) -> None:
        super().__init__()
        d = c["n_embd"]
        self.heads, self.fault = c["n_head"], fault
        self.c_attn = nn.Linear(d, 3 * d, bias=fault != "qkv bias dropped")
        self.c_proj = nn.Linear(d, d)

    def forward(self, x: Tensor, mask: Tensor | None, keep: Keep) -> Tensor:
        b, t, d = x.shape
        hd = d // self.heads
        q, k, v = self.c_attn(x).split(d, dim=2)
        if self.fault == "qkv split by head":  # as GPT-NeoX and Megatron lay them out
            parts = self.c_attn(x).view(b, t, self.heads, 3 * hd).chunk(3, dim=-1)
            q, k, v = (part.reshape(b, t, d) for part in parts)
        q, k, v = keep("attn.q", q), keep("attn.k", k), keep("attn.v", v)
        q, k, v = (part.view(b, t, self.heads, hd).transpose(1, 2) for part in (q, k, v))
        scale = 1.0 / hd if self.fault == "scaled by 1/hd" else hd**-0.5
        scores = keep("attn.scores", q @ k.transpose(-2, -1) * scale)
        causal = torch.ones(t, t, dtype=torch.bool).tril(1 if self.fault == "mask one ahead" else 0)
        if self.fault == "mask inverted":  # the last query sees nothing: NaN
            causal = ~causal
        hidden = scores
        if self.fault != "no causal mask":
            hidden = hidden.masked_fill(~causal, -math.inf)
        if mask is not None and self.fault != "padding seen":
            hidden = hidden.masked_fill(~mask[:, None, None], torch.finfo(x.dtype).min)
        weights = keep("attn.weights", hidden.softmax(dim=-1))
        heads = keep("attn.heads", (weights @ v).transpose(1, 2).reshape(b, t, d))
        return keep("attn.out", self.c_proj(heads))


class GPT2MLP(nn.Module):
    def __init__(self, c: Given, fault: str | None) -> None:
        super().__init__()
        f = c.get("n_inner") or 4 * c["n_embd"]
        self.c_fc, self.c_proj = nn.Linear(c["n_embd"], f), nn.Linear(f, c["n_embd"])
        is_erf = c["activation_function"] == "gelu" or fault == "erf gelu"
        self.form = "none" if is_erf else "tanh"

    def forward(self, x: Tensor, keep: Keep) -> Tensor:
        up = keep("mlp.up", self.c_fc(x))
        hidden = keep("mlp.hidden", F.gelu(up, approximate=self.form))
        return keep("mlp.out", self.c_proj(hidden))


class LayerNorm(nn.Module):
    def __init__(self, c: Given, fault: str | None) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(c["n_embd"])), nn.Parameter(torch.zeros(c["n_embd"]))
        self.eps, self.fault = 1e-6 if fault == "eps 1e-6" else c["layer_norm_epsilon"], fault

    def forward(self, x: Tensor) -> Tensor:
        if self.fault == "variance over n-1":
            centred = x - x.mean(dim=-1, keepdim=True)
            return centred / torch.sqrt(x.var(dim=-1, keepdim=True) + self.eps) * self.weight + self.bias
        if self.fault == "norm in bfloat16":
            half = (y.bfloat16() for y in (self.weight, self.bias))
            return F.layer_norm(x.bfloat16(), self.weight.shape, *half, self.eps).float()
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class Llama(Port):
    def __init__(self, state: State, c: Given, fault: str | None = None) -> None:
        super().__init__()
        self.c, self.fault = c, fault
        biases = {name.split(".", 3)[-1] for name in state if name.endswith("_proj.bias")}
        if fault == "qkv bias dropped":
            biases -= {f"self_attn.{x}_proj.bias" for x in "qkv"}
        d, n = c["hidden_size"], c["num_hidden_layers"] - (fault == "last layer dropped")
        self.embed_tokens = nn.Embedding(c["vocab_size"], d)
        self.layers = nn.ModuleList(LlamaBlock(c, biases, fault) for _ in range(n))
        self.norm = RMSNorm(c, fault)
        self.lm_head = nn.Linear(d, c["vocab_size"], bias=False)
        weights = {}
        for name, x in state.items():
            if fault == "k rows interleaved by n_heads" and name.endswith("k_proj.weight"):
                x = interleaved(x, c["num_attention_heads"])
            if fault == "o transposed" and name.endswith("o_proj.weight"):
                x = x.T.copy()
            weights[name.removeprefix("model.")] = torch.tensor(x)
        self.load_state_dict(weights, strict=False)
        if c["tie_word_embeddings"] or fault == "head tied":
            self.lm_head.weight = self.embed_tokens.weight
        self.train(fault == "dropout").to(torch.bfloat16 if fault == "bfloat16" else torch.float32)

    def forward(self, ids: Tensor, mask: Tensor | None, keep: Keep) -> Tensor:
        if self.fault == "extra bos":
            ids = F.pad(ids, (1, 0), value=1)
            mask = None if mask is None else F.pad(mask, (1, 0), value=True)
        x = self.embed_tokens(ids)
        if self.fault == "embedding times sqrt(d)":
            x = x * math.sqrt(x.shape[-1])
        keep("embed", x)
        frequencies = torch.tensor(rope_frequencies(self.c, self.fault))
        at = positions(ids, mask, self.fault)[:, None, :, None]
        if self.fault == "rope table in bfloat16":
            angles = at.bfloat16() * frequencies.bfloat16()
        else:
            angles = at * frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for i, block in enumerate(self.layers):
            x = block(x, mask, cos, sin, named(keep, f"blocks.{i}"))
        x = keep("final_norm", self.norm(x))
        return keep("logits", self.lm_head(x))


class LlamaBlock(nn.Module):
    def __init__(self, c: Given, biases: set[str], fault: str | None) -> None:
        super().__init__()
        self.fault = fault
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(c, fault), RMSNorm(c, fault)
        self.self_attn, self.mlp = LlamaAttention(c, biases, fault), LlamaMLP(c, biases, fault)

    def forward(self, x: Tensor, mask: Tensor | None, cos: Tensor, sin: Tensor, keep: Keep) -> Tensor:
        a = keep("attn_norm", self.input_layernorm(x))
        x = keep("attn_residual", x + self.self_attn(a, mask, cos, sin, keep))
        m = keep("mlp_norm", self.post_attention_layernorm(x))
        return keep("residual", x + self.mlp(m, keep))


class LlamaAttention(nn.Module):
    def __init__(self, c: Given, biases: set[str], fault: str | None) -> None:
        super().__init__()
        d, self.h, self.g = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        self.hd, self.fault = c.get("head_dim") or d // self.h, fault
        outs = {"q": self.h * self.hd, "k": self.g * self.hd, "v": self.g * self.hd}
        for name, width in outs.items():
            self.add_module(f"{name}_proj", nn.Linear(d, width, bias=f"self_attn.{name}_proj.bias" in biases))
        self.o_proj = nn.Linear(self.h * self.hd, d, bias="self_attn.o_proj.bias" in biases)
        self.scale = {"unscaled scores": 1.0, "scaled by 1/sqrt(d)": d**-0.5}.get(fault or "", self.hd**-0.5)

    def forward(self, x: Tensor, mask: Tensor | None, cos: Tensor, sin: Tensor, keep: Keep) -> Tensor:
        b, t, _ = x.shape
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q, k, v = keep("attn.q", q), keep("attn.k", k), keep("attn.v", v)
        q = q.view(b, t, self.h, self.hd).transpose(1, 2)
        k, v = (part.view(b, t, self.g, self.hd).transpose(1, 2) for part in (k, v))
        turn = rotate_neighbours if self.fault == "neighbour pairing" else rotate
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        if self.fault == "v rotated":
            v = rotate(v, cos, sin)
        q, k = keep("attn.q_rotated", q), keep("attn.k_rotated", k)
        if self.fault == "tiled kv heads":
            k, v = (part.repeat(1, self.h // self.g, 1, 1) for part in (k, v))
        else:
            k, v = (part.repeat_interleave(self.h // self.g, dim=1) for part in (k, v))
        scores = keep("attn.scores", q @ k.transpose(-2, -1) * self.scale)
        visible = torch.ones(t, t, dtype=torch.bool).tril()[None, None]
        if mask is not None:
            visible = visible & mask[:, None, None]
        if self.fault == "mask added":
            weights = (scores + visible).softmax(dim=-1)
        elif self.fault == "mask after softmax":
            weights = scores.softmax(dim=-1).masked_fill(~visible, 0.0)
        else:
            hidden = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
            inner = torch.bfloat16 if self.fault == "softmax in bfloat16" else torch.float32
            weights = hidden.softmax(dim=-1, dtype=inner).to(scores.dtype)
        weights = keep("attn.weights", F.dropout(weights, 0.1, self.training))
        heads = keep("attn.heads", (weights @ v).transpose(1, 2).reshape(b, t, self.h * self.hd))
        return keep("attn.out", self.o_proj(heads))


class LlamaMLP(nn.Module):
    def __init__(self, c: Given, biases: set[str], fault: str | None) -> None:
        super().__init__()
        d, f = c["hidden_size"], c["intermediate_size"]
        self.gate_proj = nn.Linear(d, f, bias="mlp.gate_proj.bias" in biases)
        self.up_proj = nn.Linear(d, f, bias="mlp.up_proj.bias" in biases)
        self.down_proj = nn.Linear(f, d, bias="mlp.down_proj.bias" in biases)
        self.activation = F.gelu if fault == "gelu" else F.silu

    def forward(self, x: Tensor, keep: Keep) -> Tensor:
        gate, up = keep("mlp.gate", self.gate_proj(x)), keep("mlp.up", self.up_proj(x))
        hidden = keep("mlp.hidden", self.activation(gate) * up)
        return keep("mlp.out", self.down_proj(hidden))


class RMSNorm(nn.Module):
    def __init__(self, c: Given, fault: str | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c["hidden_size"]))
        self.eps, self.fault = 1e-6 if fault == "eps 1e-6" else c["rms_norm_eps"], fault

    def forward(self, x: Tensor) -> Tensor:
        if self.fault == "layer norm":
            return F.layer_norm(x, self.weight.shape, self.weight, None, self.eps)
        wide = x.bfloat16() if self.fault == "norm in bfloat16" else x.float()
        square = wide.pow(2).mean(dim=-1, keepdim=True)
        root = torch.sqrt(square + self.eps)
        if self.fault == "eps outside the root":
            root = torch.sqrt(square) + self.eps
        return self.weight * (wide / root).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def rotate_neighbours(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs 0 with 1, 2 with 3, ...: right for GGUF's and Meta's order of rows, wrong for transformers'."""
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)


def positions(ids: Tensor, mask: Tensor | None, fault: str | None) -> Tensor:
    """(b or 1, t)"""
    if mask is None or fault == "positions from the first column":
        counted = torch.arange(ids.shape[1])[None]
    else:
        counted = (mask.cumsum(dim=-1) - 1).clamp(min=0)
    return counted + 1 if fault == "positions from 1" else counted


def named(keep: Keep, prefix: str) -> Keep:
    return lambda name, x: keep(f"{prefix}.{name}", x)


def to_numpy(x: Tensor) -> np.ndarray:
    return np.asarray(x.float().numpy())
