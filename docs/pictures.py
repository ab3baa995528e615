"""
The pictures of docs/page.md and README.md, of a shop at work on a real broker.

    .venv/bin/python -m docs.pictures

Needs Debian's chromium, and what `make tools` installs.
"""
from __future__ import annotations

import io
import tempfile
import time
from pathlib import Path

from PIL import Image

from mqcore.client import Admin
from tests.page.browser import chromium
from tests.page.shop import shop
from tests.support.mqcore_process import mqcore_up
from tests.support.stock import free_port
from tests.support.waiting import wait_until

FOLDER = Path(__file__).parent / "pictures"
WIDTH, HEIGHT = 1_200, 750
COLOURS = 128
LIVE_S = 75                            # of charts
PICTURES = {
    "overview": ("/", "light", "en-GB"), "overview-dark": ("/", "dark", "en-GB"),
    "group": ("/group?name=fraud-check", "light", "en-GB"),
    "message": ("/message?place={place}", "light", "en-GB"),
    "dead-letters": ("/dead-letters/group?name=mailer", "light", "en-GB"),
    "store": ("/store", "dark", "en-GB"), "chinese": ("/groups", "light", "zh-CN"),
}


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, chromium() as browser, mqcore_up(
            Path(folder), {"http.enable": True, "http.listen": f"127.0.0.1:{port}",
                           "broker.name": "broker-a"}) as broker, \
            shop(broker.namesrv_addr, per_second=600), Admin(broker.namesrv_addr) as admin:
        url = f"http://127.0.0.1:{port}"
        watching = browser.new_page()
        watching.goto(url)
        end = time.monotonic() + LIVE_S
        wait_until(lambda: time.monotonic() > end, "charts", 2 * LIVE_S)
        found = admin.read("orders", count=50)[-1]
        place = (f"orders/{found.queue.broker_name}/{found.queue.queue_id}/{found.queue_offset}")
        for name, (path, scheme, locale) in PICTURES.items():
            context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT},
                                          color_scheme=scheme, locale=locale)
            page = context.new_page()
            page.goto(url + path.format(place=place))
            page.wait_for_load_state("load")
            page.get_by_role("table").first.wait_for()
            page.wait_for_timeout(1_500)
            _save(name, page.screenshot())
            context.close()
        watching.close()


def _save(name: str, picture: bytes) -> None:
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS)
    image.save(FOLDER / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
