"""Messages that wait for a time of delivery (timer.md 4; RocketMQ 5.3.3: TimerMetrics)."""
from __future__ import annotations

from mqcore.broker.core import Core
from mqcore.broker.request import Answer, Request, answers
from mqcore.wire import fastjson
from mqcore.wire.codes import RequestCode, ResponseCode


@answers(RequestCode.GET_TIMER_METRICS)
def timer_metrics(core: Core, request: Request) -> Answer:
    """
    GET_TIMER_METRICS (61): messages by topic as a stock 5 broker says it, and in member `timed`,
    which those pass over, all that ours knows.
    """
    timed = core.ports.figures.timed(core.wall_ms(request.now_ms))
    return Answer(ResponseCode.SUCCESS, body=fastjson.dumps({
        "timingCount": {topic: {"count": count, "timeStamp": request.now_ms}
                        for topic, count in timed["topics"].items()},
        "dataVersion": {"stateVersion": 0, "timestamp": request.now_ms, "counter": 0},
        "timed": timed}))
