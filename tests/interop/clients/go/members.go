package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const hangMax = 120 * time.Second

// command is one line of the input of `members`; see tests/interop/members.py.
type command struct {
	Do             string `json:"do"`
	Member         string `json:"member"`
	Group          string `json:"group"`
	Topic          string `json:"topic"`
	Expression     string `json:"expression"`
	From           string `json:"from"`
	Timestamp      string `json:"timestamp"`
	HangsOn        string `json:"hangsOn"`
	Orderly        bool   `json:"orderly"`
	Broadcast      bool   `json:"broadcast"`
	Batch          int    `json:"batch"`
	Fails          int    `json:"fails"`
	DelayLevel     *int   `json:"delayLevel"`
	MaxReconsume   int32  `json:"maxReconsume"`
	Dawdle         int    `json:"dawdle"`
	ConsumeTimeout int    `json:"consumeTimeout"`
	LockInterval   int    `json:"lockInterval"`
	Queue          int    `json:"queue"`
	Broker         string `json:"broker"`
	Offset         int64  `json:"offset"`
	Count          int    `json:"count"`
	Timeout        int    `json:"timeout"`
}

// member is one consumer and what its listener was told to do.
type member struct {
	command  command
	lines    *lines
	push     rocketmq.PushConsumer
	pull     rocketmq.PullConsumer
	mutex    sync.Mutex
	failures map[string]int
	calls    int
	released chan struct{}
}

// members runs many consumers in one process: each line of the input is a command, each line of
// the output its answer.
func members(o *options) error {
	out, err := openLines(o.out)
	if err != nil {
		return err
	}
	known := map[string]*member{}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		var next command
		answer := map[string]interface{}{}
		if err = json.Unmarshal(input.Bytes(), &next); err == nil {
			answer["answer"], err = execute(o.namesrv, out, known, next)
		}
		if err != nil {
			answer["error"] = err.Error()
		}
		text, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		fmt.Println(string(text))
	}
	return input.Err()
}

func execute(
	namesrv string, out *lines, known map[string]*member, c command,
) (interface{}, error) {
	if c.Do == "push" || c.Do == "pull" {
		m := &member{command: c, lines: out, failures: map[string]int{},
			released: make(chan struct{})}
		known[c.Member] = m
		if c.Do == "push" {
			return nil, m.startPush(namesrv)
		}
		return nil, m.startPull(namesrv)
	}
	m, ok := known[c.Member]
	if !ok {
		return nil, fmt.Errorf("no such member: %s", c.Member)
	}
	switch c.Do {
	case "stop":
		delete(known, c.Member)
		m.release()
		if m.push != nil {
			return nil, m.push.Shutdown()
		}
		return nil, m.pull.Shutdown()
	case "release":
		m.release()
		return nil, nil
	}
	return m.pulled(c)
}

func (m *member) release() {
	select {
	case <-m.released:
	default:
		close(m.released)
	}
}

func (m *member) options(namesrv string) []consumer.Option {
	c := m.command
	model := consumer.Clustering
	if c.Broadcast {
		model = consumer.BroadCasting
	}
	from := map[string]consumer.ConsumeFromWhere{
		"CONSUME_FROM_FIRST_OFFSET": consumer.ConsumeFromFirstOffset,
		"CONSUME_FROM_LAST_OFFSET":  consumer.ConsumeFromLastOffset,
		"CONSUME_FROM_TIMESTAMP":    consumer.ConsumeFromTimestamp,
	}[c.From]
	given := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{namesrv})),
		consumer.WithGroupName(c.Group),
		consumer.WithInstance(c.Member),
		consumer.WithConsumerModel(model),
		consumer.WithConsumeFromWhere(from),
		consumer.WithConsumerOrder(c.Orderly),
		consumer.WithConsumeMessageBatchMaxSize(c.Batch),
		consumer.WithMaxReconsumeTimes(c.MaxReconsume),
		consumer.WithSuspendCurrentQueueTimeMillis(200 * time.Millisecond),
	}
	if c.Timestamp != "" {
		given = append(given, consumer.WithConsumeTimestamp(c.Timestamp))
	}
	if c.ConsumeTimeout > 0 {
		given = append(given,
			consumer.WithConsumeTimeout(time.Duration(c.ConsumeTimeout)*time.Millisecond))
	}
	if c.LockInterval > 0 {
		given = append(given,
			consumer.WithRebalanceLockInterval(time.Duration(c.LockInterval)*time.Millisecond))
	}
	return given
}

func (m *member) startPush(namesrv string) error {
	var err error
	if m.push, err = rocketmq.NewPushConsumer(m.options(namesrv)...); err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: m.command.Expression}
	if err = m.push.Subscribe(m.command.Topic, selector, m.receive); err != nil {
		return err
	}
	return m.push.Start()
}

func (m *member) receive(
	ctx context.Context, messages ...*primitive.MessageExt,
) (consumer.ConsumeResult, error) {
	accepted, call := m.judge(messages)
	for _, message := range messages {
		line := describe(message)
		line["member"] = m.command.Member
		line["call"] = call
		line["accepted"] = accepted
		if err := m.lines.write(line); err != nil {
			return consumer.ConsumeRetryLater, err
		}
	}
	time.Sleep(time.Duration(m.command.Dawdle) * time.Millisecond)
	if messages[0].ReconsumeTimes == 0 && m.command.HangsOn != "" &&
		messages[0].GetKeys() == m.command.HangsOn {
		select {
		case <-m.released:
		case <-time.After(hangMax):
		}
	}
	if accepted {
		return consumer.ConsumeSuccess, nil
	}
	if m.command.Orderly {
		return consumer.SuspendCurrentQueueAMoment, nil
	}
	if m.command.DelayLevel != nil {
		if concurrently, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrently.DelayLevelWhenNextConsume = *m.command.DelayLevel
		}
	}
	return consumer.ConsumeRetryLater, nil
}

func (m *member) judge(messages []*primitive.MessageExt) (bool, int) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.calls++
	accepted := true
	for _, message := range messages {
		m.failures[message.GetKeys()]++
		if m.command.Fails < 0 || m.failures[message.GetKeys()] <= m.command.Fails {
			accepted = false
		}
	}
	return accepted, m.calls
}

func (m *member) startPull(namesrv string) error {
	var err error
	if m.pull, err = rocketmq.NewPullConsumer(m.options(namesrv)...); err != nil {
		return err
	}
	expression := m.command.Expression
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
	if err = m.pull.Subscribe(m.command.Topic, selector); err != nil {
		return err
	}
	return m.pull.Start()
}

// pulled executes the commands of pull consumers.
func (m *member) pulled(c command) (interface{}, error) {
	queue := &primitive.MessageQueue{
		Topic: m.command.Topic, BrokerName: c.Broker, QueueId: c.Queue,
	}
	switch c.Do {
	case "poll":
		return m.poll(time.Duration(c.Timeout) * time.Millisecond)
	case "take":
		result, err := m.pull.PullFrom(context.Background(), queue, c.Offset, c.Count)
		if err != nil {
			return nil, err
		}
		return map[string]interface{}{
			"status": strings.ToUpper(statuses[result.Status]), "next": result.NextBeginOffset,
			"min": result.MinOffset, "max": result.MaxOffset,
			"messages": described(result.GetMessageExts()),
		}, nil
	}
	return nil, fmt.Errorf("unknown: %s", c.Do)
}

var statuses = map[primitive.PullStatus]string{
	primitive.PullFound: "found", primitive.PullNoNewMsg: "no_new_msg",
	primitive.PullNoMsgMatched: "no_matched_msg", primitive.PullOffsetIllegal: "offset_illegal",
}

func (m *member) poll(timeout time.Duration) (interface{}, error) {
	request, err := m.pull.Poll(context.Background(), timeout)
	if consumer.IsNoNewMsgError(err) {
		return []interface{}{}, nil
	}
	if err != nil {
		return nil, err
	}
	m.pull.ACK(context.Background(), request, consumer.ConsumeSuccess)
	return described(request.GetMsgList()), nil
}

func described(messages []*primitive.MessageExt) []interface{} {
	found := []interface{}{}
	for _, message := range messages {
		found = append(found, describe(message))
	}
	return found
}
