package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const sendTimeout = 10 * time.Second

type sender struct {
	topic       string
	plain       rocketmq.Producer
	transaction rocketmq.TransactionProducer
	results     *lines
	decider     *deciding
}

func produce(o *options) error {
	text, err := os.ReadFile(o.file)
	if err != nil {
		return err
	}
	var items []item
	if err = json.Unmarshal(text, &items); err != nil {
		return err
	}
	results, err := openLines(o.out)
	if err != nil {
		return err
	}
	resolver := primitive.NewPassthroughResolver([]string{o.namesrv})
	instance := strconv.Itoa(os.Getpid())
	plain, err := rocketmq.NewProducer(
		producer.WithNsResolver(resolver),
		producer.WithGroupName(o.group),
		producer.WithInstanceName(instance),
		producer.WithRetry(2),
		producer.WithSendMsgTimeout(sendTimeout),
		producer.WithQueueSelector(newShardSelector()),
	)
	if err != nil {
		return err
	}
	if err = plain.Start(); err != nil {
		return err
	}
	decider := newDeciding(results)
	transaction, err := rocketmq.NewTransactionProducer(
		decider,
		producer.WithNsResolver(resolver),
		producer.WithGroupName(o.group+"-tx"),
		producer.WithInstanceName(instance+"-tx"),
	)
	if err != nil {
		return err
	}
	if err = transaction.Start(); err != nil {
		return err
	}
	s := &sender{topic: o.topic, plain: plain, transaction: transaction, results: results,
		decider: decider}
	if err = s.sendAll(items); err != nil {
		return err
	}
	if err = decider.await(time.Duration(o.waitChecksMs) * time.Millisecond); err != nil {
		return err
	}
	if err = transaction.Shutdown(); err != nil {
		return err
	}
	return plain.Shutdown()
}

func (s *sender) sendAll(items []item) error {
	var batch []*primitive.Message
	for i, next := range items {
		message, err := s.message(next)
		if err != nil {
			return err
		}
		if next.Mode == "batch" {
			batch = append(batch, message)
			if i+1 < len(items) && items[i+1].Mode == "batch" {
				continue
			}
			result, err := s.plain.SendSync(context.Background(), batch...)
			if err = s.report(fmt.Sprintf("batch of %d", len(batch)), result, err); err != nil {
				return err
			}
			batch = nil
			continue
		}
		if err = s.send(next, message); err != nil {
			return err
		}
	}
	return nil
}

func (s *sender) send(next item, message *primitive.Message) error {
	ctx := context.Background()
	id := next.Properties["mid"]
	if isTransaction(next.Mode) {
		s.decider.expect(id, next.Mode)
		message.WithProperty("txmode", next.Mode)
		result, err := s.transaction.SendMessageInTransaction(ctx, message)
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		return s.report(id, result.SendResult, nil)
	}
	switch next.Mode {
	case "sync":
		result, err := s.plain.SendSync(ctx, message)
		return s.report(id, result, err)
	case "async":
		answered := make(chan error, 1)
		err := s.plain.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			answered <- s.report(id, result, err)
		}, message)
		if err != nil {
			return err
		}
		select {
		case err = <-answered:
			return err
		case <-time.After(2 * sendTimeout):
			return fmt.Errorf("%s: no callback within %s", id, 2*sendTimeout)
		}
	case "oneway":
		return s.plain.SendOneWay(ctx, message)
	case "answer": // another program sent it
		s.decider.expect(id, "check-commit")
		return nil
	case "hang":
		time.Sleep(time.Hour)
		return nil
	}
	return fmt.Errorf("unknown mode: %s", next.Mode)
}

func (s *sender) report(id string, result *primitive.SendResult, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	if result.Status != primitive.SendOK {
		return fmt.Errorf("%s: %s", id, result)
	}
	return s.results.write(map[string]interface{}{
		"id": id, "msgId": result.MsgID, "offsetMsgId": result.OffsetMsgID,
		"queueId": result.MessageQueue.QueueId, "offset": result.QueueOffset,
	})
}

func (s *sender) message(next item) (*primitive.Message, error) {
	body, err := base64.StdEncoding.DecodeString(next.Body)
	if err != nil {
		return nil, err
	}
	message := primitive.NewMessage(s.topic, body)
	for name, value := range next.Properties {
		message.WithProperty(name, value)
	}
	if next.Tags != "" {
		message.WithTag(next.Tags)
	}
	if next.Keys != "" {
		message.WithKeys(strings.Split(next.Keys, " "))
	}
	if next.DelayLevel > 0 {
		message.WithDelayTimeLevel(next.DelayLevel)
	}
	if next.Shard != nil {
		message.WithShardingKey(strconv.Itoa(*next.Shard))
	}
	return message, nil
}

// shardSelector sends messages with a sharding key to the queue of that number, others in turn.
type shardSelector struct {
	others producer.QueueSelector
}

func newShardSelector() producer.QueueSelector {
	return &shardSelector{others: producer.NewRoundRobinQueueSelector()}
}

func (s *shardSelector) Select(
	message *primitive.Message, queues []*primitive.MessageQueue, lastBroker string,
) *primitive.MessageQueue {
	shard, err := strconv.Atoi(message.GetShardingKey())
	if err != nil {
		return s.others.Select(message, queues, lastBroker)
	}
	return queues[shard%len(queues)]
}
