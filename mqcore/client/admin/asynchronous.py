"""AsyncAdmin: all parts of administration in one client."""
from __future__ import annotations

from mqcore.client.admin.acl import Acl
from mqcore.client.admin.name_servers import NameServerCalls
from mqcore.client.admin.overview import Overview
from mqcore.client.admin.pops import Pops
from mqcore.client.admin.sending import AdminSends
from mqcore.client.admin.statistics import Statistics
from mqcore.client.admin.timed import Timed
from mqcore.client.admin.traces import Traces
from mqcore.client.admin.tracking import Tracking
from mqcore.client.admin.transactions import Transactions


class AsyncAdmin(
    Overview, Pops, Statistics, Transactions, Timed, Traces, AdminSends, Tracking,
    NameServerCalls, Acl,
):
    """Administration of a cluster, for asyncio; use it with `async with`.

    Methods raise ConfigError for arguments that cannot be, before anything is sent. One that asks
    one broker raises its BrokerError or RemotingError, one that asks several: AdminError.
    """
