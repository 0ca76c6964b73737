"""Algorithm 3 and both variants of self-labelling against a transcription."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from probagg.dpac.checkpoint import weights_hash
from probagg.dpac.engine import Engine, Machine
from probagg.dpac.feed import Feed, infer
from probagg.dpac.matching import self_label_stage
from probagg.dpac.model import build_model
from probagg.dpac.recipe import Recipe
from probagg.dpac.stages import (
    ClassifierLabels,
    ClusterStage,
    PretrainStage,
    RememberedLabels,
    Setup,
    SmoothedLabels,
    confident_labels,
    evaluating,
    make_views,
)
from probagg.dpac.step import Batch
from probagg.dpac.views import Views
from probagg.errors import ClusteringWarning, Interrupted
from probagg.neighbours.smoothing import sharpen, sharpness, smooth, smoothing_graph
from probagg.opa.targets import weighted_contrastive

K = 3
SMALL = [
    "network.backbone=convnet", "network.width=8", "network.classifier=[16]",
    "pretext.head=[16, 8]", "views.size=8", "pretrain.epochs=2", "pretrain.batch_size=20",
    "pretrain.warmup_epochs=0",
    "cluster.start=random", "cluster.stratify=false", "cluster.balance=1.0",
    "cluster.backbone_gradient=1.0", "self_label.labels=classifier",
    "cluster.epochs=2", "cluster.batch_size=20", "self_label.epochs=2", "self_label.batch_size=20",
]  # fmt: skip


class Pictures:
    """Bright, dark and striped squares with noise."""

    def __init__(self, n=60, channels=3, seed=0):
        rng = np.random.default_rng(seed)
        self.y = np.arange(n) % K
        base = np.stack([np.full((8, 8), 200), np.full((8, 8), 40), np.tile([[40, 200]], (8, 4))])
        noise = rng.normal(0, 20, (n, 8, 8, channels))
        self.array = np.clip(base[self.y][..., None] + noise, 0, 255).astype(np.uint8)

    def __len__(self):
        return len(self.array)

    def read(self, rows):
        return self.array[rows]


def setup_of(*settings, n=60):
    """What a stage works with, and one batch."""
    recipe = Recipe.of("cifar10").override([*SMALL, *settings])
    model = build_model(recipe, K).train()
    images = Pictures(n)
    rows = np.arange(20)
    batch = Batch(torch.from_numpy(images.array[rows]), torch.from_numpy(rows), torch.tensor(7))
    return Setup(model, Views(recipe.views), Feed(images, torch.device("cpu")), recipe), batch


def terms_of(stage, *settings):
    """The loss of a stage on one batch, and the same network's outputs for the transcription."""
    setup, batch = setup_of(*settings)
    model = setup.model
    stage = stage(setup)
    found = stage.loss(batch, stage.prepare(batch))
    clean, weak, strong = make_views(setup.views, ("clean", "weak", "strong"), batch)
    x = model.backbone(clean).detach()
    x1, x2 = model.backbone(torch.cat([weak, strong])).chunk(2)
    return setup.recipe, model, found, x, x1, x2


def infer_all(setup):
    return infer(setup.model, setup.views, setup.feed)


def opa_targets_by_loop(x, p, m):
    """Algorithm 2 as printed, in float64: cosine distances, powers, normalise."""
    x, p = F.normalize(x.double(), dim=1), p.double()
    D = 1.0 - x @ x.T
    S = torch.zeros_like(p)
    for i in range(len(x)):
        for k in range(p.shape[1]):
            S[i, k] = sum(p[j, k] * D[i, j] for j in range(len(x)) if j != i)
    Q = S ** (-1.0 / (m - 1.0))
    return Q / Q.sum(1, keepdim=True)


def test_pretraining_is_equation_11_without_a_gate():
    _, model, found, _, x1, x2 = terms_of(PretrainStage)
    z1, z2 = model.pretext.projector(torch.cat([x1, x2])).chunk(2)
    torch.testing.assert_close(found["loss"], weighted_contrastive(z1, z2).mean())


def test_clustering_is_equation_12():
    """Targets and gate from the clean view, KL on the weak one, the gated contrast of both."""
    recipe, model, found, x, x1, x2 = terms_of(ClusterStage, "cluster.m=1.1")
    p, p1 = (model.classifier(f).softmax(1) for f in (x, x1))
    Q = opa_targets_by_loop(x, p, recipe.cluster.m)
    kl = (Q * (Q.log() - p1.double().log())).sum(1).mean()
    torch.testing.assert_close(found["kl"].double(), kl, atol=1e-4, rtol=1e-3)
    z1, z2 = model.pretext.projector(torch.cat([x1, x2])).chunk(2)
    contrast = weighted_contrastive(z1, z2, p).mean()
    torch.testing.assert_close(found["pretext"], contrast, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found["loss"], found["kl"] + found["pretext"])


def test_the_gradient_of_the_clustering_loss_to_the_backbone_is_scaled():
    """The loss and the classifier's gradient stay the same."""
    gradients = {}
    for share in (1.0, 0.25):
        setup, batch = setup_of("pretext.task=none", f"cluster.backbone_gradient={share}")
        stage = ClusterStage(setup)
        stage.loss(batch, stage.prepare(batch))["loss"].backward()
        parts = setup.model.backbone, setup.model.classifier
        gradients[share] = [next(part.parameters()).grad for part in parts]
    torch.testing.assert_close(gradients[0.25][0], 0.25 * gradients[1.0][0])
    torch.testing.assert_close(gradients[0.25][1], gradients[1.0][1])


def test_clustering_by_j_pac_is_equation_13():
    _, model, found, x, x1, _ = terms_of(ClusterStage, "cluster.objective=pac")
    x, p1 = F.normalize(x, dim=1), model.classifier(x1).softmax(1)
    trace = torch.trace(p1.T @ (1.0 - x @ x.T).fill_diagonal_(0.0) @ p1) / len(x)
    torch.testing.assert_close(found["pac"], trace, atol=1e-4, rtol=1e-4)


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
    setup, batch = setup_of("self_label.labels=memory", "self_label.confidence=0.0")
    model, stage = setup.model, self_label_stage(setup)
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
    def train(out, stop_at):
        setup, _ = setup_of("self_label.labels=memory", "self_label.confidence=0.4")

        def progress(where):
            if (where.epoch, where.step) == stop_at and where.metrics is None:
                engine.stop = "the test"

        engine = Engine(setup.model, seed=0, machine=Machine("cpu"), out=out, progress=progress)
        engine.resume()
        stage = self_label_stage(setup)
        engine.train(stage)
        return weights_hash(setup.model), stage.labels

    whole = train(tmp_path / "whole", None)
    with pytest.raises(Interrupted):
        train(tmp_path / "run", (0, 2))
    again = train(tmp_path / "run", None)
    assert again[0] == whole[0]
    assert torch.equal(again[1], whole[1])


def test_targets_carry_no_gradient():
    """The loss has a gradient to the weak view, and none to the clean view."""
    setup, batch = setup_of("pretext.task=none", "pretext.views=['weak']")
    stage = ClusterStage(setup)
    made = [view.requires_grad_() for view in stage.prepare(batch)]
    stage.loss(batch, made)["loss"].backward()
    assert made[0].grad is None
    assert made[1].grad.abs().sum() > 0


@pytest.mark.parametrize("task", ["wcl", "simclr", "moco", "byol", "autoencoder", "none"])
@pytest.mark.parametrize("objective", ["opa", "pac"])
def test_every_pretext_trains_with_every_objective(task, objective):
    setup, _ = setup_of(
        f"pretext.task={task}", f"cluster.objective={objective}", "pretext.queue_size=32"
    )
    engine = Engine(setup.model, seed=0, machine=Machine("cpu"))
    for stage in (PretrainStage, ClusterStage, self_label_stage):
        engine.train(stage(setup))
    assert all(torch.isfinite(p).all() for p in setup.model.parameters())


def test_byol_learns_without_negatives_and_does_not_collapse():
    """All images in one point would be a perfect prediction; the moving target prevents it."""
    setup, _ = setup_of(
        "pretext.task=byol", "pretext.views=['weak', 'weak']", "pretext.key_momentum=0.9",
        "pretrain.epochs=30", "pretrain.learning_rate=0.05",
    )  # fmt: skip
    losses = []

    def progress(where):
        if where.metrics:
            losses.append(where.metrics["loss"])

    engine = Engine(setup.model, seed=0, machine=Machine("cpu"), progress=progress)
    engine.train(PretrainStage(setup))
    assert losses[-1] < 0.5 * losses[0]
    x = F.normalize(infer(setup.model, setup.views, setup.feed)[0], dim=1)
    kinds = torch.arange(len(x)) % K
    same = (x @ x.T)[kinds[:, None] == kinds].mean()
    other = (x @ x.T)[kinds[:, None] != kinds].mean()
    assert same > 0.9
    assert other < same - 0.2


def test_only_byols_predictor_has_the_predictors_rate():
    stage = PretrainStage(setup_of("pretext.task=byol", "pretext.predictor_rate=10")[0])
    fast = {n for n, _ in stage.model.named_parameters() if stage.rate(n) == 10}
    assert fast == {
        f"pretext.predictor.{n}" for n, _ in stage.model.pretext.predictor.named_parameters()
    }
    assert all(stage.rate(n) == 1 for n, _ in stage.model.named_parameters() if n not in fast)


@pytest.mark.parametrize("task", ["moco", "byol"])
def test_a_moving_average_survives_an_interruption(tmp_path, task):
    """It is part of the module, so a run that was interrupted ends with the same bits."""

    def train(out, stop_at):
        setup, _ = setup_of(f"pretext.task={task}", "pretext.queue_size=32")

        def progress(where):
            if (where.epoch, where.step) == stop_at and where.metrics is None:
                engine.stop = "the test"

        engine = Engine(setup.model, seed=0, machine=Machine("cpu"), out=out, progress=progress)
        engine.resume()
        engine.train(PretrainStage(setup))
        return weights_hash(setup.model)

    with pytest.raises(Interrupted):
        train(tmp_path / "stopped", (1, 1))
    assert train(tmp_path / "stopped", None) == train(tmp_path / "whole", None)


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


def test_a_view_named_twice_is_two_views():
    setup, batch = setup_of()
    pair = make_views(setup.views, ("weak", "weak"), batch)
    assert not torch.equal(*pair)


def test_smoothed_labels_train_the_head_and_where_confident_the_backbone():
    """The pretext loss is weighted by Q; rows below the threshold have no gradient to features."""
    setup, batch = setup_of("self_label.labels=neighbours", "self_label.confidence=0.6")
    model, stage = setup.model, self_label_stage(setup)
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


def test_a_start_from_pac_uses_the_statistics_of_clean_views():
    """As the clean view of a training step does, whatever views trained the network before."""
    setup, _ = setup_of("cluster.start=pac", n=120)
    setup.model.backbone(torch.randn(50, 3, 8, 8) + 3.0)
    ClusterStage(setup).before_epoch(0)
    found, _ = infer_all(setup)
    setup.model.train()
    with torch.no_grad():
        expected = setup.model.backbone(
            setup.views.clean(torch.from_numpy(setup.feed.images.array))
        )
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.05)


def test_strata_are_the_classifiers_clusters_in_both_stages():
    setup, _ = setup_of("cluster.stratify=true")
    for stage in (ClusterStage(setup), ClassifierLabels(setup)):
        assert torch.equal(stage.before_epoch(1), infer_all(setup)[1].argmax(1))
    assert PretrainStage(setup).before_epoch(1) is None  # it has no clusters
    assert ClusterStage(setup_of()[0]).before_epoch(1) is None


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
