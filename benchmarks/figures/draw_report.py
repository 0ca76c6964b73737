"""Take docs/report.png from the report page of the digits demo, with playwright and chromium.

make demo && python -m benchmarks draw_report
"""

from __future__ import annotations

import io
import shutil

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from benchmarks import ROOT
from benchmarks.figures.drawing import arguments

WIDTH, HEIGHT, SCALE = 1180, 1130, 0.6
SIDEBAR, HEADER = 240, 70


def picture(page: Page, heading: str) -> Image.Image:
    """Return a screenshot with a heading at the top of the window."""
    page.evaluate(f"document.querySelector('#{heading}').scrollIntoView()")
    page.wait_for_timeout(500)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def main() -> None:
    """Join two screenshots side by side."""
    a = arguments(__doc__, "report.png")
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto((ROOT / "runs" / "demo" / "report.html").resolve().as_uri())
        sides = [picture(page, name) for name in ("summary", "clusters")]
        browser.close()
    sides = [
        sides[0].crop((0, 0, WIDTH, HEIGHT - HEADER)),
        sides[1].crop((SIDEBAR, HEADER, WIDTH, HEIGHT)),
    ]
    sheet = Image.new("RGB", (sum(side.width for side in sides), HEIGHT - HEADER), "white")
    sheet.paste(sides[0], (0, 0))
    sheet.paste(sides[1], (sides[0].width, 0))
    size = tuple(round(SCALE * side) for side in sheet.size)
    sheet.resize(size, Image.Resampling.LANCZOS).quantize(128).save(a.out)
