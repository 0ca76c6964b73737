"""Algorithm 3 against a transcription."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_training import K, infer_all, setup_of, terms_of, train_with_a_stop, weights_hash

from probagg.aggregation import critical_m
from probagg.dpac import stages, start
from probagg.dpac.engine import Engine, Machine
from probagg.dpac.feed import infer
from probagg.dpac.pretext import distance_spaces
from probagg.dpac.self_labelling import ClassifierLabels
from probagg.dpac.stages import ClusterStage, PretrainStage, make_views
from probagg.dpac.start import outputs_of, smoothed_clusters
from probagg.dpac.step import Step
from probagg.errors import ClusteringWarning, Interrupted
from probagg.opa.targets import opa_targets, weighted_contrastive


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


@pytest.mark.parametrize("space", ["features", "hidden"])
def test_clustering_is_equation_12(space):
    """Targets and gate from the clean view, KL on the weak one, the gated contrast of both.

    Distances are those of the features, or of the projector's hidden layer.
    """
    recipe, model, found, x, x1, x2 = terms_of(
        ClusterStage, "cluster.m=1.1", f"cluster.space={space}"
    )
    p, p1 = (model.classifier(f).softmax(1) for f in (x, x1))
    z = model.pretext.projector[:-1](x).detach() if space == "hidden" else x
    Q = opa_targets_by_loop(z, p, recipe.cluster.m)
    kl = (Q * (Q.log() - p1.double().log())).sum(1).mean()
    torch.testing.assert_close(found["kl"].double(), kl, atol=1e-4, rtol=1e-3)
    z1, z2 = model.pretext.projector(torch.cat([x1, x2])).chunk(2)
    contrast = weighted_contrastive(z1, z2, p).mean()
    torch.testing.assert_close(found["pretext"], contrast, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found["loss"], found["kl"] + found["pretext"])


def test_reduced_precision_trains_the_same_weights(monkeypatch):
    """The clean view's pass without gradient comes first, and torch below 2.11 cached its casts."""
    trained, cached = {}, []
    for precision in ("fp32", "bf16"):
        setup, batch = setup_of()
        stage = ClusterStage(setup)
        asked = stage.clean_outputs

        def clean_outputs(clean, asked=asked):
            cached.append(torch.is_autocast_enabled("cpu") and torch.is_autocast_cache_enabled())
            return asked(clean)

        monkeypatch.setattr(stage, "clean_outputs", clean_outputs)
        step = Step(stage, setup.model, device=torch.device("cpu"), precision=precision)
        step(batch.images, batch.samples)
        parameters = setup.model.named_parameters()
        trained[precision] = {name for name, p in parameters if p.grad is not None}
    assert trained["bf16"] == trained["fp32"]
    assert cached == [False, False]


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


@pytest.mark.parametrize("objective", ["opa", "pac"])
def test_known_images_are_targets_of_both_objectives(objective):
    """KL's target is their cluster; Eq. 13 has no targets: they are a cross-entropy beside it."""
    setup, batch = setup_of(f"cluster.objective={objective}")
    known = np.where(np.arange(60) == 3, 1, -1)
    plain, m = ClusterStage(setup), setup.recipe.cluster.m
    stage = ClusterStage(replace(setup, known=known))
    x, logits, logits1 = torch.randn(20, 6), torch.randn(20, K), torch.randn(20, K)
    terms = [s.clustering_terms(batch, x, logits, logits1.clone()) for s in (plain, stage)]
    if objective == "opa":
        Q = opa_targets(x, logits.softmax(1), m=m, known_labels=stage.known[:20])
        assert Q[3].tolist() == [0.0, 1.0, 0.0]
        expected = (Q * (Q.clamp(min=1e-30).log() - logits1.log_softmax(1))).sum(1).mean()
        torch.testing.assert_close(terms[1]["kl"], expected)
        assert terms[1]["kl"] != terms[0]["kl"]
    else:
        assert terms[1]["pac"] == terms[0]["pac"]
        torch.testing.assert_close(terms[1]["known"], -logits1.log_softmax(1)[3, 1] / 20)


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
    for stage in (PretrainStage, ClusterStage, ClassifierLabels):
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


@pytest.mark.parametrize("task", ["moco", "byol"])
def test_a_moving_average_survives_an_interruption(tmp_path, task):
    """It is part of the module, so a run that was interrupted ends with the same bits."""

    def train(folder, stop_at=None):
        settings = f"pretext.task={task}", "pretext.queue_size=32"
        return weights_hash(
            train_with_a_stop(tmp_path / folder, settings, PretrainStage, stop_at)[0].model
        )

    with pytest.raises(Interrupted):
        train("stopped", (1, 1))
    assert train("stopped") == train("whole")


def test_a_view_named_twice_is_two_views():
    setup, batch = setup_of()
    pair = make_views(setup.views, ("weak", "weak"), batch)
    assert not torch.equal(*pair)


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


@pytest.mark.parametrize(
    ("task", "space"),
    [
        ("wcl", "features"),
        ("wcl", "hidden"),
        ("wcl", "projections"),
        ("byol", "hidden"),
        ("autoencoder", "hidden"),
        ("autoencoder", "best"),
    ],
)
def test_a_start_from_pac_clusters_the_space_of_distances(task, space, monkeypatch):
    """An autoencoder has no projector, so PAC clusters the features."""
    changes = f"cluster.space={space}", f"pretext.task={task}", "pretext.head=[6,4]"
    setup, _ = setup_of("cluster.start=pac", *changes, n=120)
    seen = []

    def note(features, *arguments):
        seen.append(features)
        return smoothed_clusters(features, *arguments)

    monkeypatch.setattr(start, "smoothed_clusters", note)
    ClusterStage(setup).before_epoch(0)
    features, _ = infer_all(setup)
    spaces = distance_spaces(setup.model.pretext)
    layers = spaces.get(space, spaces["features"])
    torch.testing.assert_close(seen[0], outputs_of(layers, features))
    assert len(seen) == 1
    width = {"features": features.shape[1], "hidden": 6, "projections": 4}
    assert seen[0].shape[1] == width["features" if task == "autoencoder" else space]


def test_the_best_space_is_kept_in_checkpoints_and_for_the_stage_after(tmp_path, monkeypatch):
    """PAC's start finds it once: a run that resumes measures distances there, without PAC."""
    settings = "cluster.space=best", "cluster.start=pac", "pretext.head=[6,4]"
    monkeypatch.setattr(stages, "initialize_classifier", lambda *arguments: "hidden")
    with pytest.raises(Interrupted):
        train_with_a_stop(tmp_path, settings, ClusterStage, (1, 1))
    monkeypatch.delattr(stages, "initialize_classifier")
    setup, stage = train_with_a_stop(tmp_path, settings, ClusterStage)
    X = torch.ones(2, setup.model.dim)
    for later in (stage, ClassifierLabels(setup)):
        assert outputs_of(later.distance_layers, X).shape == (2, 6)


def test_a_space_that_the_recipe_names_is_used_whatever_the_weights_say():
    """Weights of a run that chose another one can be trained on."""
    setup, _ = setup_of("cluster.space=hidden", "pretext.head=[6,4]")
    weights = setup.model.state_dict() | {"best_space": torch.tensor(2)}
    setup.model.load_state_dict(weights)
    X = torch.ones(2, setup.model.dim)
    assert outputs_of(ClusterStage(setup).distance_layers, X).shape == (2, 6)


def test_the_critical_m_is_that_of_the_space_of_distances():
    setup, _ = setup_of("cluster.space=hidden", "cluster.m=9", "cluster.metric=sqeuclidean")
    stage = ClusterStage(setup)
    features, _ = infer_all(setup)
    threshold = critical_m(setup.model.pretext.projector[:-1].eval()(features), "sqeuclidean")
    assert abs(threshold - critical_m(features, "sqeuclidean")) > 0.01
    with pytest.warns(ClusteringWarning, match=f"critical value {threshold:.4f}"):
        stage.check_m()


def test_strata_are_the_classifiers_clusters_in_both_stages():
    setup, _ = setup_of("cluster.stratify=true")
    for stage in (ClusterStage(setup), ClassifierLabels(setup)):
        assert torch.equal(stage.before_epoch(1), infer_all(setup)[1].argmax(1))
    assert PretrainStage(setup).before_epoch(1) is None  # it has no clusters
    assert ClusterStage(setup_of()[0]).before_epoch(1) is None
