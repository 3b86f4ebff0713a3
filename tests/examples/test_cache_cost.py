"""What the cache spares: the counts, and the table; no time is asserted."""

import tinyxp


def test_script(example, is_png):
    cache_cost = example("cache_cost", "--quick")
    assert cache_cost.lines[0] == "The two write the same 24 tokens: True"
    at = next(i for i, line in enumerate(cache_cost.lines) if line.startswith("position"))
    rows = [[float(word) for word in line.split()] for line in cache_cost.lines[at + 1 : at + 7]]
    assert [row[0] for row in rows] == [16, 32, 64, 128, 256, 512]
    assert rows[0][3:5] == [1.0, 1.0]
    assert all(milliseconds > 0 for row in rows for milliseconds in row[1:3])
    assert [row[6] for row in rows] == [14.9, 29.9, 59.8, 120.1, 241.8, 488.8]
    assert is_png(cache_cost.picture)


def test_multiplications_are_those_of_the_matrices(found):
    """Every matrix of (o, i) multiplies o i times a token; q k^T and weights v each h hd p times a query."""
    config, position = found.CONFIG, 10
    params = tinyxp.init(config)
    matrices = sum(x.size for name, x in params.items() if x.ndim == 2 and name.startswith("blocks."))
    attention = config.n_layers * 2 * config.d_model * position
    one = matrices + attention + params["head.weight"].size
    assert found.multiplications(config, position, cache=True) == one
    whole = found.multiplications(config, position, cache=False)
    assert whole == position * (matrices + attention) + params["head.weight"].size
