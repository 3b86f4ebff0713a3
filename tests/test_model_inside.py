"""The model that comes with the package: what its card says of it, in both libraries, and its recipe."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from collections import Counter
from pathlib import Path
from string import Formatter
from types import ModuleType

import numpy as np
import pytest

import tinyxp
from tinyxp.formats.bundled import find_bundled
from tinyxp.text.corpus import clean_gutenberg, decode_text
from tinyxp.train import evaluate

FOLDER = Path(tinyxp.__file__).parent / "models" / "holmes"
FILES = {
    "README.md",
    "config.json",
    "curves.png",
    "generation_config.json",
    "history.json",
    "merges.txt",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
}
APOSTROPHE = "\u2019"
TEXT = "“You have seen nothing, Watson,” said Sherlock Holmes.\n\nIt was a café in 1888; naïve 🙂?"


@pytest.fixture(scope="module")
def recipe() -> ModuleType:
    """recipes/holmes.py, not run; a copy of its own for this file."""
    path = Path(__file__).parent.parent / "recipes" / "holmes.py"
    spec = importlib.util.spec_from_file_location("holmes_recipe", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def book(test_data: Path) -> str:
    return clean_gutenberg(decode_text((test_data / "books" / "pg1661_raw.txt").read_bytes()))


@pytest.fixture(scope="module")
def params() -> tinyxp.Params:
    return tinyxp.load(FOLDER, dtype="float32")


@pytest.fixture(scope="module")
def tokenizer() -> tinyxp.text.base.Tokenizer:
    return tinyxp.load_tokenizer(FOLDER)


def test_it_has_its_name_and_is_small() -> None:
    assert find_bundled("holmes") == FOLDER
    files = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert files.keys() == FILES
    assert sum(files.values()) <= 3_900_000
    assert files["model.safetensors"] <= 2 * 1_900_000


def test_the_core_alone_reads_it_and_writes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as blocked:
        blocked.setitem(sys.modules, "tokenizers", None)
        text = tinyxp.load_tokenizer("holmes")
    params = tinyxp.load("holmes")
    assert isinstance(params["embed.weight"], np.ndarray)
    assert text.vocab_size == params.config.vocab_size
    assert text.decode(text.encode(TEXT)) == TEXT
    assert b" Holmes" in {text.token_bytes(index) for index in range(text.vocab_size)}
    ids = tinyxp.generate(params, [text.encode("said Sherlock")], 1)
    assert text.decode(ids[0]) == " Holmes"


def test_transformers_gives_the_same_ids_and_logits(params: tinyxp.Params) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(
        FOLDER, dtype=torch.float32, output_loading_info=True
    )
    assert not any(report.values())
    text = transformers.AutoTokenizer.from_pretrained(FOLDER)
    ids = tinyxp.load_tokenizer(FOLDER).encode(TEXT)
    assert text(TEXT)["input_ids"] == ids
    assert text.decode(ids) == TEXT
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits.numpy()
    referee = tinyxp.forward(params.to(dtype="float64"), [ids])
    cost = np.abs(expected - referee).max()
    assert cost < 1e-3
    assert np.abs(tinyxp.forward(params, [ids]) - referee).max() < max(4 * cost, 1e-5)


def test_it_predicts_held_out_text_as_its_card_says_and_better_than_five_grams(
    params: tinyxp.Params, tokenizer: tinyxp.text.base.Tokenizer, book: str, recipe: ModuleType
) -> None:
    data = recipe.windows(book, tokenizer, params.config.max_seq_len)
    found = recipe.bits_per_byte(evaluate(params, data.held_out), data)
    said = re.search(r"([\d.]+) bits per byte", (FOLDER / "README.md").read_text())
    assert said is not None
    assert found == pytest.approx(float(said[1]), abs=0.005)
    assert found < five_gram_bits_per_byte(*recipe.split(book))


def test_the_card_is_the_recipes(recipe: ModuleType) -> None:
    card, at = (FOLDER / "README.md").read_text(), 0
    for literal, *_ in Formatter().parse(recipe.CARD):
        assert literal in card[at:], literal
        at = card.index(literal, at) + len(literal)
    assert at == len(card)


def test_it_writes_words_of_its_book(
    params: tinyxp.Params, tokenizer: tinyxp.text.base.Tokenizer, book: str, recipe: ModuleType
) -> None:
    paragraphs = [part for part in recipe.split(book)[1].split("\n\n") if part.count(" ") > 9]
    written = []
    for seed, paragraph in enumerate(paragraphs[:20]):
        prompt = " ".join(paragraph.split()[:4])
        ids = tinyxp.generate(
            params, [tokenizer.encode(prompt)], 200, temperature=0.8, seed=seed, overflow="slide"
        )
        whole = prompt + tokenizer.decode(ids[0])
        # The prompt's last word may go on in the sample; the sample's last may not have ended.
        written += words(re.sub(rf"[^\W\d_{APOSTROPHE}']+$", "", whole))[len(words(prompt)) - 1 :]
    known = set(words(book))
    strange = [word for word in written if word not in known]
    assert len(written) > 2000
    assert len(strange) <= 0.02 * len(written), (len(strange), len(written), strange)


def words(text: str) -> list[str]:
    """Runs of letters, lower-cased, with apostrophes between them."""
    return re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", text.lower().replace(APOSTROPHE, "'"))


def five_gram_bits_per_byte(train: str, test: str, discount: float = 0.75) -> float:
    """Interpolated Kneser-Ney over characters; the last to fall back on is uniform. (Chen & Goodman, 1999.)

    P(c | h) = (max(n(hc) - D, 0) + D kinds(h) P(c | h')) / n(h), h' being h without its first character, and
    n below the highest order the number of characters that a string follows.
    """
    seen = [Counter(train[i - k : i + 1] for i in range(k, len(train))) for k in range(5)]
    n = [Counter(string[1:] for string in longer) for longer in seen[1:]] + [seen[4]]
    total: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for counts in n:
        for string, count in counts.items():
            total[string[:-1]] += count
            kinds[string[:-1]] += 1
    bits, uniform = 0.0, 1 / len(set(train + test))
    for i in range(len(test)):
        p = uniform
        for k in range(min(5, i + 1)):
            h = test[i - k : i]
            if h not in total:
                break
            p = (max(n[k][test[i - k : i + 1]] - discount, 0) + discount * kinds[h] * p) / total[h]
        bits -= math.log2(p)
    return bits / len(test.encode())


def test_five_grams_know_what_they_have_seen() -> None:
    assert five_gram_bits_per_byte("abcd" * 100, "abcd" * 100) < 0.05
    assert five_gram_bits_per_byte("abcd" * 100, "dcba" * 100) > 2


def test_the_recipe_makes_such_a_folder_and_the_same_losses_again(
    recipe: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    threads = torch.get_num_threads()
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n\n".join(f"Line {i}: {i * i} is the square of {i}." for i in range(400)))
    sizes = {"n_layers": 1, "d_model": 16, "d_ff": 16, "max_seq_len": 32}
    monkeypatch.setattr(recipe, "SHAPE", recipe.SHAPE | sizes)
    monkeypatch.setattr(recipe, "VOCABULARY", 300)
    monkeypatch.setattr(recipe, "RECIPE", recipe.Recipe(steps=20, batch=4, dropout=0.1, evaluate_every=10))
    try:
        for name in ("one", "two"):
            monkeypatch.setattr(sys, "argv", ["holmes.py", str(corpus), "-o", str(tmp_path / name)])
            recipe.main()
    finally:
        torch.set_num_threads(threads)
    assert {path.name for path in (tmp_path / "one").iterdir()} == FILES
    histories = [json.loads((tmp_path / name / "history.json").read_text()) for name in ("one", "two")]
    assert histories[0] == histories[1]
    assert [line["step"] for line in histories[0]] == [0, 10, 20]
    assert histories[0][2]["validation"] < histories[0][0]["validation"]
    assert tinyxp.load(tmp_path / "one")["embed.weight"].dtype == np.float16
