"""Parameters counted three ways, their distribution, and what grouped heads save in the cache.

By the closed form, by the shapes of the arrays, and by transformers. With --quick, or without transformers,
the third count is of the saved file, for the small models. A tied head is the embedding itself, so it
counts once; summing a list of names counts it twice.
"""

import importlib.util
import math
import tempfile
from dataclasses import replace

import show

import tinyxp
from tinyxp import formats
from tinyxp.shapes import parameter_shapes

MODELS = ("tiny", "book", "gpt2", "gpt2-untied", "smollm2-135m", "qwen2-0.5b")
GROUPS = ("embed", "pos_embed", "attention", "mlp", "norm", "head")
SAVED = 10_000_000
"""Models with this many parameters or more are not written to a file here."""


def in_shapes(config):
    """Return the sum of the arrays' sizes."""
    return sum(math.prod(shape) for shape in parameter_shapes(config).values())


def in_file(config):
    """Count the numbers in the file that tinyxp.save writes; None for SAVED parameters or more."""
    if in_shapes(config) >= SAVED:
        return None
    with tempfile.TemporaryDirectory() as folder:
        tinyxp.save(tinyxp.init(config), folder)
        return sum(math.prod(tensor.shape) for tensor in formats.describe(folder))


def in_transformers(config):
    """Return transformers' own count, and the sum over its state dict, which also lists a tied head."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):  # shapes without memory
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config.to_hf()))
    return model.num_parameters(), sum(x.numel() for x in model.state_dict().values())


def count_three_ways(quick):
    """Return each preset's counts, as rows of a table."""
    for name in MODELS:
        config = tinyxp.Config.preset(name)
        held = (in_file(config), None) if quick else in_transformers(config)
        counts = (tinyxp.count_parameters(config)["total"], in_shapes(config), *held)
        yield [name, *("" if count is None else f"{count:,}" for count in counts)]


def shares(config):
    """Return each group's share of the whole, in percent."""
    counts = tinyxp.count_parameters(config)
    return {group: 100.0 * counts[group] / counts["total"] for group in GROUPS}


def cache_bytes(config, length):
    """Return the bytes of keys and values of one row in float32: 2 L g hd length numbers of four bytes."""
    return 4 * 2 * config.n_layers * config.n_kv_heads * config.head_dim * length


def head_rows(length=1024):
    """Compare a block of GPT-2's width with 12, 4 and 1 key/value heads: shapes, counts, a real cache."""
    base = replace(tinyxp.Config.preset("gpt2"), vocab_size=64, n_layers=1)
    for name, kv_heads in (("MHA", 12), ("GQA", 4), ("MQA", 1)):
        config = replace(base, n_kv_heads=kv_heads)
        params = tinyxp.init(config)
        cache = tinyxp.new_cache(params, 1, length)
        held = sum(x.nbytes for x in (*cache.keys, *cache.values))
        shapes = [params[f"blocks.0.attn.{each}.weight"].shape for each in "qkvo"]
        counts = (tinyxp.count_parameters(config)["attention"], cache_bytes(config, length), held)
        yield [name, config.n_heads, kv_heads, *shapes, *(f"{count:,}" for count in counts)]


def main():
    given = show.arguments(__doc__)
    quick = given.quick or not all(map(importlib.util.find_spec, ("torch", "transformers")))
    print("Parameters three ways")
    others = ["saved file", ""] if quick else ["transformers", "its state dict"]
    show.table(["model", "closed form", "shapes", *others], list(count_three_ways(quick)))
    twice = in_shapes(tinyxp.Config.preset("gpt2-untied"))
    print(f"\nGPT-2 small with its tied matrix counted twice would be {twice:,}: that is gpt2-untied.")

    print("\nShares in percent")
    table = {name: shares(tinyxp.Config.preset(name)) for name in MODELS}
    show.table(
        ["model", *GROUPS], [[name, *(f"{x:.1f}" for x in each.values())] for name, each in table.items()]
    )

    print("\nOne block of width 768: the cache of one row of 1,024 tokens in float32, computed and held")
    show.table(
        ["", "heads", "kv heads", "q", "k", "v", "o", "parameters", "bytes", "bytes held"], list(head_rows())
    )
    draw(given.plot, table)


def draw(path, table):
    """Draw bars of 100 %, with a color for each group."""
    picture, (axes,) = show.figure(size=(9, 4))
    left = [0.0] * len(table)
    for group in GROUPS:
        widths = [each[group] for each in table.values()]
        bars = axes.barh(list(table), widths, left=left, label=group)
        labels = [f"{width:.1f}" if width > 4 else "" for width in widths]
        axes.bar_label(bars, labels, label_type="center", color="white", fontsize="small")
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set(title="Where the parameters are", xlabel="percent of the model", xlim=(0, 100))
    axes.legend(ncols=len(GROUPS), loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
    show.save(picture, path)


if __name__ == "__main__":
    main()
