"""Hooks on torch modules: called with inputs and outputs, and removed whatever happens."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tinyxp.backends.torch_hooks import module_paths, on_input, on_output, run_with_hooks  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared = torch.nn.Linear(2, 2), torch.nn.ReLU()
        self.again = self.shared

    def forward(self, x: Any, *, scale: float = 1.0) -> Any:
        return self.shared(self.first(x)) * scale


def count_hooks(net: Any) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules())


def test_paths_include_the_module_itself_and_every_name_of_a_shared_one() -> None:
    assert module_paths(Net()) == ["", "first", "shared", "again"]
    with pytest.raises(ValueError, match="module is a int; it must be a torch.nn.Module"):
        module_paths(3)


def test_callbacks_get_outputs_and_inputs() -> None:
    net, x = Net(), torch.ones(1, 2)
    seen: dict[str, Any] = {}
    targets = ["first", "first:input", "", ":input"]
    run_with_hooks(
        net, [(target, lambda v, t=target: seen.update({t: v})) for target in targets], [x], {"scale": 3.0}
    )
    assert list(seen) == [":input", "first:input", "first", ""]
    assert torch.equal(seen["first"], net.first(x))
    assert torch.equal(seen[""], net(x, scale=3.0))
    (given,), kwargs = seen[":input"]
    assert given is x
    assert kwargs == {"scale": 3.0}
    assert count_hooks(net) == 0


def test_hooks_are_removed_after_an_error() -> None:
    net = Net()

    def fail(values: Any) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        run_with_hooks(net, [("first", fail), ("shared", fail)], [torch.ones(1, 2)], {})
    assert count_hooks(net) == 0


def test_a_hook_may_replace_inputs_and_outputs() -> None:
    net, x = Net(), torch.ones(1, 2)
    with ExitStack() as undo:
        on_input(net.first, lambda module, args, kwargs: ((torch.zeros(1, 2),), kwargs), undo)
        on_output(net.shared, lambda module, args, y: y + 1.0, undo)
        assert torch.equal(net(x), torch.relu(net.first.bias)[None] + 1.0)
    assert count_hooks(net) == 0
