"""Self-labelling by a teacher against a transcription."""

import copy
from functools import partial

import pytest
import torch
from small_training import K, infer_all, setup_of, train_with_a_stop, weights_hash

from benchmarks.paper.teacher import TeacherStage
from probagg.dpac.feed import estimate_statistics
from probagg.dpac.pretext import update_average
from probagg.errors import Interrupted
from probagg.neighbours.smoothing import smoothing_graph


def started_teacher():
    """A stage with fixed labels, its model and one batch."""
    setup, batch = setup_of()
    stage = TeacherStage(setup)
    stage.before_epoch(0)
    setup.model.train()
    return stage, setup, batch


def test_the_images_whose_neighbours_agree_most_keep_their_labels():
    setup, _ = setup_of()
    stage = TeacherStage(setup)
    estimate_statistics(setup.model.backbone, setup.views, setup.feed)
    features, P = infer_all(setup)
    label = P.argmax(1)
    stage.before_epoch(0)
    near = smoothing_graph(features, K, setup.recipe.cluster.metric)
    agreement = (label[near] == label[:, None]).float().mean(1)
    for k in label.unique():
        mine, fixed = label == k, stage.fixed == k
        assert fixed.sum() == -(-int(mine.sum()) // 6)
        assert (mine | ~fixed).all()
        assert agreement[fixed].min() >= agreement[mine & ~fixed].max()
    kept = stage.fixed.clone()
    stage.before_epoch(1)
    assert torch.equal(stage.fixed, kept)


def test_the_head_begins_with_the_fixed_labels():
    stage, setup, _ = started_teacher()
    fixed = stage.fixed >= 0
    features, _ = infer_all(setup)
    answers = setup.model.self_labeller(features[fixed]).argmax(1)
    assert torch.equal(answers, stage.fixed[fixed])


def test_strong_views_learn_fixed_labels_and_confident_ones_of_the_teacher():
    stage, setup, batch = started_teacher()
    stage.fixed[batch.samples[:5]] = torch.tensor([0, 1, 2, 0, 1])
    stage.fixed[batch.samples[5:]] = -1
    with torch.no_grad():  # the head was fitted to rows that are all confident
        stage.teacher[1].weight.mul_(0.02)
    mild, strong = views = stage.prepare(batch)
    teacher = copy.deepcopy(stage.teacher)
    update_average(teacher, stage.student, stage.momentum)
    P = teacher[1](teacher[0](mild)).softmax(1)
    middle = float(P[5:].amax(1).median())
    stage.recipe = stage.recipe.override([f"self_label.confidence={middle - 1e-7}"])
    logits = setup.model.self_labeller(setup.model.backbone(strong)).detach()
    found = stage.loss(batch, views)
    learnt = logits.log_softmax(1)
    fixed = -sum(learnt[i, stage.fixed[batch.samples[i]]] for i in range(5)) / 5
    sure = [i for i in range(5, 20) if P[i].max() >= middle]
    assert len(sure) == 8
    others = -sum(learnt[i, P[i].argmax()] for i in sure) / 20
    torch.testing.assert_close(found["fixed"], fixed, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(found["self_label"], others, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(found["confident"], torch.tensor(len(sure) / 20))


def test_the_teacher_averages_the_student_and_gets_no_gradient():
    stage, setup, batch = started_teacher()
    before = [p.clone() for p in stage.teacher.parameters()]
    with torch.no_grad():
        for p in stage.student.parameters():
            p.add_(1.0)
    stage.loss(batch, stage.prepare(batch))["loss"].backward()
    for old, new in zip(before, stage.teacher.parameters(), strict=True):
        torch.testing.assert_close(new, old + (1.0 - stage.momentum))
        assert new.grad is None
    assert all(p.grad is not None for p in setup.model.self_labeller.parameters())


def test_the_result_is_the_teacher_and_survives_an_interruption(tmp_path):
    def train(folder, stop_at=None):
        make = partial(TeacherStage, backbone_rate=0.1)
        setup, stage = train_with_a_stop(tmp_path / folder, (), make, stop_at)
        pairs = zip(setup.model.backbone.parameters(), stage.teacher[0].parameters(), strict=True)
        assert all(torch.equal(ours, teachers) for ours, teachers in pairs)
        assert setup.model.self_labelled
        found, _ = infer_all(setup)
        estimate_statistics(setup.model.backbone, setup.views, setup.feed)
        assert torch.equal(infer_all(setup)[0], found)  # they are those of clean views already
        return weights_hash(setup.model)

    with pytest.raises(Interrupted):
        train("stopped", (0, 2))
    assert train("stopped") == train("whole")


def test_the_backbone_has_its_own_rate():
    stage = TeacherStage(setup_of()[0], 0.01)
    rates = {name.partition(".")[0]: stage.rate(name) for name, _ in stage.model.named_parameters()}
    assert rates == {"backbone": 0.01, "classifier": 1.0, "self_labeller": 1.0, "pretext": 1.0}
