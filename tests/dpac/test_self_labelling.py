"""Each variant of self-labelling against a transcription."""

import pytest
import torch
import torch.nn.functional as F
from small_training import K, infer_all, setup_of, terms_of, train_with_a_stop, weights_hash

from probagg.dpac.self_labelling import (
    ClassifierLabels,
    RememberedLabels,
    SmoothedLabels,
    confident_labels,
    evaluating,
)
from probagg.dpac.stages import make_views
from probagg.errors import ClusteringWarning, Interrupted
from probagg.neighbours.smoothing import sharpen, sharpness, smooth, smoothing_graph
from probagg.opa.targets import weighted_contrastive


def test_self_labelling_is_cross_entropy_of_the_confident():
    """h's label of the weak view, where confident, trains the linear head on the strong view."""
    _, model, found, _, x1, x2 = terms_of(ClassifierLabels, "self_label.confidence=0.4")
    p1 = model.classifier(x1).softmax(1)
    expected, kept = 0.0, 0
    for row, features in zip(p1, x2, strict=True):
        if row.max() >= 0.4:
            kept += 1
            logits = model.self_labeller(features)
            expected += -logits.log_softmax(0)[row.argmax()] / len(p1)
    assert 0 < kept < len(p1)
    torch.testing.assert_close(found["self_label"], expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found["confident"], torch.tensor(kept / len(p1)))


def test_remembered_labels_are_learnt_by_both_heads_with_equal_clusters():
    """Cross-entropy on the strong view, each cluster's mean; the contrast is gated by labels."""
    setup, batch = setup_of("self_label.confidence=0.0")
    model, stage = setup.model, RememberedLabels(setup)
    stage.before_epoch(0)
    found = stage.loss(batch, stage.prepare(batch))
    labels = stage.state["labels"][batch.samples]
    kept = labels >= 0
    assert 0 < kept.sum() < len(labels)
    weak, strong = make_views(setup.views, ("weak", "strong"), batch)
    features = model.backbone(torch.cat([weak, strong]))
    for name, head in (("self_label", model.self_labeller), ("classifier", model.classifier)):
        rows = F.cross_entropy(head(features[20:]), labels.clamp(min=0), reduction="none")
        means = [rows[labels == k].mean() for k in labels[kept].unique()]
        torch.testing.assert_close(found[name], torch.stack(means).mean(), atol=1e-4, rtol=1e-4)
    P = torch.eye(K)[labels.clamp(min=0)] * kept[:, None]
    z1, z2 = model.pretext.projector(features).chunk(2)
    contrast = weighted_contrastive(z1, z2, P).mean()
    torch.testing.assert_close(found["pretext"], contrast, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found["confident"], kept.float().mean())


def test_the_classifier_labels_clean_views_in_evaluation_mode_and_moves_no_features():
    setup, batch = setup_of("self_label.labels=memory", "self_label.confidence=0.0")
    model, stage = setup.model, RememberedLabels(setup)
    views = stage.prepare(batch)
    with torch.no_grad():
        P = model.eval()(views[2])[1].softmax(1)
    model.train()
    stage.labels.fill_(-1)
    terms = stage.loss(batch, views)
    expected = confident_labels(P, torch.full((20,), -1), 0.0)
    assert torch.equal(stage.labels[batch.samples], expected)
    terms["classifier"].backward()
    assert all(p.grad is None for p in model.backbone.parameters())
    assert all(p.grad is not None for p in model.classifier.parameters())


def test_labels_are_given_to_the_most_confident_and_taken_from_the_unsure():
    generator = torch.Generator().manual_seed(0)
    P = (3 * torch.randn(40, K, generator=generator)).softmax(1)
    before = torch.randint(-1, K, (40,), generator=generator)
    found = confident_labels(P, before, threshold=0.6)
    for i, p in enumerate(P):
        k = int(p.argmax())
        above = sum(bool(q.argmax() == k and q[k] > p[k]) for q in P)
        new = k if above < 7 else -1  # 40 / (2 * 3), rounded up
        kept = int(before[i]) if before[i] >= 0 else new
        assert found[i] == (kept if p[k] >= 0.6 else -1)
    assert (found[before < 0] >= 0).any()
    assert (found[before >= 0] < 0).any()


def test_a_copy_that_evaluates_follows_weights_and_statistics():
    model = setup_of()[0].model
    twin = evaluating(model.backbone)
    model.backbone(torch.randn(8, 3, 8, 8))  # changes the statistics
    with torch.no_grad():
        next(model.backbone.parameters()).mul_(2.0)
    x = torch.randn(4, 3, 8, 8)
    assert model.backbone.training
    assert torch.equal(twin(x), model.backbone.eval()(x))


def test_remembered_labels_survive_an_interruption(tmp_path):
    def train(folder, stop_at=None):
        settings = "self_label.labels=memory", "self_label.confidence=0.0"
        setup, stage = train_with_a_stop(tmp_path / folder, settings, RememberedLabels, stop_at)
        assert (stage.labels >= 0).any()
        return weights_hash(setup.model), stage.labels.tolist()

    with pytest.raises(Interrupted):
        train("stopped", (0, 2))
    assert train("stopped") == train("whole")


@pytest.mark.parametrize("fitted", [True, False])
def test_a_linear_head_is_used_only_if_it_agrees_with_the_classifier(fitted):
    setup, _ = setup_of("network.classifier=[]")
    model = setup.model
    stage = ClassifierLabels(setup)
    if fitted:
        model.self_labeller.load_state_dict(model.classifier[0].state_dict())
        stage.finish()
    else:
        with torch.no_grad():
            model.self_labeller.weight.copy_(-model.classifier[0].weight)
            model.self_labeller.bias.copy_(-model.classifier[0].bias)
        with pytest.warns(ClusteringWarning, match="so the classifier is used instead"):
            stage.finish()
    assert bool(model.self_labelled) == fitted


def test_smoothed_labels_train_the_head_and_where_confident_the_backbone():
    """The pretext loss is weighted by Q; rows below the threshold have no gradient to features."""
    setup, batch = setup_of("self_label.confidence=0.6")
    model, stage = setup.model, SmoothedLabels(setup)
    Q = torch.eye(K)[batch.samples % K] * 0.7 + 0.3 / K
    Q[::2] = 1 / K  # every second row is below the threshold
    stage.pseudo_labels[batch.samples] = Q
    found = stage.loss(batch, made := stage.prepare(batch))
    assert set(found) == {"loss", "pretext", "self_label", "confident"}
    assert len(made) == 2
    assert found["confident"] == 0.5
    features = model.backbone(torch.cat(made)).detach().requires_grad_()
    x2 = features.chunk(2)[1]
    rows = F.cross_entropy(model.self_labeller(x2), Q, reduction="none")
    torch.testing.assert_close(found["self_label"], rows.mean())
    torch.testing.assert_close(
        found["pretext"],
        setup.recipe.pretext.weight * model.pretext(model.backbone, made, features, Q),
    )
    model.backbone.register_forward_hook(lambda *_: features)
    (gradient,) = torch.autograd.grad(stage.loss(batch, made)["self_label"], features)
    _, strong = gradient.chunk(2)
    assert (strong[::2] == 0).all()
    assert (strong[1::2] != 0).any(1).all()


@pytest.mark.usefixtures("quick_heads")
def test_pseudo_labels_are_refreshed_at_the_start_every_few_epochs_and_at_the_end():
    setup, _ = setup_of("self_label.labels=neighbours", "self_label.refresh_epochs=2")
    model, stage = setup.model, SmoothedLabels(setup)
    features, P = infer_all(setup)
    first = sharpen(smooth(smoothing_graph(features, K, "cosine"), P), to=sharpness(P))
    for epoch, refreshed in ((0, True), (1, False), (2, True), (None, True)):
        stage.pseudo_labels.copy_(before := first.roll(1, dims=1))
        if epoch is None:
            stage.finish()
        else:
            assert stage.before_epoch(epoch) is None
        assert torch.equal(stage.pseudo_labels, before) != refreshed
        assert sharpness(stage.pseudo_labels) == pytest.approx(sharpness(first), abs=1e-4)
        if epoch == 0:
            torch.testing.assert_close(stage.pseudo_labels, first)
        if refreshed:  # the head is fitted to them, whatever its weights were
            answers = model.self_labeller(infer_all(setup)[0])
            assert (answers.argmax(1) == stage.pseudo_labels.argmax(1)).float().mean() > 0.8
        with torch.no_grad():
            model.self_labeller.weight.neg_()


@pytest.mark.usefixtures("quick_heads")
def test_pseudo_labels_keep_their_masses_whatever_the_head_predicts():
    """A head that has come to favour a cluster would otherwise favour it more and more."""
    setup, _ = setup_of("self_label.labels=neighbours")
    stage = SmoothedLabels(setup)
    stage.before_epoch(0)
    masses = stage.pseudo_labels.sum(0)
    with torch.no_grad():
        setup.model.self_labeller.bias[0] += 5.0
    stage.before_epoch(setup.recipe.self_label.refresh_epochs)
    torch.testing.assert_close(stage.pseudo_labels.sum(0), masses, atol=0.5, rtol=0.0)


@pytest.mark.usefixtures("quick_heads")
def test_pseudo_labels_are_held_to_the_masses_of_the_classifier():
    """Sharpening takes mass from small clusters: held to the last masses, they would end empty."""
    setup, _ = setup_of("self_label.labels=neighbours")
    stage = SmoothedLabels(setup)
    features, P = infer_all(setup)
    stage.before_epoch(0)
    stage.pseudo_labels.copy_(drifted := stage.pseudo_labels.roll(1, dims=1))
    answers = stage.head_probabilities(features)
    stage.before_epoch(setup.recipe.self_label.refresh_epochs)
    smoothed = smooth(smoothing_graph(features, K, "cosine"), answers, mass=P.sum(0))
    torch.testing.assert_close(stage.pseudo_labels, sharpen(smoothed, to=sharpness(drifted)))


@torch.no_grad()
def test_the_head_is_compared_with_its_pseudo_labels():
    """Not with the classifier's labels of now."""
    setup, _ = setup_of("self_label.labels=neighbours")
    model, stage = setup.model, SmoothedLabels(setup)
    features, _ = infer_all(setup)
    Q = model.self_labeller(features).softmax(1)
    stage.choose_head(features, Q)
    assert model.self_labelled
    Q[3:] = Q[3:].roll(1, dims=1)
    with pytest.warns(ClusteringWarning, match="agrees with its labels on 5.0 % of the images"):
        stage.choose_head(features, Q)
    assert not model.self_labelled


def test_a_head_of_far_lower_confidence_is_not_used():
    setup, _ = setup_of("self_label.labels=neighbours", "network.classifier=[]")
    model = setup.model
    with torch.no_grad():
        model.self_labeller.weight.copy_(0.01 * model.classifier[0].weight)
        model.self_labeller.bias.copy_(0.01 * model.classifier[0].bias)
        model.classifier[0].weight *= 1000.0
        model.classifier[0].bias *= 1000.0
    with pytest.warns(ClusteringWarning, match="on 100.0 % of the images, with 5. % of their"):
        SmoothedLabels(setup).choose_head(*infer_all(setup))
    assert not model.self_labelled
