"""Weights of trained networks, kept small."""

import pytest
import torch

from benchmarks.paper.weights import FILES, read_weights, write_weights
from probagg.dpac.model import build_model
from probagg.dpac.recipe import Recipe


def test_weights_are_split_rounded_and_read_back(tmp_path):
    recipe = Recipe.of("digits/fast")
    model = build_model(recipe, 10)
    write_weights(model, recipe, tmp_path, part=2 * 10**5)  # of another size: replaced
    write_weights(model, recipe, tmp_path, part=10**5)
    found, weights = read_weights(tmp_path), model.state_dict()
    assert len(list(tmp_path.glob(FILES))) > 1
    assert found.keys() == weights.keys()
    for name, tensor in weights.items():
        expected = tensor.bfloat16() if tensor.is_floating_point() else tensor
        assert torch.equal(found[name], expected)
    build_model(recipe, 10, seed=1).load_state_dict(found)


def test_weights_of_which_a_file_is_missing_are_an_error(tmp_path):
    recipe = Recipe.of("digits/fast")
    write_weights(build_model(recipe, 10), recipe, tmp_path, part=10**5)
    next(tmp_path.glob(FILES)).unlink()
    with pytest.raises(ValueError, match="not all"):
        read_weights(tmp_path)
