"""
Reads a stock broker.conf: Java properties whose keys are those of RocketMQ 4.9.8 (broker.md 15).

A key with a counterpart sets it, a key that asks for something that would be dangerous to ignore is
refused, every other key is reported once: as unknown, or as known and without effect. RocketMQ's
misspelled names live in these tables and nowhere else.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from mqcore.broker.settings.model import SettingsError, StockReport
from mqcore.broker.settings.values import Values
from mqcore.replication.role import Role
from mqcore.tls import stock as stock_tls
from mqcore.wire.java_properties import parse_properties
from mqcore.wire.numbers import whole_number

EVERY_ADDRESS = "0.0.0.0"
QUEUE_ENTRY_SIZE = 20        # mappedFileSizeConsumeQueue counts bytes, ours counts entries

# stock key -> "section.key"; the value is taken as it is
RENAMED = {
    "brokerName": "broker.name",
    "brokerClusterName": "broker.cluster",
    "brokerId": "broker.id",
    "listenPort": "broker.listen_port",
    "brokerPermission": "broker.permission",
    "aclEnable": "acl.enable",
    "namesrvAddr": "broker.namesrv_addrs",
    "registerBrokerTimeoutMills": "broker.register_timeout_ms",
    "forceRegister": "broker.force_register",
    "autoCreateTopicEnable": "broker.auto_create_topic",
    "autoCreateSubscriptionGroup": "broker.auto_create_group",
    "defaultTopicQueueNums": "broker.default_topic_queue_count",
    "clusterTopicEnable": "broker.cluster_topic_enable",
    "brokerTopicEnable": "broker.broker_topic_enable",
    "traceTopicEnable": "broker.trace_topic_enable",
    "msgTraceTopicName": "broker.trace_topic_name",
    "regionId": "broker.region_id",
    "traceOn": "broker.trace_on",
    "storeReplyMessageEnable": "broker.store_reply_messages",
    "rejectTransactionMessage": "broker.reject_transaction_message",
    "transactionTimeOut": "broker.transaction_timeout_ms",
    "transactionCheckInterval": "broker.transaction_check_interval_ms",
    "transactionCheckMax": "broker.transaction_check_max",
    "startAcceptSendRequestTimeStamp": "broker.accept_sends_from_ms",
    "notifyConsumerIdsChangedEnable": "broker.notify_consumers_enable",
    "slaveReadEnable": "broker.slave_read_enable",
    "disableConsumeIfConsumerReadSlowly": "broker.disable_consume_if_consumer_read_slowly",
    "consumerFallbehindThreshold": "broker.consumer_fallbehind_threshold_bytes",
    "enablePropertyFilter": "broker.property_filter_enable",
    "filterSupportRetry": "broker.filter_retry_enable",
    "filterDataCleanTimeSpan": "broker.filter_clean_ms",
    "enableCalcFilterBitMap": "broker.filter_bits_enable",
    "maxErrorRateOfBloomFilter": "broker.filter_error_percent",
    "expectConsumerNumUseFilter": "broker.filter_expected_count",
    "longPollingEnable": "broker.long_polling_enable",
    "shortPollingTimeMills": "broker.short_polling_ms",
    "messageDelayLevel": "broker.message_delay_levels",
    "flushConsumerOffsetInterval": "broker.offsets_persist_interval_ms",
    "flushDelayOffsetInterval": "broker.delay_offsets_persist_interval_ms",
    "storePathRootDir": "store.path",
    "mappedFileSizeCommitLog": "store.segment_size_bytes",
    "enableConsumeQueueExt": "store.queue_extension_enable",
    "mappedFileSizeConsumeQueueExt": "store.queue_extension_file_bytes",
    "enableMultiDispatch": "store.multi_dispatch_enable",
    "enableLmq": "store.light_queues_enable",
    "maxLmqConsumeQueueNum": "store.light_queue_count_max",
    "messageIndexEnable": "store.index_enable",
    "maxHashSlotNum": "store.index_slot_count",
    "maxIndexNum": "store.index_entry_count",
    "flushIntervalCommitLog": "store.flush_interval_ms",
    "flushCommitLogLeastPages": "store.flush_least_pages",
    "flushCommitLogThoroughInterval": "store.flush_thorough_interval_ms",
    "commitIntervalCommitLog": "store.commit_interval_ms",
    "commitCommitLogThoroughInterval": "store.commit_thorough_interval_ms",
    "warmMapedFileEnable": "store.warm_segments",
    "storePathCommitLog": "store.commit_log_paths",
    "readOnlyCommitLogStorePaths": "store.commit_log_read_only_paths",
    "commitCommitLogLeastPages": "store.commit_least_pages",
    "flushConsumeQueueThoroughInterval": "store.checkpoint_interval_ms",
    "syncFlushTimeout": "store.sync_flush_timeout_ms",
    "maxMessageSize": "store.message_size_max_bytes",
    "maxTransferBytesOnMessageInMemory": "store.transfer_memory_bytes_max",
    "maxTransferCountOnMessageInMemory": "store.transfer_memory_count_max",
    "maxTransferBytesOnMessageInDisk": "store.transfer_disk_bytes_max",
    "maxTransferCountOnMessageInDisk": "store.transfer_disk_count_max",
    "accessMessageInMemoryMaxRatio": "store.memory_ratio_percent",
    "fileReservedTime": "store.reserved_hours",
    "cleanFileForciblyEnable": "store.disk_clean_enable",
    "cleanResourceInterval": "store.clean_interval_ms",
    "deleteCommitLogFilesInterval": "store.clean_pause_ms",
    "maxMsgsNumBatch": "store.query_count_max",
    "defaultQueryMaxNum": "store.query_unique_count_max",
    "brokerIP2": "replication.advertised_host",
    "haMasterAddress": "replication.master_address",
    "haSlaveFallbehindMax": "replication.slave_fallbehind_max_bytes",
    "haTransferBatchSize": "replication.transfer_batch_bytes",
    "haSendHeartbeatInterval": "replication.heartbeat_interval_ms",
    "haHousekeepingInterval": "replication.housekeeping_interval_ms",
    "slaveTimeout": "replication.slave_timeout_ms",
}


def _short(text: str) -> str:
    """A wrong value in a message, which is one line."""
    return ascii(text[:120])[1:-1] + ("..." if len(text) > 120 else "")


def _whole_number(source: str, key: str, text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise SettingsError(f'{source}: {key} = "{_short(text)}": expected a whole number')
    return number


def _register_interval(source: str, key: str, text: str) -> int:
    """Stock clamps the period to 10..60 s instead of refusing it (broker.md 1.3)."""
    return min(max(_whole_number(source, key, text), 10_000), 60_000)


def _queue_file_entries(source: str, key: str, text: str) -> int:
    """Bytes rounded up to whole entries, as MessageStoreConfig does."""
    return -(-_whole_number(source, key, text) // QUEUE_ENTRY_SIZE)


def _hours(source: str, key: str, text: str) -> str:
    """Hours with leading zeros, joined by semicolons."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    return ";".join(str(_whole_number(source, key, part)) for part in parts)


def _idle_ms(source: str, key: str, text: str) -> int:
    return _whole_number(source, key, text) * 1000


def _used_ratio(source: str, key: str, text: str) -> int:
    """Stock clamps the percentage to 10..95 (store.md 6.6)."""
    return min(max(_whole_number(source, key, text), 10), 95)


def _role(source: str, key: str, text: str) -> str:
    role = text.lower().replace("_", "-")
    if role not in list(Role):
        known = ", ".join(f'"{stock_role(one)}"' for one in Role)
        raise SettingsError(f'{source}: {key} = "{_short(text)}": expected one of {known}')
    return role


def stock_role(role: str) -> str:
    """A role in stock's words."""
    return role.upper().replace("-", "_")


CONVERTED: dict[str, tuple[str, Callable[[str, str, str], Any]]] = {
    "registerNameServerPeriod": ("broker.register_interval_ms", _register_interval),
    "mappedFileSizeConsumeQueue": ("store.queue_file_entry_count", _queue_file_entries),
    "deleteWhen": ("store.delete_when_hours", _hours),
    "diskMaxUsedSpaceRatio": ("store.disk_used_max_percent", _used_ratio),
    "serverChannelMaxIdleTimeSeconds": ("processes.connection_idle_ms", _idle_ms),
    "brokerRole": ("replication.role", _role),
}

# an address, or (as container set-ups write) a name: advertised_ip or advertised_host
ADDRESS_KEY = "brokerIP1"

# two stock keys that make one setting together
FLUSH_KEYS = ("flushDiskType", "transientStorePoolEnable")

# two more: the pool's size
POOL_KEY, SEGMENT_KEY = "transientStorePoolSize", "mappedFileSizeCommitLog"
POOL_BYTES_MIN, POOL_BYTES_MAX = 1 << 20, 256 << 20

# key -> (the only harmless value, why another one is refused instead of ignored)
REFUSED = {
    "enableDLegerCommitLog": ("false", "DLedger is not supported"),
    "duplicationEnable": ("false", "a duplicated commit log is not supported"),
    "messageStorePlugIn": ("", "store plug-ins are Java classes"),
}

_WITHOUT_EFFECT_NAMES = """
flushIntervalConsumeQueue flushConsumeQueueLeastPages
checkCRCOnRecover
    fetchNamesrvAddrByAddressServer rmqAddressServerDomain rmqAddressServerSubGroup
    compressedRegister rocketmqHome isolateLogEnable configBlackList brokerConfigPath
    enableDetailStat autoDeleteUnusedStats
    commercialBaseCount commercialEnable commercialTimerCount commercialTransCount
    commercialBigCount highSpeedMode maxDelayTime filterServerNums
    flushConsumerOffsetHistoryInterval sendMessageThreadPoolNums putMessageFutureThreadPoolNums
    pullMessageThreadPoolNums processReplyMessageThreadPoolNums queryMessageThreadPoolNums
    adminBrokerThreadPoolNums clientManageThreadPoolNums consumerManageThreadPoolNums
    heartbeatThreadPoolNums endTransactionThreadPoolNums sendThreadPoolQueueCapacity
    putThreadPoolQueueCapacity replyThreadPoolQueueCapacity pullThreadPoolQueueCapacity
    endTransactionPoolQueueCapacity queryThreadPoolQueueCapacity heartbeatThreadPoolQueueCapacity
    clientManagerThreadPoolQueueCapacity consumerManagerThreadPoolQueueCapacity
    brokerFastFailureEnable waitTimeMillsInSendQueue waitTimeMillsInPullQueue
    waitTimeMillsInHeartbeatQueue waitTimeMillsInTransactionQueue transferMsgByHeap
    serverWorkerThreads serverSelectorThreads serverCallbackExecutorThreads
    serverOnewaySemaphoreValue serverAsyncSemaphoreValue serverSocketSndBufSize
    serverSocketRcvBufSize serverSocketBacklog serverPooledByteBufAllocatorEnable
    useEpollNativeSelector clientWorkerThreads clientCallbackExecutorThreads
    clientOnewaySemaphoreValue clientAsyncSemaphoreValue connectTimeoutMillis
    channelNotActiveInterval clientChannelMaxIdleTimeSeconds clientSocketSndBufSize
    clientSocketRcvBufSize clientPooledByteBufAllocatorEnable clientCloseSocketIfTimeout useTLS
    storePathDLedgerCommitLog
    bitMapLengthConsumeQueueExt
    flushCommitLogTimed useReentrantLockWhenPutMessage osPageCacheBusyTimeOutMills
    fastFailIfNoBufferInStorePool flushLeastPagesWhenWarmMapedFile
    debugLockEnable messageIndexSafe putMsgIndexHightWater
    diskFallRecorded deleteConsumeQueueFilesInterval
    destroyMapedFileIntervalForcibly redeleteHangedFileInterval
    enableScheduleMessageStats enableScheduleAsyncDeliver
    scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked haListenPort
    offsetCheckInSlave dLegerGroup dLegerPeers dLegerSelfId preferredLeaderId
    isEnableBatchPush enableBatchPush
"""
WITHOUT_EFFECT = frozenset(_WITHOUT_EFFECT_NAMES.split())


def read(values: Values, source: str, raw: bytes) -> StockReport:
    """
    Put the settings of a stock broker.conf into `values`.

    source  the file's name, for messages. Raises SettingsError for a value of the wrong kind (stock
    skips it silently) and for a feature that must not be ignored.
    """
    entries = parse_properties(raw)
    for target in ("broker.listen_host", "namesrv.listen_host"):
        _put(values, target, EVERY_ADDRESS, source, target)         # stock listens at all of them
    unknown, without_effect = [], []
    for key, text in entries.items():
        if key in RENAMED:
            _put(values, RENAMED[key], text, source, key)
        elif key in CONVERTED:
            target, converter = CONVERTED[key]
            _put(values, target, str(converter(source, key, text)), source, key)
        elif key == ADDRESS_KEY:
            _put(values, address_target(text), text, source, key)
        elif key in REFUSED:
            harmless, reason = REFUSED[key]
            if text.lower() != harmless.lower():
                raise SettingsError(
                    f'{source}: {key} = "{_short(text)}": {reason}; expected "{harmless}"')
        elif stock_tls.is_ours(key):
            continue
        elif key in WITHOUT_EFFECT:
            without_effect.append(key)
        elif key not in FLUSH_KEYS and key != POOL_KEY:
            unknown.append(key)
    put_flush(values, entries, source)
    put_pool(values, entries, source)
    put_role(values, entries, source)
    put_tls(values, entries, source)
    return StockReport(unknown=tuple(unknown), without_effect=tuple(without_effect))


def _put(values: Values, target: str, text: str, source: str, shown: str) -> None:
    section, _, key = target.partition(".")
    values.put(section, key, text, source, as_text=True, shown=shown)


def address_target(text: str) -> str:
    """The setting that brokerIP1 stands for: digits and dots are an address."""
    is_address = re.fullmatch(r"[0-9.]*", text, re.ASCII)
    return "broker.advertised_ip" if is_address else "broker.advertised_host"


def put_flush(values: Values, entries: dict[str, str], source: str) -> None:
    """The transient pool has an effect only with ASYNC_FLUSH (TransientStorePool, broker.md 15)."""
    if not any(key in entries for key in FLUSH_KEYS):
        return
    flush_type = entries.get("flushDiskType", "ASYNC_FLUSH")
    pool = entries.get("transientStorePoolEnable", "false").lower()
    if flush_type not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        raise SettingsError(
            f'{source}: flushDiskType = "{_short(flush_type)}": expected "ASYNC_FLUSH" or '
            '"SYNC_FLUSH"'
        )
    if pool not in ("true", "false"):
        raise SettingsError(
            f'{source}: transientStorePoolEnable = "{_short(pool)}": expected true or false'
        )
    if flush_type == "SYNC_FLUSH":
        flush = "sync"
    else:
        flush = "transient-pool" if pool == "true" else "async"
    _put(values, "store.flush", flush, source, "flushDiskType")


def put_pool(values: Values, entries: dict[str, str], source: str) -> None:
    """
    Stock's pool is some buffers of a whole segment each, and wants five of them; ours is a circle
    that only has to bridge the time to the copy, so its size has an upper end.
    """
    if POOL_KEY not in entries:
        return
    count = _whole_number(source, POOL_KEY, entries[POOL_KEY])
    segment = _whole_number(source, SEGMENT_KEY, entries.get(SEGMENT_KEY, str(1 << 30)))
    _put(values, "store.pool_bytes",
         str(min(max(count * segment, POOL_BYTES_MIN), POOL_BYTES_MAX)), source, POOL_KEY)


def put_role(values: Values, entries: dict[str, str], source: str) -> None:
    """
    A stock broker's id follows its role, and it lets slaves in at listenPort + 1 whatever
    haListenPort says (ha.md 1); a slave has no pool (ha.md 5).
    """
    if entries.get("brokerRole", "").upper() != stock_role(Role.SLAVE):
        _put(values, "broker.id", "0", source, "brokerId")
        _put(values, "replication.listen", "true", source, "brokerRole")
    elif values.section("store").get("flush") == "transient-pool":
        _put(values, "store.flush", "async", source, FLUSH_KEYS[1])


def put_tls(values: Values, entries: dict[str, str], source: str) -> None:
    """TLS, of this file and of the one that stock looks for beside it (tls.md 1.2)."""
    try:
        found = stock_tls.settings(entries, source, parse_properties)
    except stock_tls.StockTlsError as error:
        raise SettingsError(f"{source}: {error}") from None
    for name, text, where, key in found:
        _put(values, f"tls.{name}", text, where, key)
