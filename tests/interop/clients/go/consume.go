package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// receiver writes every delivery and says which ones to accept.
type receiver struct {
	o        *options
	lines    *lines
	mutex    sync.Mutex
	rejected map[string]bool
	accepted chan struct{}
}

// consume reports whether `count` messages were accepted within `timeout` seconds.
func consume(o *options) (bool, error) {
	out, err := openLines(o.out)
	if err != nil {
		return false, err
	}
	model := consumer.Clustering
	if o.broadcast {
		model = consumer.BroadCasting
	}
	push, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{o.namesrv})),
		consumer.WithGroupName(o.group),
		consumer.WithInstance(strconv.Itoa(os.Getpid())),
		consumer.WithConsumerModel(model),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(o.orderly),
		consumer.WithMaxReconsumeTimes(int32(o.maxReconsume)),
	)
	if err != nil {
		return false, err
	}
	r := &receiver{o: o, lines: out, rejected: map[string]bool{}, accepted: make(chan struct{}, 1<<16)}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: o.expression}
	if o.sql != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: o.sql}
	}
	for _, topic := range strings.Split(o.topic, ",") {
		if err = push.Subscribe(topic, selector, r.receive); err != nil {
			return false, err
		}
	}
	if err = push.Start(); err != nil {
		return false, err
	}
	fmt.Println("ready")
	enough := r.await(time.Duration(o.timeout) * time.Second)
	time.Sleep(time.Duration(o.lingerMs) * time.Millisecond)
	return enough, push.Shutdown()
}

func (r *receiver) await(limit time.Duration) bool {
	deadline := time.After(limit)
	for i := 0; i < r.o.count; i++ {
		select {
		case <-r.accepted:
		case <-deadline:
			return false
		}
	}
	return true
}

func (r *receiver) receive(
	_ context.Context, messages ...*primitive.MessageExt,
) (consumer.ConsumeResult, error) {
	all := true
	for _, message := range messages {
		accept := r.accepts(message.GetProperty("mid"))
		line := describe(message)
		line["accepted"] = accept
		if err := r.lines.write(line); err != nil {
			return consumer.ConsumeRetryLater, err
		}
		if accept {
			r.accepted <- struct{}{}
		}
		all = all && accept
	}
	switch {
	case all:
		return consumer.ConsumeSuccess, nil
	case r.o.orderly:
		return consumer.SuspendCurrentQueueAMoment, nil
	}
	return consumer.ConsumeRetryLater, nil
}

func (r *receiver) accepts(mid string) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !r.o.rejectOnce || r.rejected[mid] {
		return true
	}
	r.rejected[mid] = true
	return false
}
