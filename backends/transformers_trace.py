"""transformers' own models with every trace point of tinyxp: recorded, or replaced during the run.

The entry ``hf`` of the group ``tinyxp.sides`` is this module. Importing it needs torch and transformers. It
adds one attention implementation to transformers, "tinyxp_trace": eager attention with visible values.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from transformers.masking_utils import AttentionMaskInterface, eager_mask
from transformers.models.llama.modeling_llama import repeat_kv
from transformers.utils import logging

from tinyxp import registry
from tinyxp.dtypes import dtype_name
from tinyxp.errors import CheckpointError, UnsupportedModelError
from tinyxp.formats import load
from tinyxp.formats.bundled import find_bundled
from tinyxp.inputs import Bounds, as_host_integers, as_host_mask

from .torch_hooks import on_input, on_output
from .transformers import hide_progress, model

BACKEND = "torch"
IMPLEMENTATION = "tinyxp_trace"


class Layout(NamedTuple):
    """The paths of a family's modules whose inputs and outputs are trace points."""

    embed: str
    layers: str
    final_norm: str
    attention: str  # within a layer, as everything below
    outputs: Mapping[str, tuple[str, ...]]  # the points in a module's output, joined on the last axis
    inputs: Mapping[str, str]
    inside: tuple[str, ...]  # the points that only the attention function computes

    def points(self) -> list[str]:
        """Return the names of a block's points, in any order."""
        return [
            *(name for names in self.outputs.values() for name in names),
            *self.inputs.values(),
            *self.inside,
        ]


GPT2 = Layout(
    embed="transformer.drop",  # the sum of both embeddings
    layers="transformer.h",
    final_norm="transformer.ln_f",
    attention="attn",
    outputs={
        "ln_1": ("attn_norm",),
        "attn.c_attn": ("attn.q", "attn.k", "attn.v"),
        "attn.c_proj": ("attn.out",),
        "ln_2": ("mlp_norm",),
        "mlp.c_fc": ("mlp.up",),
        "mlp.c_proj": ("mlp.out",),
    },
    inputs={"attn.c_proj": "attn.heads", "ln_2": "attn_residual", "mlp.c_proj": "mlp.hidden"},
    inside=("attn.scores", "attn.weights"),
)
LLAMA = Layout(
    embed="model.embed_tokens",
    layers="model.layers",
    final_norm="model.norm",
    attention="self_attn",
    outputs={
        "input_layernorm": ("attn_norm",),
        "self_attn.q_proj": ("attn.q",),
        "self_attn.k_proj": ("attn.k",),
        "self_attn.v_proj": ("attn.v",),
        "self_attn.o_proj": ("attn.out",),
        "post_attention_layernorm": ("mlp_norm",),
        "mlp.gate_proj": ("mlp.gate",),
        "mlp.up_proj": ("mlp.up",),
        "mlp.down_proj": ("mlp.out",),
    },
    inputs={
        "self_attn.o_proj": "attn.heads",
        "post_attention_layernorm": "attn_residual",
        "mlp.down_proj": "mlp.hidden",
    },
    inside=("attn.q_rotated", "attn.k_rotated", "attn.scores", "attn.weights"),
)
LAYOUTS: dict[type, Layout] = {
    transformers.GPT2LMHeadModel: GPT2,
    transformers.LlamaForCausalLM: LLAMA,
    transformers.MistralForCausalLM: LLAMA,
    transformers.Qwen2ForCausalLM: LLAMA,
}


def trace(
    network: Any, ids: Any, *, mask: Any = None, positions: Any = None, patch: Mapping[str, Any] | None = None
) -> dict[str, np.ndarray]:
    """Run a model of transformers and return trace point -> array, named and shaped as by ``tinyxp.trace``.

    ``network`` is a GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM or Qwen2ForCausalLM of any dtype.
    It runs in eval mode, without gradients, with the arithmetic of its eager attention; if it was loaded with
    another attention, softmax is in float32 at least. ids are (b, t). mask (b, t) is True on real tokens.
    positions (b, t) or (1, t) default to counting each row's real tokens from 0. dtypes are the model's own,
    float32 for bfloat16. ``patch`` maps trace points to arrays that replace the computed ones: the run
    continues with them, and they are returned.

    Raise UnsupportedModelError naming an unknown class or module, and ValueError naming ids, positions or a
    mask that do not fit, an unknown point of ``patch``, or an array of another shape. The model is always
    left unchanged.
    """
    layout = next((layout for kind, layout in LAYOUTS.items() if isinstance(network, kind)), None)
    if layout is None:
        known = ", ".join(kind.__name__ for kind in LAYOUTS)
        raise UnsupportedModelError(f"the model is a {type(network).__name__}; it must be one of {known}")
    arguments = _arguments(network, ids, mask, positions)
    arrays = {name: _as_numbers(name, x) for name, x in (patch or {}).items()}
    run = _Pass(layout, arrays, _softmax_dtype(network))
    with ExitStack() as undo, torch.no_grad():
        for module in network.modules():
            undo.callback(setattr, module, "training", module.training)
        network.eval()
        _open_attention(network, undo)
        run.watch(network, undo)
        network(**arguments, use_cache=False)
    for name in (f"blocks.{i}.{point}" for i in range(run.block + 1) for point in layout.points()):
        if name not in run.points:
            raise UnsupportedModelError(f"{type(network).__name__} computes {name} where no hook can see it")
    for name in arrays:
        if name not in run.points:
            raise ValueError(f"patch names {name!r}, which is no trace point of this model")
    return run.points


def open_model(path: str | os.PathLike[str], dtype: str | None = None) -> Any:
    """Open what ``tinyxp.load`` takes as transformers' model, in ``dtype`` (None: the files' own).

    transformers itself reads a Hugging Face folder, from safetensors, and runs none of the folder's code;
    ``tinyxp.load`` reads anything else. Raise CheckpointError naming the folder if weights are missing or
    left over, and what ``tinyxp.load`` raises.
    """
    if dtype is not None:
        registry.backend("torch").dtype(dtype)
    folder = Path(path) if Path(path).exists() else find_bundled(path)
    if folder is None or not folder.is_dir():
        params = load(path)
        return model(params, dtype or dtype_name(params.dtype))
    try:
        network, report = _from_folder(folder, dtype or "auto")
    except Exception as error:  # from any library, or caused by a bad config
        reason = textwrap.shorten(f"{type(error).__name__}: {error}", 250)
        raise CheckpointError(f"{folder}: transformers cannot load it: {reason}") from error
    if problems := {kind: sorted(names) for kind, names in report.items() if names}:
        raise CheckpointError(f"{folder}: transformers reports {problems}")
    return network.eval()


def _from_folder(folder: Path, dtype: str) -> Any:
    """Return the model, and what did not fit, without the warnings that transformers prints about it."""
    log: Any = logging
    level = log.get_verbosity()
    log.set_verbosity_error()
    try:
        with hide_progress():
            return transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                attn_implementation="eager",
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    finally:
        log.set_verbosity(level)


def _arguments(network: Any, ids: Any, mask: Any, positions: Any) -> dict[str, torch.Tensor]:
    """Return the arguments of the model's forward.

    The mask is always passed: without one, transformers reads a jump in the positions as the start of
    another text in the same row, and keeps the two apart.
    """
    config = network.config
    ids = as_host_integers(ids, Bounds("ids", config.vocab_size, "the vocabulary size"))
    mask = np.ones(ids.shape, dtype=bool) if mask is None else as_host_mask(mask, ids.shape)
    if positions is None:
        positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    learned = Bounds("positions", config.max_position_embeddings, "max_position_embeddings")
    any_position = Bounds("positions", 2**31, "the limit")
    positions = as_host_integers(positions, learned if config.model_type == "gpt2" else any_position)
    if positions.shape not in ((1, ids.shape[1]), ids.shape):
        raise ValueError(f"positions has shape {positions.shape}; ids has {ids.shape}")
    arrays = {"input_ids": ids, "attention_mask": mask.astype(np.int64), "position_ids": positions}
    return {name: torch.from_numpy(x).to(network.device) for name, x in arrays.items()}


def _as_numbers(name: str, x: Any) -> torch.Tensor:
    try:
        return torch.from_numpy(np.array(x, dtype=np.float64, order="C"))
    except (TypeError, ValueError) as error:
        raise ValueError(f"patch[{name!r}] is not an array of numbers: {error}") from None


def _softmax_dtype(network: Any) -> torch.dtype:
    """Return the eager attention's softmax dtype: in the Llama family float32, even for float64."""
    is_gpt2 = network.config.model_type == "gpt2"
    if network.config._attn_implementation not in ("eager", None):
        return torch.promote_types(network.dtype, torch.float32)
    if is_gpt2 and network.config.reorder_and_upcast_attn:
        raise UnsupportedModelError("reorder_and_upcast_attn is true: such attention cannot be traced")
    return network.dtype if is_gpt2 else torch.float32


def _open_attention(network: Any, undo: ExitStack) -> None:
    """Switch to the attention implementation with visible values; ``undo`` switches back."""
    configs = {id(x.config): x.config for x in network.modules() if hasattr(x, "config")}
    for config in configs.values():  # one, unless a user replaced modules
        if not hasattr(config, "_attn_implementation"):
            continue
        undo.callback(setattr, config, "_attn_implementation", config._attn_implementation)
        config._attn_implementation = IMPLEMENTATION


class _Pass:
    """One pass through a model, recorded by hooks; its blocks are counted as they are entered."""

    def __init__(self, layout: Layout, patch: Mapping[str, torch.Tensor], softmax_dtype: torch.dtype) -> None:
        self.layout, self.patch, self.softmax_dtype = layout, patch, softmax_dtype
        self.points: dict[str, np.ndarray] = {}
        self.block = -1

    def watch(self, network: Any, undo: ExitStack) -> None:
        """Put hooks on every module of the layout; ``undo`` removes them."""

        def module_at(parent: Any, path: str) -> Any:
            try:
                return parent.get_submodule(path)
            except AttributeError:
                raise UnsupportedModelError(f"{type(network).__name__} has no {path}") from None

        layout = self.layout
        on_output(module_at(network, layout.embed), self.tap_output("embed"), undo)
        for layer in dict.fromkeys(module_at(network, layout.layers)):  # a layer may run twice
            on_input(layer, self.enter, undo)
            for path, point in layout.inputs.items():
                on_input(module_at(layer, path), self.tap_input(point), undo)
            attention = module_at(layer, layout.attention)
            on_input(attention, lambda module, args, kwargs: (args, kwargs | {"run": self}), undo)
            for path, points in layout.outputs.items():
                on_output(module_at(layer, path), self.tap_parts(points), undo)
            on_output(layer, self.leave, undo)
        on_output(module_at(network, layout.final_norm), self.tap_output("final_norm"), undo)
        on_output(network.get_output_embeddings(), self.tap_output("logits"), undo)

    def tap(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """Record x under that name; return x or its replacement."""
        if name in self.patch:
            if self.patch[name].shape != x.shape:
                raise ValueError(
                    f"patch[{name!r}] has shape {tuple(self.patch[name].shape)}; "
                    f"the model has {tuple(x.shape)}"
                )
            x = self.patch[name].to(x)
        host = x.detach().cpu()
        self.points[name] = (host.float() if host.dtype == torch.bfloat16 else host).numpy().copy()
        return x

    def name_in_block(self, point: str) -> str:
        return f"blocks.{self.block}.{point}"

    def enter(self, module: Any, args: Any, kwargs: Any) -> None:
        self.block += 1

    def leave(self, module: Any, args: Any, x: torch.Tensor) -> torch.Tensor:
        """Record a block's output, with a patched attn_residual: the norm's hook misses the skip path."""
        if (name := self.name_in_block("attn_residual")) in self.patch:
            x = self.patch[name].to(x) + torch.from_numpy(self.points[self.name_in_block("mlp.out")]).to(x)
        return self.tap(self.name_in_block("residual"), x)

    def tap_output(self, name: str) -> Any:
        return lambda module, args, x: self.tap(name, x)

    def tap_input(self, point: str) -> Any:
        return lambda module, args, kwargs: (
            (self.tap(self.name_in_block(point), args[0]), *args[1:]),
            kwargs,
        )

    def tap_parts(self, points: tuple[str, ...]) -> Any:
        def hook(module: Any, args: Any, x: torch.Tensor) -> torch.Tensor:
            parts = [
                self.tap(self.name_in_block(point), part)
                for point, part in zip(points, x.chunk(len(points), dim=-1), strict=True)
            ]
            return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

        return hook

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, *, scaling: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """q (b, h, t, hd), k and v (b, g, s, hd), mask added to scores -> heads (b, t, h, hd), weights."""
        if "attn.q_rotated" in self.layout.inside:
            q, k = (
                self.tap(self.name_in_block("attn.q_rotated"), q),
                self.tap(self.name_in_block("attn.k_rotated"), k),
            )
        shared = q.shape[1] // k.shape[1]
        scores = torch.matmul(q, repeat_kv(k, shared).transpose(-1, -2)) * scaling
        scores = self.tap(self.name_in_block("attn.scores"), scores)
        masked = scores if mask is None else scores + mask
        weights = torch.softmax(masked, dim=-1, dtype=self.softmax_dtype).to(q.dtype)
        weights = self.tap(self.name_in_block("attn.weights"), weights)
        return torch.matmul(weights, repeat_kv(v, shared)).transpose(1, 2).contiguous(), weights


def _attention(module: Any, *arrays: Any, run: _Pass, scaling: float, **ignored: Any) -> Any:
    """The function that transformers calls; the hook on the attention module passes ``run``."""
    return run.attend(*arrays, scaling=scaling)


transformers.AttentionInterface.register(IMPLEMENTATION, _attention)
AttentionMaskInterface.register(IMPLEMENTATION, eager_mask)
