"""report.html in a browser: no errors, offline, usable by keyboard, safe, fast."""

import pytest

from probagg.app.run.pages import write_report

QUIET = 'document.documentElement.style.scrollBehavior = "auto"'


@pytest.fixture
def opened(new_page):
    """opened(run, **page options) -> the report of a run in a new page."""

    def create(run, **options):
        path = write_report(run)
        page = new_page(**options)
        page.goto(path.as_uri())
        page.evaluate(QUIET)
        page.address = path.as_uri()
        return page

    return create


def focused(page):
    return page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["photo", "digits", "matrix"])
def test_the_page_opens_without_errors_or_requests(kind, theme, opened, request):
    page = opened(request.getfixturevalue(f"{kind}_run"), theme=theme)
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert back == ("rgb(246, 247, 246)" if theme == "light" else "rgb(18, 21, 23)")
    asked = {url.partition("#")[0] for url in page.requests if not url.startswith("data:")}
    assert asked == {page.address}
    assert page.complaints == []


@pytest.mark.parametrize("kind", ["photo", "digits", "matrix", "large"])
def test_a_phone_needs_no_horizontal_scrolling(kind, opened, request):
    page = opened(request.getfixturevalue(f"{kind}_run"), width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Contents").click()
    page.locator("#contents").get_by_role("link", name="The run").click()
    assert not page.locator("#contents").is_visible()
    assert page.complaints == []


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_first_screen_shows_photos_of_every_cluster(width, height, opened, photo_run):
    page = opened(photo_run, width=width, height=height)
    for row in page.locator(".sheet li").all():
        seen = [photo.bounding_box() for photo in row.locator("img").all() if photo.is_visible()]
        assert sum(box["y"] + box["height"] <= height for box in seen if box) >= 6
    page.locator(".sheet a").nth(1).click()
    assert page.url.endswith("#cluster-1")
    assert page.complaints == []


def test_every_picture_is_drawn(opened, photo_run):
    page = opened(photo_run)
    widths = page.evaluate("[...document.querySelectorAll('main img')].map((i) => i.naturalWidth)")
    assert len(widths) > 60
    assert min(widths) > 0


def test_an_image_is_enlarged_by_click_or_enter_and_arrows_go_on(opened, photo_run):
    page = opened(photo_run)
    pictures = page.locator("#cluster-1 .thumbs img")
    pictures.nth(2).click()
    dialog = page.get_by_role("dialog", name=pictures.nth(2).get_attribute("alt"))
    assert dialog.is_visible()
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#viewer-image", "src") == pictures.nth(3).get_attribute("src")
    assert page.text_content("#viewer-title") == pictures.nth(3).get_attribute("alt")
    page.keyboard.press("Escape")
    assert not page.locator("#viewer").is_visible()
    focused = "(picture) => picture === document.activeElement"  # after the event close
    page.wait_for_function(focused, arg=pictures.nth(3).element_handle())
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    assert page.text_content("#viewer-facts") == f"3 of {pictures.count()} here"
    page.get_by_role("button", name="Close").click()
    assert not page.locator("#viewer").is_visible()
    stops = page.locator("#cluster-1 .thumbs img[tabindex='0']").count()
    assert stops == page.locator("#cluster-1 .thumbs").count(), "Tab goes from list to list"
    assert page.complaints == []


def test_hostile_names_are_shown_and_do_nothing(opened, photo_run):
    page = opened(photo_run)
    assert "<img src=x onerror=" in page.locator("main").inner_text()
    assert page.evaluate("window.__pwned") is None
    assert page.locator("img[src='x']").count() == 0
    assert page.title().endswith("clusters - probagg")
    assert page.complaints == []


def test_the_theme_is_switched_by_the_button_and_remembered(opened, photo_run):
    page = opened(photo_run, theme="light")
    page.get_by_role("button", name="Dark theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 23)"
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 23)"
    assert page.get_by_role("button", name="Light theme").is_visible()


def test_the_keyboard_reaches_everything(opened, photo_run):
    page = opened(photo_run)
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the report"
    page.keyboard.press("Enter")
    assert focused(page) == "main"
    page.reload()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert focused(page) == "theme"
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.locator("nav").get_by_role("link", name="Cluster 1").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#cluster-1"
    assert page.locator("#cluster-1").is_visible()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    page.keyboard.press("Tab")
    assert page.evaluate(outline) == "solid"


def test_a_hundred_clusters_are_closed_until_opened(opened, large_run):
    page = opened(large_run)
    assert page.locator(".cluster[open]").count() == 0
    page.locator("nav").get_by_role("link", name="Cluster 42").click()
    page.wait_for_function("document.querySelector('#cluster-42').open")
    top = page.locator("#cluster-42").bounding_box()["y"]
    assert 0 <= top < 400
    page.get_by_role("button", name="Open all").click()
    assert page.locator(".cluster[open]").count() == 100


def test_the_command_is_copied(opened, photo_run):
    page = opened(photo_run)
    page.locator("#copy").click()
    page.wait_for_function("/Copied|Selected/.test(document.querySelector('#copy').textContent)")
    assert page.complaints == []
