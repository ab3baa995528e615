package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const accountLimit = 30 * time.Second

type deed struct{ Do, Topic, Group, Body string }

// account is what one account does at one broker; see Accounts.java.
type account struct {
	Name, Namesrv, Broker, Key, Secret string
	Deeds                              []deed
}

// accounts writes a line for each deed of the accounts in `file`.
func accounts(o *options) error {
	text, err := os.ReadFile(o.file)
	if err != nil {
		return err
	}
	var all []account
	if err = json.Unmarshal(text, &all); err != nil {
		return err
	}
	results, err := openLines(o.out)
	if err != nil {
		return err
	}
	for number, one := range all {
		s := &accountSender{account: one, name: fmt.Sprintf("account-%d", number)}
		if err = s.run(results); err != nil {
			return err
		}
	}
	return nil
}

type accountSender struct {
	account
	name        string
	plain       rocketmq.Producer
	transaction rocketmq.TransactionProducer
}

func (s *accountSender) run(results *lines) error {
	if err := s.start(); err != nil {
		return err
	}
	for number, next := range s.Deeds {
		outcome := "ok"
		if err := s.do(fmt.Sprintf("%s-%d", s.name, number), next); err != nil {
			outcome = err.Error()
		}
		if err := results.write(map[string]interface{}{
			"account": s.Name, "broker": s.Broker, "do": next.Do, "outcome": outcome,
		}); err != nil {
			return err
		}
	}
	if err := s.transaction.Shutdown(); err != nil {
		return err
	}
	return s.plain.Shutdown()
}

func (s *accountSender) credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: s.Key, SecretKey: s.Secret}
}

func (s *accountSender) start() error {
	given := func(suffix string) []producer.Option {
		return append(producerSecurity(),
			producer.WithNsResolver(primitive.NewPassthroughResolver([]string{s.Namesrv})),
			producer.WithGroupName("accounts"+suffix),
			producer.WithInstanceName(s.name+suffix),
			producer.WithRetry(0),
			producer.WithSendMsgTimeout(accountLimit),
			producer.WithCredentials(s.credentials()),
		)
	}
	var err error
	if s.plain, err = rocketmq.NewProducer(given("")...); err != nil {
		return err
	}
	if err = s.plain.Start(); err != nil {
		return err
	}
	if s.transaction, err = rocketmq.NewTransactionProducer(committing{}, given("-tx")...); err != nil {
		return err
	}
	return s.transaction.Start()
}

func (s *accountSender) do(name string, next deed) error {
	ctx := context.Background()
	message := func(body string) *primitive.Message {
		return primitive.NewMessage(next.Topic, []byte(body)).WithKeys([]string{body})
	}
	switch next.Do {
	case "sync":
		_, err := s.plain.SendSync(ctx, message(next.Body))
		return err
	case "async":
		answered := make(chan error, 1)
		err := s.plain.SendAsync(ctx, func(_ context.Context, _ *primitive.SendResult, err error) {
			answered <- err
		}, message(next.Body))
		if err != nil {
			return err
		}
		select {
		case err = <-answered:
			return err
		case <-time.After(accountLimit):
			return fmt.Errorf("no callback")
		}
	case "oneway":
		return s.plain.SendOneWay(ctx, message(next.Body))
	case "batch":
		_, err := s.plain.SendSync(ctx, message(next.Body), message(next.Body+"-2"))
		return err
	case "delayed":
		_, err := s.plain.SendSync(ctx, message(next.Body).WithDelayTimeLevel(1))
		return err
	case "transaction":
		_, err := s.transaction.SendMessageInTransaction(ctx, message(next.Body))
		return err
	case "push":
		return s.push(name, next)
	}
	return fmt.Errorf("unknown: %s", next.Do)
}

func (s *accountSender) push(name string, next deed) error {
	came := make(chan struct{}, 1<<10)
	push, err := rocketmq.NewPushConsumer(append(consumerSecurity(),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{s.Namesrv})),
		consumer.WithGroupName(next.Group),
		consumer.WithInstance(name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithCredentials(s.credentials()),
	)...)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	if err = push.Subscribe(next.Topic, selector, func(
		context.Context, ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		came <- struct{}{}
		return consumer.ConsumeSuccess, nil
	}); err != nil {
		return err
	}
	if err = push.Start(); err != nil {
		return err
	}
	defer func() { _ = push.Shutdown() }() // what came counts
	select {
	case <-came:
		return nil
	case <-time.After(accountLimit):
		return fmt.Errorf("no message")
	}
}

// committing commits every transaction.
type committing struct{}

func (committing) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return primitive.CommitMessageState
}

func (committing) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	return undecided
}
