"""Self-labelling with a few fixed labels: which images, the loss, the averaged weights."""

import pytest
import torch
import torch.nn.functional as F

from probagg.dpac.checkpoint import weights_hash
from probagg.dpac.engine import Engine, Machine
from probagg.dpac.matching import MatchedLabels, self_label_stage
from probagg.errors import Interrupted
from probagg.neighbours.smoothing import smoothing_graph
from tests.dpac.test_stages import K, setup_of

MATCHED = "self_label.labels=matched"

pytestmark = pytest.mark.filterwarnings("ignore::probagg.errors.ClusteringWarning")


def test_the_fixed_images_are_those_whose_neighbours_agree_most():
    setup, _ = setup_of(MATCHED)
    stage = MatchedLabels(setup)
    features, P = stage.infer()
    stage.before_epoch(0)
    label = P.argmax(1)
    near = smoothing_graph(features, K, setup.recipe.cluster.metric)
    agreement = (label[near] == label[:, None]).float().mean(1)
    for k in label.unique():
        fixed = stage.rows[(stage.labels == k) & (label[stage.rows] == k)]
        others = [i for i in range(60) if label[i] == k and i not in fixed]
        assert len(fixed) == min(10, int((label == k).sum()))
        assert not others or agreement[fixed].min() >= agreement[others].max()
    assert torch.equal(stage.images, torch.from_numpy(setup.feed.images.array[stage.rows]))


def test_the_loss_is_that_of_fixed_labels_sure_labels_and_improbable_clusters():
    setup, batch = setup_of(MATCHED)
    model, stage = setup.model, MatchedLabels(setup)
    stage.before_epoch(0)
    model.train()
    fixed, labels, mild, strong = views = stage.prepare(batch)
    assert len(fixed) == 3
    found = stage.loss(batch, views)
    logits = model.self_labeller(model.backbone(torch.cat([fixed, mild, strong]))).detach()
    known, weak, learnt = logits.split([3, 20, 20])
    P, Q, running = weak.softmax(1), learnt.softmax(1), stage.running
    sure = negative = 0.0
    for p, q in zip(P, Q, strict=True):
        k = int(p.argmax())
        sure += -q[k].log() / 20 if p[k] >= running[k, k] else 0.0
        wrong = sum(q[j] for j in range(K) if j != k and p[j] < running[k, j])
        negative += -0.5 * torch.log(torch.as_tensor(1.0 - wrong)) / 20
    torch.testing.assert_close(found["fixed"], F.cross_entropy(known, labels), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(found["self_label"], torch.as_tensor(sure), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(found["negative"], torch.as_tensor(negative), atol=1e-4, rtol=1e-3)


def test_the_result_is_the_averaged_weights_and_survives_an_interruption(tmp_path):
    def train(out, stop_at):
        setup, _ = setup_of(MATCHED, "self_label.backbone_rate=0.01")

        def progress(where):
            if (where.epoch, where.step) == stop_at and where.metrics is None:
                engine.stop = "the test"

        engine = Engine(setup.model, seed=0, machine=Machine("cpu"), out=out, progress=progress)
        engine.resume()
        stage = self_label_stage(setup)
        engine.train(stage)
        ours, average = setup.model.backbone.parameters(), stage.average[0].parameters()
        assert all(torch.equal(a, b) for a, b in zip(ours, average, strict=True))
        return weights_hash(setup.model)

    whole = train(tmp_path / "whole", None)
    with pytest.raises(Interrupted):
        train(tmp_path / "run", (0, 2))
    assert train(tmp_path / "run", None) == whole


def test_the_backbone_has_its_own_rate():
    stage = self_label_stage(setup_of(MATCHED, "self_label.backbone_rate=0.01")[0])
    rates = {name.partition(".")[0]: stage.rate(name) for name, _ in stage.model.named_parameters()}
    assert rates == {"backbone": 0.01, "classifier": 1.0, "self_labeller": 1.0, "pretext": 1.0}
