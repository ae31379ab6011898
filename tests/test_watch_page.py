"""The page of `srl watch` in a real Chromium without a screen."""

import base64
import dataclasses
import shutil

import imageio.v3 as iio
import numpy as np
import pytest
from test_watch import data, decoded, game

from srl.envs.hide_and_seek.scene import Scene
from srl.evaluation.watch import watch

pytest.importorskip("selenium", reason="selenium drives the browser")
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,960",
)
DEADLINE_SECONDS = 60
MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("there is no Chromium with its driver: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chromium = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield chromium
    chromium.quit()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Two episodes of 20 steps, the last twelve of which are after the preparation."""
    folder = game(tmp_path_factory.mktemp("game"), "horizon=20")
    return watch(folder, episodes=2)


@pytest.fixture
def page(browser, file):
    """The page, freshly loaded, without a word of complaint on its console, then and later."""
    browser.set_window_size(1280, 960)
    browser.get(file.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def part(page, name):
    return page.find_element("id", name)


def step(page):
    return int(part(page, "step").text.split()[1])


def until(page, condition):
    WebDriverWait(page, DEADLINE_SECONDS, 0.02).until(condition)


def press(page, *keys):
    ActionChains(page).send_keys(*keys).perform()


def pixels(page):
    """The canvas, uint8 [height, width, 3]."""
    address = page.execute_script("return player.parts.view.toDataURL('image/png')")
    return iio.imread(base64.b64decode(address.partition(",")[2]), extension=".png")[..., :3]


def place(page, agent):
    """Where an agent is drawn, from the middle of the canvas, in the pixels of the page."""
    return page.execute_script(
        "const { at } = player.transform(), view = player.parts.view;"
        "const [x, y] = at(...stage.place(player.episode, player.time, arguments[0]));"
        "return [x, y].map((c, i) => Math.round(c / devicePixelRatio"
        " - [view.clientWidth, view.clientHeight][i] / 2));",
        agent,
    )


def click(page, x, y):
    """Clicks on the canvas, so far from its middle."""
    view = part(page, "view")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", view)
    ActionChains(page).move_to_element_with_offset(view, x, y).click().perform()


def panel(page):
    return part(page, "panel").text


def test_the_page_shows_the_game(page, file):
    assert page.title == "game"
    picture = pixels(page)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 50
    for color in ((38, 108, 228), (222, 48, 44), (84, 92, 104)):  # both teams, and walls
        assert (picture == color).all(-1).sum() > 20
    assert step(page) == 0
    assert part(page, "status").text.split()[0] == "Preparation"


def test_what_the_page_knows_is_what_was_recorded(page, file):
    for number, episode in enumerate(data(file)["episodes"]):
        page.execute_script("player.open(arguments[0])", number)
        for name, track in episode["tracks"].items():
            wanted = decoded(track)
            for at in (0, 7, 20):
                found = page.execute_script(
                    "return [...player.episode.at(arguments[0], arguments[1])]", name, at
                )
                assert found == pytest.approx(wanted[min(at, len(wanted) - 1)].ravel())


def test_play_goes_on_step_by_step_to_the_end_and_from_there_begins_anew(page):
    page.execute_script(
        "window.shown = []; new MutationObserver(() => shown.push(player.step))"
        ".observe(player.parts.step, {childList: true})"
    )
    for _ in range(2):
        part(page, "play").click()
        until(page, lambda page: step(page) == 20)
        assert part(page, "play").text == "Play"
        steps = page.execute_script("return shown.splice(0)")
        assert steps == sorted(steps)
        assert len(set(steps)) > 5
    assert page.execute_script(
        "const { play } = player.parts, texts = [];"
        "for (let i = 0; i < 2; i++) { play.click(); texts.push(play.textContent); } return texts"
    ) == ["Pause", "Play"]


def test_the_time_line_goes_to_any_step(page):
    line = part(page, "time")
    width = line.size["width"]
    pictures = {}
    for share, wanted in ((0.5, 10), (1.0, 20), (0.0, 0)):
        across = (share - 0.5) * (width - 8)
        ActionChains(page).move_to_element_with_offset(line, round(across), 0).click().perform()
        assert step(page) == wanted
        pictures[wanted] = pixels(page)
    assert (pictures[0] != pictures[20]).any()
    phase = {}
    for at in (8, 9, 20):
        page.execute_script("player.seek(arguments[0])", at)
        phase[at] = part(page, "status").text.split()[0]
    assert phase == {8: "Preparation", 9: "Seeking", 20: "Seeking"}


def test_keys_step_and_play(page):
    press(page, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert step(page) == 2
    press(page, Keys.ARROW_LEFT)
    assert step(page) == 1
    ActionChains(page).key_down(Keys.SHIFT).send_keys(Keys.ARROW_RIGHT).key_up(Keys.SHIFT).perform()
    assert step(page) == 11
    press(page, Keys.HOME)
    assert step(page) == 0
    part(page, "on").click()  # the button keeps the focus, and yet the key plays once
    press(page, Keys.SPACE)
    until(page, lambda page: step(page) > 1)
    press(page, Keys.END)
    assert step(page) == 20
    assert part(page, "play").text == "Play"


def test_a_click_on_an_agent_shows_its_sight_and_what_it_observes(page, file):
    episode = data(file)["episodes"][0]["tracks"]
    at = {name: decoded(track) for name, track in episode.items()}
    names = ["hider_0", "hider_1", "seeker_0", "seeker_1", "box 0", "box 1", "ramp 0"]
    page.execute_script("player.seek(12)")
    plain = pixels(page)
    for agent in range(4):
        click(page, *place(page, agent))
        assert page.execute_script("return player.chosen") == agent
        assert (pixels(page) != plain).mean() > 0.01
        text = panel(page)
        assert names[agent] in text.lower()
        bits = int(at["sees"][12][agent])
        seen = {name for bit, name in enumerate(names) if bits >> bit & 1}
        told = {term.text for term in part(page, "panel").find_elements("tag name", "dt")}
        assert told & set(names) == seen
        assert seen or "no agent and no object" in text
        # Without the sign of a zero, which the page does not show.
        x, y, z = (f"{round(value, 2) + 0.0:.2f}" for value in at["observed"][12][agent][:3])
        assert f"{x} {y} {z}".replace("-", MINUS) in " ".join(text.split())
        force = 0.9 * (at["action"][11][agent][0] - 5) / 5
        assert f"force to the right\n{force:.2f}".replace("-", MINUS) in text
        press(page, Keys.ESCAPE)
        assert page.execute_script("return player.chosen") is None
    assert (pixels(page) == plain).all()


def test_rays_are_drawn_as_far_as_they_reach(page, file):
    episode = data(file)["episodes"][0]["tracks"]
    lidar, agents = (decoded(episode[name])[0] for name in ("rays", "agents"))
    page.execute_script("player.choose(0)")
    picture = pixels(page)
    for ray in range(0, 30, 5):
        angle = 2 * np.pi * ray / 30
        if lidar[0, ray] > 5.9:
            continue
        hit = agents[0, :2] + lidar[0, ray] * np.array([np.cos(angle), np.sin(angle)])
        x, y = page.execute_script("return player.transform().at(...arguments)", *hit)
        around = picture[int(y) - 2 : int(y) + 3, int(x) - 2 : int(x) + 3]
        assert (around == (38, 108, 228)).all(-1).any()


@pytest.mark.parametrize("settings", ["horizon=20", "task='shelter', horizon=5"])
def test_fields_of_view_end_where_they_do_in_films(browser, tmp_path, settings):
    shown = watch(game(tmp_path, settings), episodes=3)
    browser.get(shown.as_uri())
    hidden = 0
    for number, episode in enumerate(data(shown)["episodes"]):
        tracks = {name: decoded(track) for name, track in episode["tracks"].items()}
        at = {field.name: tracks.get(field.name, [0])[0] for field in dataclasses.fields(Scene)}
        shapes = {"walls": 5, "boxes": 7, "ramps": 4, "cylinders": 3}
        scene = Scene(**at | {name: at[name].reshape(-1, n) for name, n in shapes.items()})
        for agent, pose in enumerate(scene.agents):
            script = "return stage.view(new Episode(...arguments[0]), 0, arguments[1], 30, 99)"
            found = browser.execute_script(script, [episode, []], pose.tolist())
            assert np.array(found) == pytest.approx(scene.view(agent, 30.0, 99), abs=1e-9), number
            hidden += (np.linalg.norm(found - pose[:2], axis=1) < 29).sum()
    assert hidden > 20


def test_what_an_agent_sees_of_the_floor_ends_where_its_field_of_view_does(page, file):
    episode = data(file)["episodes"][0]["tracks"]
    poses = decoded(episode["agents"])[0]
    origin, unit = (
        np.array(page.execute_script("return player.transform().at(...arguments)", *corner))
        for corner in ((0, 0), (1, 1))
    )
    for agent, color in ((0, (38, 108, 228)), (2, (222, 48, 44))):
        page.execute_script("player.choose(arguments[0])", agent)
        edge = page.execute_script(
            "return stage.view(player.episode, 0, arguments[0], 30, 721)", poses[agent].tolist()
        )
        tint = np.array((246, 247, 249)) * (1 - 22 / 255) + np.array(color) * 22 / 255
        rows, columns = np.nonzero((abs(pixels(page) - tint) < 2).all(-1))
        assert len(rows) > 1000
        away = (np.stack([columns, rows], 1) + 0.5 - origin) / (unit - origin) - poses[agent, :2]
        sides = np.array(edge) - poses[agent, :2]
        aside = away @ (sides / np.linalg.norm(sides, axis=1, keepdims=True)).T
        nearest = sides[aside.argmax(1)]
        assert (np.linalg.norm(away, axis=1) < np.linalg.norm(nearest, axis=1) + 0.05).mean() > 0.99


def test_agents_can_be_chosen_by_their_names_and_left_by_a_click_beside_them(page):
    buttons = part(page, "agents").find_elements("tag name", "button")
    assert [button.text for button in buttons] == ["hider_0", "hider_1", "seeker_0", "seeker_1"]
    buttons[3].click()
    assert page.execute_script("return player.chosen") == 3
    assert buttons[3].get_attribute("aria-pressed") == "true"
    click(page, 4 - part(page, "view").size["width"] // 2, 0)  # beyond the outer wall
    assert page.execute_script("return player.chosen") is None


def test_seekers_actions_in_the_preparation_are_said_to_have_no_effect(page):
    for step, wasted in ((5, True), (8, True), (9, False)):  # the last is the first that counts
        page.execute_script(f"player.seek({step}); player.choose(2)")
        assert ("without effect" in panel(page)) == wasted
    page.execute_script("player.seek(5)")
    page.execute_script("player.choose(0)")
    assert "without effect" not in panel(page)
    page.execute_script("player.seek(0)")
    assert "none yet" in panel(page)


def test_another_episode_can_be_chosen(page, file):
    first = pixels(page)
    for option, episode in zip(
        Select(part(page, "episode")).options, data(file)["episodes"], strict=True
    ):
        seen = np.broadcast_to(decoded(episode["tracks"]["seen"]), (21, 1))
        unseen = 100 * (1 - seen[9:].mean())  # of the twelve steps after the preparation
        assert option.text.endswith(f"hiders unseen {np.floor(unseen + 0.5):.0f} %")
    press(page, Keys.END)
    Select(part(page, "episode")).select_by_index(1)
    assert step(page) == 0
    assert (pixels(page) != first).any()


@pytest.mark.parametrize(
    ("width", "height", "density"), [(390, 844, 3), (820, 1100, 2), (1600, 1000, 1)]
)
def test_nothing_sticks_out_and_all_is_sharp_on_phones_and_on_large_screens(
    width, height, density, page
):
    metrics = {
        "width": width,
        "height": height,
        "deviceScaleFactor": density,
        "mobile": width < 500,
    }
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page.refresh()
        wide, inner = page.execute_script(
            "return [document.documentElement.scrollWidth, window.innerWidth]"
        )
        assert wide <= inner == width
        shown = page.execute_script("return player.parts.view.clientWidth")
        assert shown > 0.45 * min(width, height)
        assert pixels(page).shape[1] == density * shown
        click(page, *place(page, 1))
        assert page.execute_script("return player.chosen") == 1
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
