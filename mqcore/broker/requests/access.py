"""
Requests about access control, which this broker does not have (RocketMQ 4.9.8:
AdminBrokerProcessor, with `aclEnable=false`).
"""
from __future__ import annotations

from mqcore.broker.core import Core
from mqcore.broker.request import Answer, Request, refused
from mqcore.wire.codes import RequestCode, ResponseCode

REFUSALS = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
    RequestCode.DELETE_ACL_CONFIG: ResponseCode.DELETE_ACL_CONFIG_FAILED,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG:
        ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
}


def refuse(core: Core, request: Request) -> Answer:
    """50, 51, 53: refused with codes of their own; 52, which stock never answers: 1."""
    code = REFUSALS.get(RequestCode(request.command.code), ResponseCode.SYSTEM_ERROR)
    return refused(code, "this broker has no access control: aclEnable is false")
