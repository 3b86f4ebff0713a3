"""The small model that is part of tinyxp, from its book to its folder.

python recipes/holmes.py [CORPUS] -o DIR

CORPUS is a known text (`tinyxp data get sherlock` fetches it) or a text file. The last tenth of it is held
out, from the vocabulary too. Some minutes, on one thread, so that sums are added up in the same order
on every machine. Needs tinyxp[torch,plot].
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import tinyxp
from tinyxp.files import replacing
from tinyxp.text.base import Tokenizer
from tinyxp.text.corpus import read_corpus
from tinyxp.text.windows import Windows, cut_windows
from tinyxp.train import Recipe, Report, evaluate, fit
from tinyxp.train.checkpoint import Entry, as_entry
from tinyxp.train.curves import draw
from tinyxp.train.vocabulary import train_vocabulary

SHAPE: dict[str, Any] = {
    "n_layers": 4,
    "d_model": 136,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_ff": 272,
    "max_seq_len": 256,
    "tie_embeddings": True,
}
VOCABULARY = 7168
RECIPE = Recipe(
    steps=1100, batch=4, peak=4e-3, warmup=60, floor=0.05, dropout=0.15, evaluate_every=100, seed=1
)
TEMPERATURE = 0.8  # of the samples, and the default of tinyxp generate


class Data(NamedTuple):
    """What is trained on, its windows overlapping by half, and what is held out, in windows that do not."""

    train: Windows
    held_out: Windows
    bytes: int  # of the held-out targets


def split(text: str) -> tuple[str, str]:
    """The text up to the end of the last paragraph of its first nine tenths, and the rest."""
    cut = text.rfind("\n\n", 0, len(text) * 9 // 10) + 2
    return text[:cut], text[cut:]


def windows(text: str, tokenizer: Tokenizer, length: int) -> Data:
    trained, held_out = map(tokenizer.encode, split(text))
    rows = cut_windows(held_out, length)
    size = sum(len(tokenizer.token_bytes(index)) for index in rows.targets.ravel().tolist())
    return Data(cut_windows(trained, length, length // 2), rows, size)


def bits_per_byte(nats_per_token: float, data: Data) -> float:
    return nats_per_token * data.held_out.targets.size / math.log(2.0) / data.bytes


def train(params: tinyxp.Params, data: Data, recipe: Recipe) -> tuple[Report, list[Entry]]:
    """The report of the lowest held-out loss, and the history, every tenth step of it."""
    best, history, begun = None, [], monotonic()
    for report in fit(params, data.train, data.held_out, recipe):
        if report.step % 10 == 0 or report.validation is not None:
            history.append(as_entry(report))
        if report.validation is None:
            continue
        if best is None or report.validation < best.validation:
            best = report
        loss = "      -" if report.loss is None else f"{report.loss:7.4f}"
        print(
            f"step {report.step:5}  training {loss}  held out {report.validation:7.4f}  "
            f"{bits_per_byte(report.validation, data):.4f} bits per byte  {monotonic() - begun:4.0f} s",
            flush=True,
        )
    return best, history


def samples(params: tinyxp.Params, tokenizer: Tokenizer) -> list[str]:
    prompt = "Holmes looked at"
    drawn = [
        tinyxp.generate(params, [tokenizer.encode(prompt)], 60, temperature=TEMPERATURE, seed=seed)[
            0
        ].tolist()
        for seed in (1, 2, 3)
    ]
    return [prompt + tokenizer.decode(ids) for ids in drawn]


CARD = """\
---
license: apache-2.0
language: en
library_name: tinyxp
---

# holmes

A language model of {parameters:,} parameters that writes in the style of the Sherlock Holmes stories. It
is small enough to be part of tinyxp: a real model to run, inspect and compare on any backend without a
download.

| | |
|---|---|
| family | Llama: RMSNorm, rotary positions, SwiGLU, tied head |
| heads | {heads}, on {kv_heads} key/value heads |
| size | {layers} layers of width {width}, MLPs of {d_ff}, context {context} tokens |
| vocabulary | byte-pair encoding of {vocabulary:,} tokens, GPT-2's pattern, trained on the training part |
| weights | float16, trained in float32 |

```sh
tinyxp generate "Holmes looked at" -m holmes --temperature 0.8 --seed 1
```

## Data

*The Adventures of Sherlock Holmes* by Arthur Conan Doyle (1892), Project Gutenberg's eBook 1661, cleaned:
{characters:,} characters. The training part is the first nine tenths, up to the end of a paragraph. The
rest is held out; the vocabulary has not seen it either.

## Results

| | |
|---|---|
| training loss, without dropout | {training:.4f} nats per token |
| held-out loss | {held_out:.4f} nats per token |
| held-out text | {bits:.4f} bits per byte |
| steps | {step} of {steps}, {batch} windows each: {epochs:.1f} times the training part |

Held-out windows have {context} tokens and do not overlap. The results are those of the weights in this
folder. history.json has the losses of the run, with dropout for training batches; curves.png is a picture
of them.

The held-out results are a little too good. The state with the lowest held-out loss was kept, and the
sizes were chosen from seven runs by the same text. For comparison, a character 5-gram model with
Kneser-Ney smoothing, trained on the same part, has 1.9241 bits per byte, and a 6-gram model 1.841. At
temperature 0.8, 98.3 to 98.7 % of the words in its samples are words of the book (three sets of twenty
samples).

## Samples

Temperature 0.8, seeds 1, 2 and 3:

{samples}

## Limits

It knows one book. It writes English words, mostly in grammatical phrases and in the manner of that book's
dialogue. It keeps to no plot, mixes up speakers, forgets the previous sentence and knows no facts. People
are spoken of as in 1892. It repeats itself at low temperatures and loses coherence at high ones. Other
languages, code and modern words are noise to it. Sometimes it joins pieces into words that do not exist.
It may reproduce sentences of the book. It is for tests, examples and teaching. Do not rely on it for
anything else.

## Licence

The book is in the public domain in the United States; in other countries, check the law. The weights have
the same licence as tinyxp, Apache-2.0.

## Training it again

In tinyxp's repository, with `pip install '.[torch,plot]'`:

```sh
tinyxp data get sherlock
python recipes/holmes.py sherlock -o holmes
```

This took {minutes:.0f} minutes on one thread. The seed is fixed. The same versions on the same machine
give the same losses, and other machines nearly the same.
"""


def card(params: tinyxp.Params, tokenizer: Tokenizer, text: str, step: int, minutes: float) -> str:
    """The model card, with figures of these parameters, which ``step`` updates and ``minutes`` made."""
    config = params.config
    data = windows(text, tokenizer, config.max_seq_len)
    training, held_out = evaluate(params, data.train), evaluate(params, data.held_out)
    quoted = ("> " + sample.replace("\n", "\n> ") for sample in samples(params, tokenizer))
    return CARD.format(
        parameters=tinyxp.count_parameters(config)["total"],
        heads=config.n_heads,
        kv_heads=config.n_kv_heads,
        layers=config.n_layers,
        width=config.d_model,
        d_ff=config.d_ff,
        context=config.max_seq_len,
        vocabulary=config.vocab_size,
        characters=len(text),
        training=training,
        held_out=held_out,
        bits=bits_per_byte(held_out, data),
        step=step,
        steps=RECIPE.steps,
        batch=RECIPE.batch,
        epochs=step * RECIPE.batch * config.max_seq_len / len(tokenizer.encode(split(text)[0])),
        samples="\n\n".join(quoted),
        minutes=minutes,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the model that comes with tinyxp.")
    parser.add_argument("corpus", nargs="?", default="sherlock", help="a known text, or a text file")
    parser.add_argument("-o", "--output", required=True, type=Path, help="the model's folder")
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    begun, text = monotonic(), read_corpus(given.corpus)
    vocabulary = train_vocabulary(split(text)[0], VOCABULARY)
    tokenizer = vocabulary.tokenizer
    config = tinyxp.Config(vocab_size=tokenizer.vocab_size, **SHAPE)
    data = windows(text, tokenizer, config.max_seq_len)
    parameters = tinyxp.count_parameters(config)["total"]
    print(f"{parameters:,} parameters, {len(data.train.ids)} and {len(data.held_out.ids)} windows")

    best, history = train(tinyxp.init(config, seed=RECIPE.seed, xp=torch), data, RECIPE)
    minutes = (monotonic() - begun) / 60
    vocabulary.write(given.output)
    tinyxp.save(best.params.to(dtype="float16"), given.output)
    draw(history, given.output / "curves.png")
    kept = tinyxp.load(given.output, xp=torch, dtype="float32")
    found = card(kept, tokenizer, text, best.step, minutes)
    contents = {
        "history.json": json.dumps(history, indent=1),
        "README.md": found,
        "generation_config.json": json.dumps({"do_sample": True, "temperature": TEMPERATURE}) + "\n",
    }
    for name, content in contents.items():
        with replacing(given.output / name) as file:
            file.write(content.encode())
    print(found)


if __name__ == "__main__":
    main()
