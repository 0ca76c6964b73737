"""Recipes: data in, data out, and errors that name the key."""

import dataclasses
import subprocess
import sys

import pytest

from probagg.dpac.recipe import FOLDER, NAMES, Recipe, RecipeError


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_survives_toml(name):
    recipe = Recipe.of(name)
    assert recipe.name == name
    assert Recipe.from_toml(recipe.to_toml()) == recipe


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith("/paper") and "mnist" not in n])
def test_the_papers_recipes_are_as_printed(name):
    """Section 4: ResNet-34, m = 1.03, tau = 0.5, Adam 1e-4 constant, batch 240, 1,000 + 200."""
    recipe = Recipe.of(name)
    assert recipe.network.backbone == "resnet34"
    assert (recipe.pretrain.epochs, recipe.cluster.epochs) == (1000, 200)
    assert (recipe.cluster.m, recipe.cluster.metric) == (1.03, "sqeuclidean")
    assert (recipe.pretext.task, recipe.pretext.temperature) == ("wcl", 0.5)
    assert recipe.self_label.confidence == 0.95
    assert recipe.views.n_operations == 4
    for stage in (recipe.pretrain, recipe.cluster, recipe.self_label):
        assert (stage.optimizer, stage.learning_rate, stage.schedule) == ("adam", 1e-4, "constant")
        assert (stage.weight_decay, stage.batch_size) == (1e-4, 240)


@pytest.mark.parametrize("kind", ["paper", "fast"])
def test_mnist_is_the_autoencoder_of_table_5b(kind):
    recipe = Recipe.of(f"mnist/{kind}")
    assert (recipe.pretext.task, recipe.network.backbone) == ("autoencoder", "mlp")
    assert (recipe.channels, recipe.views.flip) == (1, False)


def test_a_name_alone_is_the_fast_recipe():
    assert Recipe.of("cifar10") == Recipe.of("cifar10/fast")


@pytest.mark.parametrize("name", NAMES)
def test_fast_recipes_keep_the_loop_of_opa_stable(name):
    """Its gain is small, they start from PAC's clusters, and batches have stable masses."""
    recipe = Recipe.of(name)
    c = recipe.cluster
    calm = name.endswith("/fast") and name != "digits/fast"
    assert (c.start == "pac" and c.stratify) == calm
    assert (recipe.self_label.labels == "neighbours") == calm
    assert (c.learning_rate * c.balance * c.backbone_gradient < 1e-4) == calm


def test_a_recipe_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Recipe.of("digits").channels = 3


def test_a_file_may_change_a_named_recipe(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "cifar10/paper"\n[cluster]\nm = 1.05\n')
    recipe = Recipe.of(path)
    assert recipe == Recipe.of("cifar10/paper").override(["cluster.m=1.05"])


def test_settings_that_depend_on_each_other_need_no_order():
    """An autoencoder has one view, contrast two: neither setting is valid without the other."""
    recipe = Recipe.of("mnist").override(["pretext.task=wcl", "pretext.views=['weak', 'strong']"])
    assert (recipe.pretext.task, len(recipe.pretext.views)) == ("wcl", 2)
    assert recipe.override(["cluster.m=1.1", "cluster.m=1.2"]).cluster.m == 1.2


def test_a_later_base_replaces_keys_of_an_earlier_one(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text("[cluster]\nm = 1.04\nepochs = 7\n")
    recipe = Recipe.from_toml(f"base = ['cifar10/paper', '{mine}']\n[cluster]\nepochs = 9\n")
    expected = ["cluster.m=1.04", "cluster.epochs=9"]
    assert recipe == Recipe.of("cifar10/paper").override(expected)


@pytest.mark.parametrize("base", ["3", "[1]", "'parts/nothing'", "'../recipe'"])
def test_a_base_that_does_not_exist_is_an_error(base):
    with pytest.raises(RecipeError, match=r"base is|There is no recipe"):
        Recipe.from_toml(f"base = {base}")


@pytest.mark.parametrize("name", NAMES)
def test_a_copied_recipe_file_is_the_recipe(name, tmp_path):
    copy = tmp_path / "copy.toml"
    copy.write_text((FOLDER / f"{name}.toml").read_text())
    assert Recipe.of(copy) == Recipe.of(name)


def test_recipes_are_read_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None; from probagg import Recipe; "
        "print(Recipe.of('cifar10').network.backbone)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "resnet34\n"


def test_the_default_deviation_is_that_of_cifar10():
    """Computed over all 60,000 images; there is no second value that could differ."""
    assert Recipe().views.std == Recipe.of("cifar10/paper").views.std == (0.2470, 0.2435, 0.2616)


def test_settings_are_numbers_words_lists_or_booleans():
    recipe = Recipe.of("digits").override(
        ["cluster.objective=pac", "views.crop=[0.5, 1]", "cluster.stratify=true", "name=x"]
    )
    assert recipe.cluster.objective == "pac"
    assert recipe.views.crop == (0.5, 1.0)
    assert recipe.cluster.stratify is True
    assert recipe.name == "x"


def test_lists_of_toml_become_tuples():
    """A frozen recipe is compared and hashed."""
    text = "[views]\ncrop = [0.2, 1.0]\nscale = [1, 1]\n"
    assert Recipe.from_toml(text) == Recipe()
    assert hash(Recipe.from_toml('[views]\noperations = ["Rotate"]'))
    assert not Recipe.from_toml(text).views.moves


def test_a_setting_that_is_not_in_a_list_is_an_error():
    """Its letters would be taken for settings."""
    with pytest.raises(RecipeError, match=r"Pass a list: \['cluster.m=1.05'\]"):
        Recipe.of("digits").override("cluster.m=1.05")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("cluster.mm=1.05", "There is no key 'cluster.mm'. Did you mean 'cluster.m'?"),
        ("clusters.m=1.05", "There is no key 'clusters'. Did you mean 'cluster'?"),
        ("pretrain.lr=1", "There is no key 'pretrain.lr'. The keys are epochs, batch_size"),
        ("cluster.balance=7", "cluster.balance is 7.0, but 0 to 2 is needed"),
        ("network.classifier=[0]", "network.classifier is 0, but must be at least 1"),
        ("pretext.head=[0]", "pretext.head is 0, but must be at least 1"),
        ("pretext.queue_size=0", "pretext.queue_size is 0, but must be at least 1"),
        ("views.size=0", "views.size is 0, but 1 to 1024 is needed"),
        ("cluster.m", "'cluster.m' is not a setting: write key=value"),
        ("cluster=3", "cluster is 3, but a table of keys is needed"),
        ("cluster.m=much", "cluster.m is 'much', but float is needed"),
        ("cluster.m=true", "cluster.m is True, but float is needed"),
        ("cluster.m=1.0", "cluster.m is 1.0, but a number above 1 is needed"),
        ("cluster.epochs=1.5", "cluster.epochs is 1.5, but int is needed"),
        ("cluster.objective=kmeans", "cluster.objective is 'kmeans', but must be one of opa, pac"),
        ("pretext.task=dino", "pretext.task is 'dino', but must be one of wcl, simclr, moco, byol"),
        ("pretext.key_momentum=1.5", "pretext.key_momentum is 1.5, but 0 to 1 is needed"),
        ("pretext.views=['weak']", "compares two views"),
        ("views.crop=[0.5]", "views.crop is [0.5], but tuple[float, float] is needed"),
        (
            "views.operations=['Rotat']",
            "views.operations: there is no 'Rotat'. Did you mean 'Rotate'?",
        ),
        ("pretrain.optimizer=lamb", "pretrain.optimizer is 'lamb', but must be one of adam, sgd"),
        ("pretrain.batch_size=1", "pretrain.batch_size is 1, but must be at least 2"),
        ("self_label.confidence=2", "self_label.confidence is 2.0, but 0 to 1 is needed"),
        ("pretext.head=[]", "pretext.head is empty"),
        ("pretext.temperature=0", "pretext.temperature is 0.0"),
        ("pretrain.warmup_epochs=-3", "pretrain.warmup_epochs is -3, but must be at least 0"),
        ("cluster.space=best", "cluster.space is 'best', which compares PAC's clusters, but start"),
        ("cluster.start=kmeans", "cluster.start is 'kmeans', but must be one of random, pac"),
        (
            "cluster.backbone_gradient=-1",
            "cluster.backbone_gradient is -1.0, but must be at least 0.0",
        ),
        ("self_label.start=random", "There is no key 'self_label.start'"),
        ("channels=4", "channels is 4, but 1 or 3 is needed"),
    ],
)
def test_a_wrong_setting_is_named(setting, words):
    with pytest.raises(RecipeError) as error:
        Recipe.of("digits").override([setting])
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cifra10", "Did you mean 'cifar10/fast'?"),
        ("cifar10/slow", "There is no recipe 'cifar10/slow'"),
        ("nowhere.toml", "nowhere.toml cannot be read"),
    ],
)
def test_an_unknown_recipe_is_named(name, words):
    with pytest.raises(RecipeError, match=words.replace("?", r"\?")):
        Recipe.of(name)


def test_broken_toml_is_an_error_of_the_recipe():
    with pytest.raises(RecipeError, match="not TOML"):
        Recipe.from_toml("[cluster\nm = 1")


def test_a_recipe_is_adapted_to_grey_and_to_small_images():
    recipe = Recipe.of("own").adapt(1, (28, 28))
    assert (recipe.channels, recipe.views.size) == (1, 28)
    assert len(recipe.views.mean) == len(recipe.views.std) == 1
    assert Recipe.of("own").adapt(3, (480, 640)) == Recipe.of("own")
