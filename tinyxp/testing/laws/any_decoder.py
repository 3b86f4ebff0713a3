"""Laws of any decoder, known only by its logits: what may affect what."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tinyxp.testing.draws import Draw
from tinyxp.testing.law_registry import laws_of
from tinyxp.testing.subjects.base import Subject

TRANSFORMER = "Vaswani et al., 2017, section 3"

law = laws_of("model", "causality", TRANSFORMER)


@law("A later token never changes an earlier logit.", source="Vaswani et al., 2017, section 3.2.3")
def causality(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw, columns=(2, 6))
    t = ids.shape[1]
    column = draw("column", subject.columns(1, max(t - 1, 1)))
    step = draw("step", st.integers(1, max(model.vocab_size - 1, 1)))
    changed = np.where(np.arange(t) < column, ids, (ids + step) % model.vocab_size)
    subject.close(
        model.forward(changed)[:, :column], model.forward(ids)[:, :column], f"logits before {column}"
    )


@law(
    "The logits of a prefix are the first logits of the whole text.",
    source="Vaswani et al., 2017, section 3.2.3",
)
def prefix_invariance(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw)
    column = draw("column", subject.columns(1, ids.shape[1]))
    subject.close(model.forward(ids[:, :column]), model.forward(ids)[:, :column], "logits of the prefix")


@law(
    "Each row of a batch is computed as if it were alone; the order of rows does not matter.", region="batch"
)
def rows_are_independent(subject: Subject, draw: Draw) -> None:
    model = subject.model(draw)
    ids = model.ids(draw, rows=(2, 3))
    whole = model.forward(ids)
    order = draw("order", st.permutations(range(len(ids))))
    subject.close(model.forward(ids[order]), whole[order], f"logits of rows in the order {order}")
    others = (ids + draw("step", st.integers(1, model.vocab_size))) % model.vocab_size
    others[0] = ids[0]
    subject.close(model.forward(others)[0], whole[0], "logits of a row beside other rows")
