"""Access files of brokers, and who may use this page."""
from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from mqcore.admin.nouns import acl as nouns
from mqcore.page.context import Page


async def access(page: Page) -> Response:
    """The versions of access files; brokers without access control refuse to say."""
    answer = await page.ask(nouns.versions_command, "mqcore acl versions", broker=None,
                            cluster=None)
    users = [line.partition(":")[0] for line in page.site.users.lines]
    return page.render("access.html", "Access", {"answer": answer}, users=users,
                       accounts=page.site.users.account is not None,
                       listing=page.listing(answer, 0, name="broker"), status=HTTPStatus.OK)
