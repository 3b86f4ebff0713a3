"""``tinyxp info`` and ``tinyxp convert``: what a model's files contain, and the model in other files."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tinyxp.cli.progress import loading

if TYPE_CHECKING:
    from tinyxp.config import Config
    from tinyxp.formats import TensorInfo


@click.command()
@click.argument("model")
@click.option(
    "--parameters",
    is_flag=True,
    help="List each tensor: its name in the file, ours, and the steps of loading.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def info(model: str, parameters: bool, as_json: bool) -> None:
    """Show MODEL's config, parameters by group, bytes, and what a token costs in cache and arithmetic.

    MODEL is a file, a folder, a hub id, or the name of a preset such as gpt2.
    """
    from tinyxp.config import PRESETS, Config
    from tinyxp.errors import CheckpointError
    from tinyxp.formats import describe, load_config

    is_preset = model in PRESETS and not Path(model).exists()
    config = Config.preset(model) if is_preset else load_config(model)
    tensors: list[TensorInfo] = []
    if is_preset and parameters:
        raise ValueError(f"--parameters lists the tensors of a file, but {model} is a preset")
    try:
        tensors = [] if is_preset else describe(model)
    except CheckpointError as error:
        if parameters:
            raise
        click.echo(f"tinyxp: only the config can be read: {error}", err=True)
    if as_json:
        facts = {"config": asdict(config)} | estimate_costs(config, tensors)
        click.echo(json.dumps(facts | ({"tensors": [asdict(t) for t in tensors]} if parameters else {})))
        return
    for field, value in asdict(config).items():
        click.echo(f"{field:<16} {value}")
    click.echo()
    _show_costs(estimate_costs(config, tensors))
    if parameters:
        click.echo()
        _show_tensors(tensors)


def estimate_costs(config: Config, tensors: list[TensorInfo]) -> dict[str, Any]:
    """Count parameters and bytes, and the floating-point operations of one token.

    A matrix of w numbers takes 2 w operations and a bias of w takes w. Each position that the token sees
    takes 2 h hd in every block for its score and 2 h hd for its value.
    """
    from tinyxp.shapes import count_parameters, parameter_shapes

    counts = count_parameters(config)
    heads = config.n_heads * config.head_dim
    shapes = parameter_shapes(config)
    linear = {name: math.prod(shape) for name, shape in shapes.items() if ".attn." in name or ".mlp." in name}
    linear |= {"head.bias": config.vocab_size} if config.head_bias else {}
    biases = sum(size for name, size in linear.items() if name.endswith(".bias"))
    matrices = sum(linear.values()) - biases + config.vocab_size * config.d_model
    return {
        "parameters": counts,
        "file_bytes": sum(t.nbytes for t in tensors),
        "file_dtypes": dict(Counter(t.dtype for t in tensors)),
        "float32_bytes": 4 * counts["total"],
        "cache_bytes_per_token_float32": 8 * config.n_layers * config.n_kv_heads * config.head_dim,
        "flops_per_token": 2 * matrices + biases,
        "flops_per_token_and_position_seen": 4 * config.n_layers * heads,
    }


def _show_costs(costs: dict[str, Any]) -> None:
    total = costs["parameters"]["total"]
    for group, count in costs["parameters"].items():
        click.echo(f"{group:<16} {count:>15,}  {count / total:>6.1%}")
    click.echo()
    if costs["file_bytes"]:
        dtypes = ", ".join(f"{count} {dtype}" for dtype, count in costs["file_dtypes"].items())
        click.echo(f"in the file      {costs['file_bytes']:>15,} bytes ({dtypes})")
    click.echo(f"in float32       {costs['float32_bytes']:>15,} bytes")
    click.echo(f"cache, float32   {costs['cache_bytes_per_token_float32']:>15,} bytes a token")
    click.echo(
        f"arithmetic       {costs['flops_per_token']:>15,} FLOPs a token, "
        f"and {costs['flops_per_token_and_position_seen']:,} for each position that it sees"
    )


def _show_tensors(tensors: list[TensorInfo]) -> None:
    for tensor in tensors:
        shape = "x".join(map(str, tensor.shape))
        ours, steps = ", ".join(tensor.ours), "; ".join(tensor.steps)
        note = f" ({steps})" if steps else ""
        click.echo(f"{tensor.name:<44} {shape:>14} {tensor.dtype:<6} -> {ours}{note}")


@click.command()
@click.argument("source")
@click.argument("destination")
def convert(source: str, destination: str) -> None:
    """Write the model at SOURCE to DESTINATION, a folder that transformers loads or a .npz file."""
    from tinyxp.formats import convert as convert_checkpoint

    loading(lambda show: convert_checkpoint(source, destination, progress=show))
    click.echo(f"wrote {destination}", err=True)
    if source.lower().endswith(".gguf"):
        click.echo(f"the tokenizer stays in {source}: pass --tokenizer {source}", err=True)
