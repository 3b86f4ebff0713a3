"""Byte-level tokens and languages: characters split between tokens, and one sentence in eight languages.

The counts need tiktoken (pip install 'tinyxp[hf]') and its rank files, from TIKTOKEN_CACHE_DIR or downloaded.
"""

import show

import tinyxp

ENCODINGS = ("gpt2", "cl100k_base", "o200k_base")
WORD = "도서관"  # library
SENTENCES = {
    "English": "The library opens at nine o'clock every morning.",
    "German": "Die Bibliothek öffnet jeden Morgen um neun Uhr.",
    "Turkish": "Kütüphane her sabah saat dokuzda açılır.",  # noqa: RUF001
    "Uzbek": "Kutubxona har kuni ertalab soat to'qqizda ochiladi.",
    "Russian": "Библиотека открывается каждое утро в девять часов.",
    "Hindi": "पुस्तकालय हर सुबह नौ बजे खुलता है।",
    "Korean": "도서관은 매일 아침 아홉 시에 문을 엽니다.",
    "Chinese": "图书馆每天早上九点开门。",
}


def load_tokenizers():
    """Return the three encodings, or stop with one line that says what is missing."""
    try:
        return {name: tinyxp.load_tokenizer(name) for name in ENCODINGS}
    except (ImportError, tinyxp.CheckpointError) as error:
        reason = str(error).partition(": ")[0]  # the rest is about the network
        show.stop(
            f"{reason}; pip install 'tinyxp[hf]', and let TIKTOKEN_CACHE_DIR name a folder of its files"
        )


def token_by_token(tokenizer, text):
    """Return each token's id, its bytes, these bytes decoded alone, and their text in a stream."""
    stream = tokenizer.stream()
    for index in tokenizer.encode(text):
        yield index, tokenizer.token_bytes(index).hex(" "), tokenizer.decode([index]), stream.push(index)
    assert stream.flush() == ""  # the text ends with a whole character


def count_tokens(tokenizers):
    """Return the number of tokens of each language's sentence in each encoding."""
    return {
        language: [len(tokenizer.encode(text)) for tokenizer in tokenizers.values()]
        for language, text in SENTENCES.items()
    }


def main():
    given = show.arguments(__doc__, quick=False)
    tokenizers = load_tokenizers()
    gpt2 = tokenizers["gpt2"]
    ids = gpt2.encode(WORD)
    print(f"{WORD} in gpt2: {len(WORD)} characters, {len(WORD.encode())} bytes, {len(ids)} tokens")
    show.table(
        ["id", "bytes", "alone", "stream"],
        [[*row, repr(alone), repr(whole)] for *row, alone, whole in token_by_token(gpt2, WORD)],
    )
    print(f"token by token, joined: {''.join(gpt2.decode([index]) for index in ids)}")
    print(f"whole, or by a stream:  {gpt2.decode(ids)}")

    print("\nTokens of one sentence, and how many times the English count")
    counts = count_tokens(tokenizers)
    width = max(map(len, SENTENCES.values()))
    show.table(
        ["language", "bytes", *ENCODINGS, *(f"x {name}" for name in ENCODINGS), "sentence".ljust(width)],
        [
            [language, len(SENTENCES[language].encode()), *row]
            + [f"{count / english:.1f}" for count, english in zip(row, counts["English"], strict=True)]
            + [SENTENCES[language].ljust(width)]
            for language, row in counts.items()
        ],
    )
    draw(given.plot, counts)


def draw(path, counts):
    """Three bars for each language."""
    picture, (axes,) = show.figure(size=(9, 4))
    for i, name in enumerate(ENCODINGS):
        places = [place + 0.27 * (i - 1) for place in range(len(counts))]
        bars = axes.bar(places, [row[i] for row in counts.values()], 0.27, label=name)
        axes.bar_label(bars, fontsize="small")
    axes.set_xticks(range(len(counts)), list(counts))
    axes.set(title="The same sentence in eight languages", ylabel="tokens")
    axes.legend(frameon=False)
    show.save(picture, path)


if __name__ == "__main__":
    main()
