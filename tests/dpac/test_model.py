"""Networks by name, and pretext tasks against plain transcriptions."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from probagg.dpac.model import build_backbone, build_model
from probagg.dpac.recipe import Architecture, Recipe, RecipeError
from probagg.opa.targets import weighted_contrastive


def recipe(*settings):
    small = ["network.backbone=convnet", "network.width=4", "views.size=8", "network.norm=group"]
    return Recipe.of("cifar10").override([*small, *settings])


@pytest.mark.parametrize(("size", "last"), [(32, 4), (28, 4), (64, 8), (96, 6), (128, 8), (224, 7)])
def test_the_stem_keeps_the_last_feature_map_small_at_any_size(size, last):
    """3x3 stride 1 to 64 px, stride 2 to 128 px, the original above."""
    net = build_backbone(Architecture(backbone="resnet18"), 3, size, size).eval()
    maps = []
    net.layer4.register_forward_hook(lambda module, inputs, output: maps.append(output.shape))
    with torch.no_grad():
        assert net(torch.zeros(1, 3, size, size)).shape == (1, 512)
    assert maps[0][2:] == (last, last)


@pytest.mark.parametrize(
    ("name", "dim"), [("resnet18", 512), ("resnet34", 512), ("resnet50", 2048)]
)
@pytest.mark.parametrize("channels", [1, 3])
def test_resnets_take_grey_and_colour(name, dim, channels):
    net = build_backbone(Architecture(backbone=name), channels, 32, 32).eval()
    with torch.no_grad():
        assert net(torch.zeros(1, channels, 32, 32)).shape == (1, dim)


def test_any_model_of_timm_is_a_backbone():
    pytest.importorskip("timm")
    net = build_backbone(Architecture(backbone="mobilenetv3_small_050"), 1, 32, 32).eval()
    with torch.no_grad():
        assert net(torch.zeros(1, 1, 32, 32)).dim() == 2


def test_an_unknown_backbone_is_an_error():
    pytest.importorskip("timm")
    with pytest.raises(RecipeError, match="'resnet19', which is neither one of ours"):
        build_backbone(Architecture(backbone="resnet19"), 3, 32, 32)


def test_a_backbone_that_returns_feature_maps_is_refused():
    with pytest.raises(RecipeError, match=r"features of shape \(2, 4, 6, 6\)"):
        build_model(recipe(), 3, backbone=nn.Conv2d(3, 4, 3))


def test_the_seed_determines_the_weights_and_the_global_generator_is_not_used():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    a, b, c = (build_model(recipe(), 3, seed=s) for s in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    same = [torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True)]
    assert all(same)
    assert not torch.equal(a.classifier[0].weight, c.classifier[0].weight)


def test_the_self_labelling_head_is_used_once_it_is_trained():
    model = build_model(recipe(), 3).eval()
    images = torch.randn(4, 3, 8, 8)
    features, logits = model(images)
    assert torch.equal(logits, model.classifier(features))
    model.self_labelled.fill_(True)
    assert torch.equal(model(images)[1], model.self_labeller(features))


@pytest.mark.parametrize("task", ["wcl", "simclr"])
def test_only_wcl_with_probabilities_gates_its_pairs(task, generator):
    model = build_model(recipe(f"pretext.task={task}"), 3)
    features = torch.randn(12, model.dim, generator=generator)
    P = torch.randn(6, 3, generator=generator).softmax(1)
    z1, z2 = model.pretext.projector(features).chunk(2)
    plain = weighted_contrastive(z1, z2).mean()
    gated = weighted_contrastive(z1, z2, P).mean()
    torch.testing.assert_close(model.pretext(None, [], features, None), plain)
    found = model.pretext(None, [], features, P)
    torch.testing.assert_close(found, gated if task == "wcl" else plain)


def test_moco_is_info_nce_with_its_queue_as_negatives(generator):
    model = build_model(recipe("pretext.task=moco", "pretext.queue_size=16"), 3)
    moco = model.pretext
    views = [torch.randn(6, 3, 8, 8, generator=generator) for _ in range(2)]
    queue = moco.queue.clone()
    other = torch.cat(views[::-1])
    key = F.normalize(moco.key_projector(moco.key_backbone(other)), dim=1)  # not yet moved
    features = model.backbone(torch.cat(views))
    loss = moco(model.backbone, views, features, None)
    query = F.normalize(moco.projector(features), dim=1)
    expected = 0.0
    for q, k in zip(query, key, strict=True):
        logits = torch.stack([q @ k, *(q @ old for old in queue)]) / 0.5
        expected += -logits.log_softmax(0)[0] / 12
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(moco.queue[:12], key)
    torch.testing.assert_close(moco.queue[12:], queue[12:])
    assert moco.cursor == 12


def test_mocos_key_network_is_a_moving_average_and_its_queue_wraps_around(generator):
    model = build_model(recipe("pretext.task=moco", "pretext.queue_size=16"), 3)
    views = [torch.randn(6, 3, 8, 8, generator=generator) for _ in range(2)]
    with torch.no_grad():
        model.backbone[0].weight.add_(1.0)
    before = model.pretext.key_backbone[0].weight.clone()
    for _ in range(3):
        model.pretext(model.backbone, views, model.backbone(torch.cat(views)), None)
    moved = model.pretext.key_backbone[0].weight - before
    torch.testing.assert_close(moved, torch.full_like(moved, 1 - 0.99**3), atol=1e-5, rtol=1e-4)
    assert model.pretext.cursor == 36 % 16
    assert not any(p.requires_grad for p in model.pretext.key_backbone.parameters())


def test_byol_is_two_minus_two_cosines_in_both_orders(generator):
    """Grill et al. (2020), Eq. 2, of both orders; the mean where they take the sum."""
    model = build_model(recipe("pretext.task=byol", "pretext.head=[16, 8]"), 3)
    byol = model.pretext
    with torch.no_grad():
        for p in byol.target_projector.parameters():
            p.add_(0.1)  # a target network that is not the online one
    byol.momentum = 1.0
    views = [torch.randn(6, 3, 8, 8, generator=generator) for _ in range(2)]
    loss = byol(model.backbone, views, model.backbone(torch.cat(views)), None)
    expected = 0.0
    for view, other in (views, views[::-1]):
        q = byol.predictor(byol.projector(model.backbone(view)))
        z = byol.target_projector(byol.target_backbone(other))
        for a, b in zip(q, z, strict=True):
            expected += (a / a.norm() - b / b.norm()).pow(2).sum() / 12
    torch.testing.assert_close(loss, expected)


def test_byol_clusters_with_equation_11_of_its_projections(generator):
    """P has no negatives to weigh in BYOL; the target network is neither used nor moved."""
    model = build_model(recipe("pretext.task=byol", "pretext.head=[16, 8]"), 3)
    byol = model.pretext
    views = [torch.randn(6, 3, 8, 8, generator=generator) for _ in range(2)]
    P = torch.rand(6, 3, generator=generator).softmax(1)
    features = model.backbone(torch.cat(views))
    before = [p.clone() for p in byol.target_projector.parameters()]
    byol.projector[0].weight.data.add_(0.1)
    z1, z2 = byol.projector(features).chunk(2)
    expected = weighted_contrastive(z1, z2, P, temperature=0.5).mean()
    torch.testing.assert_close(byol(model.backbone, views, features, P), expected)
    assert all(map(torch.equal, before, byol.target_projector.parameters()))


def test_byols_predictor_has_the_projectors_widths():
    byol = build_model(recipe("pretext.task=byol", "pretext.head=[32, 24, 8]"), 3).pretext
    linear = [layer for layer in byol.predictor if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [(8, 32), (32, 8)]


def test_byols_target_network_follows_and_gets_no_gradient(generator):
    model = build_model(recipe("pretext.task=byol", "pretext.key_momentum=0.9"), 3)
    byol = model.pretext
    averages = (byol.target_backbone, model.backbone), (byol.target_projector, byol.projector)
    for average, current in averages:  # the same weights as training begins
        for a, c in zip(average.parameters(), current.parameters(), strict=True):
            assert torch.equal(a, c)
    before = [a.clone() for average, _ in averages for a in average.parameters()]
    with torch.no_grad():
        for _, current in averages:
            for c in current.parameters():
                c.add_(1.0)
    views = [torch.randn(6, 3, 8, 8, generator=generator) for _ in range(2)]
    for _ in range(3):
        byol(model.backbone, views, model.backbone(torch.cat(views)), None).backward()
    after = [a for average, _ in averages for a in average.parameters()]
    for a, b in zip(after, before, strict=True):
        torch.testing.assert_close(a - b, torch.full_like(a, 1 - 0.9**3), atol=1e-5, rtol=1e-4)
        assert a.grad is None
        assert not a.requires_grad
    trained = [*model.backbone.parameters(), *byol.projector.parameters()]
    assert all(p.grad is not None for p in [*trained, *byol.predictor.parameters()])


def test_the_autoencoder_reconstructs_its_first_view(generator):
    model = build_model(recipe("pretext.task=autoencoder", "pretext.head=[16]"), 3)
    views = [torch.randn(6, 3, 8, 8, generator=generator) for _ in range(2)]
    features = model.backbone(torch.cat(views))
    decoded = model.pretext.decoder(features[:6])
    expected = (decoded - views[0].flatten(1)).pow(2).mean()
    torch.testing.assert_close(model.pretext(None, views, features, None), expected)
