"""The maps and clocks of a forward pass: the numbers of the run, and how a keyboard chooses among them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyxp.html.forward_pass import ForwardPass
from tinyxp.html.measure_attention import attention_weights, position_similarity, rotary_angles
from tinyxp.html.trace_attention import ONES, SIXTIES, attention_section, pack, rotary_section

from .conftest import Show
from .forward_passes import LONG_IDS, describe, make_run
from .test_trace_page import build


def unpack(text: str) -> list[int]:
    values, high = [], 0
    for c in text:
        if c in SIXTIES:
            high = 60 * (SIXTIES.index(c) + 1)
        else:
            values.append(high + ONES.index(c))
            high = 0
    return values


def weights_shown(tab: Any) -> list[list[str]]:
    return tab.evaluate(  # type: ignore[no-any-return]
        "[...document.querySelectorAll('#attention-table tbody tr')].map("
        "row => [...row.querySelectorAll('td')].map(cell => cell.title))"
    )


def test_weights_are_packed_in_thousandths() -> None:
    assert len(set(ONES + SIXTIES)) == 60 + 16
    assert unpack(pack(np.arange(1001) / 1000)) == list(range(1001))
    assert pack(np.array([0.0, 0.0594, 0.06, 1.0])) == f"0{ONES[59]}Y0{SIXTIES[15]}{ONES[40]}"


def test_the_data_is_that_of_the_run(run: ForwardPass) -> None:
    data, config = attention_section(run).data, run.params.config
    assert data["group"] == config.n_heads // config.n_kv_heads
    for layer in range(config.n_layers):
        weights, unmasked, future = attention_weights(run, layer)
        for head in range(config.n_heads):
            lower = weights[head][np.tril_indices(7)]
            np.testing.assert_allclose(unpack(data["masked"][layer][head]), 1000 * lower, atol=0.51)
            shown = unpack(data["unmasked"][layer][head])
            np.testing.assert_allclose(shown, 1000 * unmasked[head].ravel(), atol=0.51)
        np.testing.assert_allclose(data["future"][layer], future, rtol=1e-3)


def test_the_hands_are_the_angles_of_the_run() -> None:
    run = make_run("llama")
    section = rotary_section(run)
    np.testing.assert_allclose(section.data["hands"], rotary_angles(run)[2], atol=1e-3)
    np.testing.assert_allclose(section.data["periods"], 2 * np.pi * np.array([1, 10, 100, 1000]), rtol=1e-5)
    assert "numbers 1 and 5<br>a turn in 62.8 tokens<br>" in section.body
    assert "a turn in 6,283 tokens<br>" in section.body


def test_one_token_has_nothing_to_choose() -> None:
    assert 'id="query" min="0" max="0" value="0" disabled' in attention_section(make_run("llama", (5,))).body


def test_keys_choose_layer_and_head(show: Show, run: ForwardPass) -> None:
    tab = show(build(run))

    def expect(layer: int, head: int) -> None:
        weights = attention_weights(run, layer)[0][head]
        shown = weights_shown(tab)
        for i in range(7):
            np.testing.assert_allclose([float(x) for x in shown[i][: i + 1]], weights[i, : i + 1], atol=6e-4)
            assert set(shown[i][i + 1 :]) <= {"hidden by the mask"}
        shared = head // (run.params.config.n_heads // run.params.config.n_kv_heads)
        start = f"Layer {layer}, head {head}, key/value head {shared}: "
        assert tab.inner_text("#attention-description").startswith(start)

    expect(0, 0)
    tab.focus("#layer")
    tab.keyboard.press("ArrowRight")
    expect(1, 0)
    assert tab.inner_text("#layer-value") == "1"
    tab.keyboard.press("Tab")
    tab.keyboard.press("ArrowRight")
    expect(1, 1)
    tab.keyboard.press("Tab")  # the query
    tab.keyboard.press("Home")
    assert tab.inner_text("#query-value") == "0"
    description = tab.inner_text("#attention-description")
    assert f"{describe(3)} (position 0) attends to {describe(3)} (position 0) 1.000." in description
    assert tab.locator("#attention-table tr.chosen").count() == 1


def test_the_switch_takes_the_mask_off_and_puts_it_on_again(show: Show, run: ForwardPass) -> None:
    tab = show(build(run))
    before = weights_shown(tab)
    assert tab.locator("#attention-table td.masked").count() == 21
    tab.focus("#mask")
    tab.keyboard.press("Space")
    unmasked, future = (x[0] for x in attention_weights(run, 0)[1:])
    np.testing.assert_allclose(np.array(weights_shown(tab), dtype=float), unmasked, atol=6e-4)
    assert tab.locator("#attention-table td.masked").count() == 0
    assert tab.locator("#attention-table td.future").count() == 21
    share = f"Without the mask, {100 * future:.1f} % of this head's attention goes to later tokens."
    assert tab.inner_text("#attention-description").endswith(share)
    tab.keyboard.press("Space")
    assert weights_shown(tab) == before
    assert "Without the mask" not in tab.inner_text("#attention-description")


def test_a_long_sequence_has_weights_without_numbers_in_the_cells(show: Show) -> None:
    run = make_run("llama", LONG_IDS, str)
    tab = show(build(run))
    weights = attention_weights(run, 0)[0][0]
    np.testing.assert_allclose([float(x) for x in weights_shown(tab)[63]], weights[63], atol=6e-4)
    assert tab.locator("#attention-table td").nth(0).text_content() == ""
    assert tab.inner_text("#query-value") == "89"


def test_the_hands_of_the_clocks_follow_the_slider(show: Show) -> None:
    run = make_run("llama")
    tab = show(build(run))
    angles = rotary_angles(run)[2]

    def expect(position: int) -> None:
        hands = tab.evaluate(
            "[...document.querySelectorAll('.hand')].map(x => [x.x2.baseVal.value, x.y2.baseVal.value])"
        )
        ends = [[50 + 38 * sin, 50 - 38 * cos] for cos, sin in angles[:, position]]
        np.testing.assert_allclose(hands, ends, atol=0.01)

    expect(6)
    tab.focus("#position")
    for _ in range(3):
        tab.keyboard.press("ArrowLeft")
    expect(3)
    assert tab.inner_text("#position-value") == f"3, {describe(1)}"
    assert tab.inner_text(".clock .turns >> nth=0") == "0.4775 turns so far"
    tab.keyboard.press("End")
    expect(63)
    assert tab.inner_text("#position-value") == "63"


def test_learned_positions_have_a_table_instead(show: Show) -> None:
    run = make_run("gpt2")
    tab = show(build(run))
    assert tab.locator(".clock").count() == 0
    shown = tab.evaluate("[...document.querySelectorAll('#similarity-table td')].map(x => Number(x.title))")
    np.testing.assert_allclose(shown, position_similarity(run).ravel(), atol=6e-4)
