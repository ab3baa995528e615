"""Our name server and our client around an unmodified stock broker."""
import asyncio

import pytest

from tests.client.exchanges import EXCHANGES
from tests.support.mqcore_process import mqcore_namesrv
from tests.support.stock import SMALL_STOCK, require_stock, start_broker

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A name server of ours that knows a stock broker."""
    require_stock()
    folder = tmp_path_factory.mktemp("stock")
    with mqcore_namesrv(folder / "namesrv") as name_server:
        broker = start_broker(folder / "broker", name_server.namesrv_addr, SMALL_STOCK)
        try:
            yield name_server.namesrv_addr
        finally:
            broker.kill()


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda one: one.__name__)
def test_a_stock_broker_serves_our_client(address, exchange):
    asyncio.run(exchange(address))
