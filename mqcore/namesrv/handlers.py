"""What each request code means to a name server (remoting.md 4.7, broker.md 13).

Pure apart from the key-value and runtime files: a request and `now_ms` in, a response out.
RocketMQ 4.9.8: DefaultRequestProcessor.
"""
from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

from mqcore.acl.unserved import Unserved
from mqcore.namesrv.kv import ORDER_TOPICS, KeyValues
from mqcore.namesrv.routes import BrokerIdentity, RouteTables
from mqcore.namesrv.runtime import NotSettable, RuntimeConfig
from mqcore.turns import finished
from mqcore.wire import fastjson
from mqcore.wire.codes import LanguageCode, RequestCode, ResponseCode, version_ordinal
from mqcore.wire.command import Command, response
from mqcore.wire.numbers import whole_number
from mqcore.wire.printable import label_trouble
from mqcore.wire.topics import DataVersion, decode_registration_in_turns

_log = logging.getLogger("namesrv")
_STRICT_ROUTE_VERSION = version_ordinal("4.9.4")        # from here on clients read strict JSON
_VERSION_5 = version_ordinal("5.0.0")                  # from here on clients know acting masters
_REGISTRATION_BODY_VERSION = version_ordinal("3.0.11")  # before: the bare topic table

LABEL_BYTES_MAX = 255
SMALL_BODY_MAX = 1 << 16                # bytes of one that is read in one piece

# What walks a table pauses every millisecond or so (mqcore.turns); it answers from the table as it
# was when the request came, except that entries may change until they are written.
Job = Generator[None, None, Command]
Handler = Callable[[Command, "Caller", int], Command | Job]


@dataclass(slots=True, frozen=True)
class Caller:
    """
    The sender of a request: the number of its connection, and the network whose share of the
    key-values it may use; "": no share, the whole table.
    """

    connection: int
    network: str = ""


class BadField(ValueError):
    """A header field, or a body, is missing or is not what it should be; the text names it."""


def _need(request: Command, name: str) -> str:
    value = (request.ext or {}).get(name)
    if value is None:
        raise BadField(f"header field {name}: expected a value, found none")
    return value


def _need_number(request: Command, name: str, bits: int) -> int:
    text = _need(request, name)
    value = whole_number(text, -(1 << bits - 1), (1 << bits - 1) - 1)
    if value is None:
        raise BadField(f"header field {name} = {text[:32]!r}: expected a {bits}-bit number")
    return value


def _flag(request: Command, name: str) -> bool:
    return ((request.ext or {}).get(name) or "").lower() == "true"


def _identity(request: Command) -> BrokerIdentity:
    return BrokerIdentity(
        cluster=_need_label(request, "clusterName"), name=_need_label(request, "brokerName"),
        address=_need_label(request, "brokerAddr"),
        broker_id=_need_number(request, "brokerId", 64),
    )


def _need_label(request: Command, name: str) -> str:
    """A name that the tables of all clients will hold."""
    value = _need(request, name)
    trouble = label_trouble(value, LABEL_BYTES_MAX)
    if trouble is not None:
        raise BadField(f"header field {name} = {value[:80]!r}: expected {trouble}")
    return value


def _small_body(request: Command) -> bytes:
    if len(request.body) > SMALL_BODY_MAX:
        raise BadField(f"a body of {len(request.body)} bytes: expected at most {SMALL_BODY_MAX}")
    return request.body


class Handlers:
    """Answers requests from the three tables that it is given."""

    def __init__(self, routes: RouteTables, key_values: KeyValues, runtime: RuntimeConfig) -> None:
        self.routes = routes
        self._key_values = key_values
        self._runtime = runtime
        self.unserved = Unserved(_log)
        self._all_names = -1, b""          # version of the names, and the answer that has them
        code = RequestCode
        self._by_code: dict[int, Handler] = {
            code.PUT_KV_CONFIG: self._put_kv,
            code.GET_KV_CONFIG: self._get_kv,
            code.DELETE_KV_CONFIG: self._delete_kv,
            code.GET_KVLIST_BY_NAMESPACE: self._list_kv,
            code.REGISTER_BROKER: self._register,
            code.UNREGISTER_BROKER: self._unregister,
            code.QUERY_DATA_VERSION: self._query_version,
            code.GET_ROUTEINFO_BY_TOPIC: self._route,
            code.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            code.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            code.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            code.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            code.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            code.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            code.GET_UNIT_TOPIC_LIST: self._unit_topics,
            code.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_sub_topics,
            code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_sub_only_topics,
            code.UPDATE_NAMESRV_CONFIG: self._update_config,
            code.GET_NAMESRV_CONFIG: self._get_config,
        }

    def knows(self, code: int) -> bool:
        """Whether requests with this code are a name server's."""
        return code in self._by_code

    def handle(self, request: Command, connection: int, now_ms: int) -> Command:
        """The response to a request that came over `connection` (a number) at `now_ms`.

        A peer's mistake is answered with code 1 and a remark that names it. Stock gives no answer
        at all to an unknown code; a caller then waits for its timeout, so this one gets code 3.
        """
        outcome = self.begin(request, Caller(connection), now_ms)
        return finished(outcome) if isinstance(outcome, Generator) else outcome

    def begin(self, request: Command, caller: Caller, now_ms: int) -> Command | Job:
        """`handle`, or the job that is left."""
        handler = self._by_code.get(request.code)
        if handler is None:
            self.unserved.note(request.code, "")
            return response(
                request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f" request type {request.code} not supported",
            )
        try:
            outcome = handler(request, caller, now_ms)
            return _checked(request, outcome) if isinstance(outcome, Generator) else outcome
        except (ValueError, OSError) as error:      # bad fields, bad bodies, full tables, the disk
            return response(request, ResponseCode.SYSTEM_ERROR, str(error))

    def values(
        self, request: Command, answer: Command | None = None
    ) -> dict[str, object] | None:
        """
        Values that an administrator's request changes, for the audit; answer: to that request,
        which is done. None: a request of another kind.
        """
        ext, code = request.ext or {}, RequestCode
        if request.code in (code.PUT_KV_CONFIG, code.DELETE_KV_CONFIG):
            namespace, key = ext.get("namespace") or "", ext.get("key") or ""
            return {f"{namespace}/{key}": self._key_values.get(namespace, key)}
        if request.code == code.UPDATE_NAMESRV_CONFIG:
            return self._runtime.settable()
        if request.code == code.DELETE_TOPIC_IN_NAMESRV:
            return {"brokers": self.routes.brokers_of(ext.get("topic") or "")}
        if request.code in (code.WIPE_WRITE_PERM_OF_BROKER, code.ADD_WRITE_PERM_OF_BROKER):
            return {} if answer is None else dict(answer.ext or {})
        return None

    # -- key-values -------------------------------------------------------------------------------

    def _put_kv(self, request: Command, caller: Caller, now_ms: int) -> Command:
        self._key_values.put(
            _need(request, "namespace"), _need(request, "key"), _need(request, "value"),
            caller.network)
        return response(request, ResponseCode.SUCCESS)

    def _get_kv(self, request: Command, caller: Caller, now_ms: int) -> Command:
        namespace, key = _need(request, "namespace"), _need(request, "key")
        value = self._key_values.get(namespace, key)
        if value is None:
            return response(
                request, ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {namespace} Key: {key}", {},
            )
        return response(request, ResponseCode.SUCCESS, ext={"value": value})

    def _delete_kv(self, request: Command, caller: Caller, now_ms: int) -> Command:
        self._key_values.delete(_need(request, "namespace"), _need(request, "key"))
        return response(request, ResponseCode.SUCCESS)

    def _list_kv(self, request: Command, caller: Caller, now_ms: int) -> Command | Job:
        namespace = _need(request, "namespace")
        body = self._key_values.namespace_body(namespace)
        if body is None:
            return response(
                request, ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}"
            )
        return response(request, ResponseCode.SUCCESS, body=body)

    # -- brokers ----------------------------------------------------------------------------------

    def _register(self, request: Command, caller: Caller, now_ms: int) -> Job:
        who = _identity(request)
        if (request.ext or {}).get("bodyCrc32") is not None:
            crc = _need_number(request, "bodyCrc32", 32)
            if crc != 0 and crc != zlib.crc32(request.body) & 0x7FFF_FFFF:
                raise BadField("header field bodyCrc32: does not match the body")
        table = yield from decode_registration_in_turns(
            request.body, compressed=_flag(request, "compressed"),
            bare=request.version < _REGISTRATION_BODY_VERSION,
            topic_count_max=self.routes.topic_count_max,
        )
        ha_address = (request.ext or {}).get("haServerAddr") or ""
        if ha_address:
            _need_label(request, "haServerAddr")
        master = yield from self.routes.register(who, ha_address, table, caller.connection, now_ms)
        return response(
            request, ResponseCode.SUCCESS,
            ext={"haServerAddr": master.ha_address, "masterAddr": master.address},
            body=self._key_values.namespace_body(ORDER_TOPICS) or b"",
        )

    def _unregister(self, request: Command, caller: Caller, now_ms: int) -> Job:
        yield from self.routes.unregister(_identity(request))
        return response(request, ResponseCode.SUCCESS)

    def _query_version(self, request: Command, caller: Caller, now_ms: int) -> Command:
        version = DataVersion.from_json(fastjson.loads(_small_body(request) or b"{}"))
        changed, stored = self.routes.query_version(_identity(request).address, version, now_ms)
        return response(
            request, ResponseCode.SUCCESS, ext={"changed": "true" if changed else "false"},
            body=b"" if stored is None else fastjson.dumps(stored.as_json()),
        )

    def _wipe_write_perm(self, request: Command, caller: Caller, now_ms: int) -> Job:
        count = yield from self.routes.set_writable(_need(request, "brokerName"), writable=False)
        return response(request, ResponseCode.SUCCESS, ext={"wipeTopicCount": str(count)})

    def _add_write_perm(self, request: Command, caller: Caller, now_ms: int) -> Job:
        count = yield from self.routes.set_writable(_need(request, "brokerName"), writable=True)
        return response(request, ResponseCode.SUCCESS, ext={"addTopicCount": str(count)})

    # -- routes and lists -------------------------------------------------------------------------

    def _route(self, request: Command, caller: Caller, now_ms: int) -> Job:
        topic = _need(request, "topic")
        route = yield from self.routes.route(topic)
        if route is None:
            return response(
                request, ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}",
            )
        if self._runtime.settings.order_message_enable:
            route = replace(route, order_conf=self._key_values.get(ORDER_TOPICS, topic))
        strict = request.version >= _STRICT_ROUTE_VERSION or _flag(
            request, "acceptStandardJsonOnly"
        )
        # Java's client of 5.x does without, and gets what stock's name server says
        for_5 = request.version >= _VERSION_5 and request.language is not LanguageCode.JAVA
        body = yield from route.encode_in_turns(strict=strict, for_5=for_5)
        return response(request, ResponseCode.SUCCESS, body=body)

    def _cluster_info(self, request: Command, caller: Caller, now_ms: int) -> Job:
        return _large(request, self.routes.cluster_info())

    def _all_topics(self, request: Command, caller: Caller, now_ms: int) -> Job:
        """The bytes of the last answer are kept: one that nothing has changed since is the same."""
        version = self.routes.names_version
        if self._all_names[0] != version:
            body = yield from fastjson.dumps_in_turns(
                {"brokerAddr": None, "topicList": self.routes.topic_names()})
            if self._all_names[0] < version:
                self._all_names = version, body
            return response(request, ResponseCode.SUCCESS, body=body)
        return response(request, ResponseCode.SUCCESS, body=self._all_names[1])

    def _topics_of_cluster(self, request: Command, caller: Caller, now_ms: int) -> Job:
        return _topic_list(request, self.routes.topics_of_cluster(_need(request, "cluster")))

    def _system_topics(self, request: Command, caller: Caller, now_ms: int) -> Job:
        names, broker_address = self.routes.system_names()
        return _large(request, {"brokerAddr": broker_address, "topicList": names})

    def _unit_topics(self, request: Command, caller: Caller, now_ms: int) -> Job:
        return _topic_list(request, self.routes.unit_topics(unit=True, subscribed=None))

    def _unit_sub_topics(self, request: Command, caller: Caller, now_ms: int) -> Job:
        return _topic_list(request, self.routes.unit_topics(unit=None, subscribed=True))

    def _unit_sub_only_topics(self, request: Command, caller: Caller, now_ms: int) -> Job:
        return _topic_list(request, self.routes.unit_topics(unit=False, subscribed=True))

    def _delete_topic(self, request: Command, caller: Caller, now_ms: int) -> Job:
        yield from self.routes.delete_topic(
            _need(request, "topic"), (request.ext or {}).get("clusterName"))
        return response(request, ResponseCode.SUCCESS)

    # -- configuration ----------------------------------------------------------------------------

    def _update_config(self, request: Command, caller: Caller, now_ms: int) -> Command:
        try:
            self._runtime.update(_small_body(request))
        except NotSettable as error:
            return response(request, ResponseCode.NO_PERMISSION, str(error))
        return response(request, ResponseCode.SUCCESS)

    def _get_config(self, request: Command, caller: Caller, now_ms: int) -> Command:
        return response(request, ResponseCode.SUCCESS, body=self._runtime.text().encode())


def _topic_list(request: Command, looking: Generator[None, None, list[str]]) -> Job:
    names = yield from looking
    return (yield from _large(request, {"brokerAddr": None, "topicList": names}))


def _large(request: Command, value: object) -> Job:
    body = yield from fastjson.dumps_in_turns(value)
    return response(request, ResponseCode.SUCCESS, body=body)


def _checked(request: Command, job: Job) -> Job:
    """The job's response, or what is wrong with its request."""
    try:
        return (yield from job)
    except (ValueError, OSError) as error:
        return response(request, ResponseCode.SYSTEM_ERROR, str(error))
