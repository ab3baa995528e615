// The official Go client at a desk: see tests/grpc/desk.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

type order struct {
	Do, Topic, Group, Body, Tag, Key, Order, Property, End string
	Topics                                                 []string
	DeliverMs                                              int64 `json:"deliver_ms"`
}

type answer map[string]any

var (
	address  = os.Args[1]
	producer rocketmq.Producer
	simples  = map[string]rocketmq.SimpleConsumer{}
	lock     sync.Mutex
	got      = map[string][][3]any{}
)

func config(group string) *rocketmq.Config {
	return &rocketmq.Config{Endpoint: address, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
}

func check(message *rocketmq.MessageView) rocketmq.TransactionResolution {
	body := string(message.GetBody())
	switch {
	case strings.HasSuffix(body, "commit"):
		return rocketmq.COMMIT
	case strings.HasSuffix(body, "rollback"):
		return rocketmq.ROLLBACK
	}
	return rocketmq.UNKNOWN
}

func consume(group string, message *rocketmq.MessageView) rocketmq.ConsumerResult {
	body := string(message.GetBody())
	lock.Lock()
	defer lock.Unlock()
	isFirst := !slices.ContainsFunc(got[group], func(one [3]any) bool { return one[0] == body })
	got[group] = append(got[group], [3]any{body, message.GetDeliveryAttempt(), time.Now().UnixMilli()})
	if strings.HasPrefix(body, "again") && isFirst || strings.HasPrefix(body, "never") {
		return rocketmq.FAILURE
	}
	return rocketmq.SUCCESS
}

func message(o order) *rocketmq.Message {
	one := &rocketmq.Message{Topic: o.Topic, Body: []byte(o.Body)}
	if o.Tag != "" {
		one.SetTag(o.Tag)
	}
	if o.Key != "" {
		one.SetKeys(o.Key)
	}
	if o.Property != "" {
		one.AddProperty("name", o.Property)
	}
	if o.Order != "" {
		one.SetMessageGroup(o.Order)
	}
	if o.DeliverMs != 0 {
		one.SetDelayTimestamp(time.UnixMilli(o.DeliverMs))
	}
	return one
}

func filters(o order) map[string]*rocketmq.FilterExpression {
	return map[string]*rocketmq.FilterExpression{o.Topic: rocketmq.NewFilterExpression(o.Tag)}
}

func serve(o order) (answer, error) {
	ctx := context.Background()
	switch o.Do {
	case "producer":
		var err error
		producer, err = rocketmq.NewProducer(config(""), rocketmq.WithTopics(o.Topics...),
			rocketmq.WithTransactionChecker(&rocketmq.TransactionChecker{Check: check}))
		if err == nil {
			err = producer.Start()
		}
		return answer{}, err
	case "send":
		receipts, err := producer.Send(ctx, message(o))
		if err != nil {
			return nil, err
		}
		return answer{"id": receipts[0].MessageID}, nil
	case "transact":
		transaction := producer.BeginTransaction()
		receipts, err := producer.SendWithTransaction(ctx, message(o), transaction)
		if err == nil && o.End == "commit" {
			err = transaction.Commit()
		} else if err == nil && o.End == "rollback" {
			err = transaction.RollBack()
		}
		if err != nil {
			return nil, err
		}
		return answer{"id": receipts[0].MessageID}, nil
	case "push":
		consumer, err := rocketmq.NewPushConsumer(config(o.Group),
			rocketmq.WithPushAwaitDuration(5*time.Second), rocketmq.WithPushSubscriptionExpressions(filters(o)),
			rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{
				Consume: func(one *rocketmq.MessageView) rocketmq.ConsumerResult { return consume(o.Group, one) }}))
		if err == nil {
			err = consumer.Start()
		}
		return answer{}, err
	case "got":
		lock.Lock()
		defer lock.Unlock()
		return answer{"got": append([][3]any{}, got[o.Group]...)}, nil
	case "simple":
		consumer, err := rocketmq.NewSimpleConsumer(config(o.Group), rocketmq.WithSimpleAwaitDuration(2*time.Second),
			rocketmq.WithSimpleSubscriptionExpressions(filters(o)))
		if err == nil {
			err = consumer.Start()
		}
		simples[o.Group] = consumer
		return answer{}, err
	case "receive":
		messages, err := simples[o.Group].Receive(ctx, 16, 30*time.Second)
		if err != nil && !strings.Contains(err.Error(), "MESSAGE_NOT_FOUND") {
			return nil, err
		}
		seen := []answer{}
		for _, one := range messages {
			if err := simples[o.Group].ChangeInvisibleDuration(one, 20*time.Second); err != nil {
				return nil, err
			}
			if err := simples[o.Group].Ack(ctx, one); err != nil {
				return nil, err
			}
			tag := ""
			if one.GetTag() != nil {
				tag = *one.GetTag()
			}
			seen = append(seen, answer{"id": one.GetMessageId(), "body": string(one.GetBody()), "tag": tag,
				"keys": one.GetKeys(), "property": one.GetProperties()["name"], "attempt": one.GetDeliveryAttempt()})
		}
		return answer{"messages": seen}, nil
	}
	return nil, fmt.Errorf("no such order: %s", o.Do)
}

func main() {
	rocketmq.EnableSsl = false
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var one order
		if err := json.Unmarshal(in.Bytes(), &one); err != nil {
			panic(err)
		}
		said, err := serve(one)
		if err != nil {
			said = answer{"error": err.Error()}
		}
		line, _ := json.Marshal(said)
		fmt.Printf("> %s\n", line)
	}
	os.Exit(0)
}
