"""Access keys and white lists of brokers (client.md 6.4)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from mqcore.client.admin import arguments
from mqcore.client.admin.link import Found, Link, Target, limited
from mqcore.client.core.options import check_topic
from mqcore.client.errors import ClientError, ConfigError
from mqcore.wire import fastjson
from mqcore.wire.codes import KEY_LENGTH_MIN, RequestCode
from mqcore.wire.topics import DataVersion

PERMS = ("DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB")


class AclVersion(Struct, frozen=True):
    """The version of a broker's access settings, and that of each of its files."""

    broker_name: str
    address: str
    cluster: str
    version: DataVersion
    files: tuple[tuple[str, DataVersion], ...]


class Acl(Link):
    """What AsyncAdmin does with access settings; brokers without them refuse (209 to 211)."""

    @limited
    async def update_acl(
        self, access_key: str, secret_key: str, *, white_address: str | None = None,
        admin: bool | None = None,
        default_topic_perm: str | None = None, default_group_perm: str | None = None,
        topic_perms: Mapping[str, str] | None = None,
        group_perms: Mapping[str, str] | None = None, broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Make an account, or change what is given of one (updateAclConfig).

        access_key, secret_key   at least 7 characters; a change needs both as well
        white_address            addresses that need no signature: `10.0.0.*`, `10.0.0.1,10.0.0.2`
        admin                    may change topics, groups and settings
        default_topic_perm, default_group_perm
                                 DENY, PUB, SUB or PUB|SUB, for what ..._perms do not name
        topic_perms, group_perms a permission for each topic or group
        broker, cluster          as of `create_topic`
        Returns the names of the brokers. Raises ConfigError, BrokerError, AdminError.
        """
        _check_key(access_key, "access_key")
        _check_key(secret_key, "secret_key")
        if white_address is not None:
            arguments.text(white_address, "white_address")
        if admin is not None:
            arguments.flag(admin, "admin")
        for name, value in (("default_topic_perm", default_topic_perm),
                            ("default_group_perm", default_group_perm)):
            if value is not None:
                arguments.one_of(value, name, PERMS)
        ext: dict[str, str | None] = {
            "accessKey": access_key, "secretKey": secret_key, "whiteRemoteAddress": white_address,
            "admin": None if admin is None else str(admin).lower(),
            "defaultTopicPerm": default_topic_perm, "defaultGroupPerm": default_group_perm,
            "topicPerms": _perms(topic_perms, "topic_perms"),
            "groupPerms": _perms(group_perms, "group_perms"),
        }
        return await self._acl("changing an account", RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
                               ext, broker, cluster)

    @limited
    async def delete_acl(
        self, access_key: str, *, broker: str | None = None, cluster: str | None = None
    ) -> tuple[str, ...]:
        """Delete the account of an access key.

        access_key        of the account
        broker, cluster   as of `create_topic`
        Returns the names of the brokers. Raises BrokerError 210 when there is none.
        """
        return await self._acl(
            "deleting an account", RequestCode.DELETE_ACL_CONFIG,
            {"accessKey": arguments.text(access_key, "access_key")}, broker, cluster)

    @limited
    async def update_white_addresses(
        self, addresses: Sequence[str], *, file: str | None = None, broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Set the addresses that need no account at all (updateGlobalWhiteAddr).

        file              the settings file to change, a path on the broker's machine; None: the
                          default one
        broker, cluster   as of `create_topic`
        Returns the brokers' names. Raises ConfigError, BrokerError, AdminError.
        """
        listed = arguments.names(addresses, "addresses")
        return await self._acl(
            "changing white addresses", RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
            {"globalWhiteAddrs": ",".join(listed), "aclFileFullPath": file or ""}, broker, cluster)

    @limited
    async def acl_versions(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> Found[AclVersion]:
        """Which access settings brokers have (clusterAclConfigVersion).

        broker, cluster   as of `create_topic`
        A stock broker without access control does not answer: raises RequestTimeout.
        """
        async def one(target: Target) -> AclVersion:
            answer = await self._ask(target.address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
            ext = answer.ext or {}
            files = _json(ext.get("allAclFileVersion") or "{}", target)
            return AclVersion(
                ext.get("brokerName") or target.name, ext.get("brokerAddr") or target.address,
                ext.get("clusterName") or "",
                DataVersion.from_json(_json(ext.get("version") or "{}", target)),
                tuple((str(path), DataVersion.from_json(value))
                      for path, value in sorted(files.items(), key=str)))

        answers, failures = await self._read(
            "versions of access settings", await self._masters(broker, cluster), one)
        return Found(tuple(version for _, version in answers), failures)

    async def _acl(
        self, what: str, code: RequestCode, ext: dict[str, str | None], broker: str | None,
        cluster: str | None,
    ) -> tuple[str, ...]:
        targets = await self._masters(broker, cluster)
        await self._write(what, targets,
                          lambda target: self._ask(target.address, code, dict(ext)))
        return tuple(target.name for target in targets)


def _json(text: str, target: Target) -> dict[object, object]:
    try:
        value = fastjson.loads(text.encode())
    except fastjson.JsonError as error:
        raise ClientError(f"answer of {target}: {error}", broker=target.address) from error
    if not isinstance(value, dict):
        raise ClientError(f"answer of {target}: expected an object", broker=target.address)
    return value


def _check_key(value: str, parameter: str) -> None:
    if len(arguments.text(value, parameter)) < KEY_LENGTH_MIN:
        raise ConfigError(f"{parameter}: expected at least {KEY_LENGTH_MIN} characters,"
                          f" found {len(value)}")


def _perms(perms: Mapping[str, str] | None, parameter: str) -> str | None:
    if perms is None:
        return None
    for name, perm in arguments.pairs(perms, parameter).items():
        check_topic(name, parameter)
        arguments.one_of(perm, f"{parameter}[{name!r}]", PERMS)
    return ",".join(f"{name}={perm}" for name, perm in perms.items())
