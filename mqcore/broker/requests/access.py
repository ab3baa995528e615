"""
Requests about access control (RocketMQ 4.9.8: AdminBrokerProcessor, PlainPermissionManager):
accounts and the global white list are changed in their files, which are replaced whole.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mqcore.acl import changes
from mqcore.acl.changes import AccountChange, ChangeError
from mqcore.acl.followed import NotTaken
from mqcore.acl.nodes import AclFileError
from mqcore.acl.rules import AclFile, Rules
from mqcore.broker.core import Core
from mqcore.broker.request import Answer, Request, answers, refused
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode, ResponseCode
from mqcore.wire.topics import DataVersion

Change = tuple[Path, dict[str, Any]]          # a file, and what is in it from now on
Values = dict[str, object]                    # for the audit
REFUSALS = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
    RequestCode.DELETE_ACL_CONFIG: ResponseCode.DELETE_ACL_CONFIG_FAILED,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG:
        ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
}


@answers(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG)
def update_account(core: Core, request: Request) -> Answer | None:
    """UPDATE_AND_CREATE_ACL_CONFIG (50): into the account's file, a new one into plain_acl.yml."""
    def change(rules: Rules) -> Change:
        wanted = AccountChange.read(request.command.ext or {})
        path = rules.file_of.get(wanted.access_key, str(core.access.files.folder.default_file))
        return Path(path), changes.with_account(_file(rules, path), wanted,
                                                core.wall_ms(request.now_ms))

    return _changed(core, request, change, _account_of(request))


@answers(RequestCode.DELETE_ACL_CONFIG)
def delete_account(core: Core, request: Request) -> Answer | None:
    """DELETE_ACL_CONFIG (51)."""
    def change(rules: Rules) -> Change:
        key = (request.command.ext or {}).get("accessKey") or ""
        if key not in rules.file_of:
            raise ChangeError(f"there is no account with accessKey {key[:64]}")
        path = rules.file_of[key]
        return Path(path), changes.without_account(_file(rules, path), key,
                                                   core.wall_ms(request.now_ms))

    return _changed(core, request, change, _account_of(request))


@answers(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG)
def update_white(core: Core, request: Request) -> Answer | None:
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53): of one of the files, by its path, or plain_acl.yml."""
    def change(rules: Rules) -> Change:
        ext = request.command.ext or {}
        if ext.get("globalWhiteAddrs") is None:
            raise ChangeError("globalWhiteAddrs is missing: expected address patterns")
        path = ext.get("aclFileFullPath") or ""
        default = str(core.access.files.folder.default_file)
        if path.strip() and path != default and path not in {file.path for file in rules.files}:
            raise ChangeError(f"{path[:200]!a}: expected the path of an access file")
        path = (path.strip() and path) or default
        return Path(path), changes.with_white(_file(rules, path), ext["globalWhiteAddrs"] or "",
                                              core.wall_ms(request.now_ms))

    return _changed(core, request, change, lambda before, after: (_white(before), _white(after)))


@answers(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
def versions(core: Core, request: Request) -> Answer:
    """GET_BROKER_CLUSTER_ACL_INFO (52), which stock leaves without answer where there is no ACL."""
    if not core.access.on:
        return _without(request)
    files = core.access.rules.files
    default = changes.newest(files, str(core.access.files.folder.default_file))
    return Answer(ResponseCode.SUCCESS, ext={
        "version": _text(default),
        "allAclFileVersion": fastjson.dumps(
            {file.path: file.version.as_json() for file in files}).decode(),
        "brokerName": core.settings.broker.name,
        "brokerAddr": core.settings.advertised_addr,
        "clusterName": core.settings.broker.cluster,
    })


def _text(version: DataVersion) -> str:
    return fastjson.dumps(version.as_json()).decode()


def _file(rules: Rules, path: str) -> AclFile:
    return next((file for file in rules.files if file.path == path),
                AclFile(path, (), (), DataVersion(timestamp=0), {}))


def _account_of(request: Request) -> Callable[[Rules, Rules], tuple[Values, Values]]:
    """An account's values before and after a change, without the secret; that it is another one."""
    key = (request.command.ext or {}).get("accessKey") or ""

    def values(before: Rules, after: Rules) -> tuple[Values, Values]:
        one, other = changes.account_values(before, key), changes.account_values(after, key)
        if one and other and before.accounts[key].secret_key != after.accounts[key].secret_key:
            other["secretKey"] = "another one"
        return one, other

    return values


def _white(rules: Rules) -> Values:
    return {file.path: file.document.get("globalWhiteRemoteAddresses") for file in rules.files}


def _without(request: Request) -> Answer:
    code = REFUSALS.get(RequestCode(request.command.code), ResponseCode.SYSTEM_ERROR)
    return refused(code, "this broker has no access control: aclEnable is false")


def _changed(
    core: Core, request: Request, change: Callable[[Rules], Change],
    values: Callable[[Rules, Rules], tuple[Values, Values]],
) -> Answer | None:
    """
    One change after the other, beside the requests; answered when it is in force. values: before
    and after, for the audit.
    """
    access = core.access
    files = access.files
    if not access.on:
        return _without(request)
    code = REFUSALS[RequestCode(request.command.code)]
    found: list[Rules | str] = []
    later = False
    answers: list[Answer] = []

    def steps() -> Iterator[None]:
        try:
            path, document = change(files.read_to_change())
            yield
            files.folder.write(path, document)
            yield
            found.append(files.read())
        except (AclFileError, ChangeError) as error:
            found.append(str(error))

    def done(error: OSError | None) -> None:
        answer = Answer(ResponseCode.SUCCESS)
        try:
            if error is not None:
                answer = refused(code, f"access files cannot be read or written: {error.strerror}")
            elif isinstance(found[0], Rules):
                before = access.rules
                files.take(found[0])
                access.changed(request, *values(before, access.rules))
            else:
                answer = refused(code, found[0])
        except NotTaken as full:
            answer = refused(code, str(full))
        if later:
            core.answer(request, answer)
        else:
            answers.append(answer)

    access.change_count += 1
    core.saving.save(f"access change {access.change_count}", steps, done)
    later = True
    return answers[0] if answers else None
