//go:build !tls

package main

import (
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// The client of go.mod has no TLS.

const undecided = primitive.UnknowState

func producerSecurity() []producer.Option { return nil }

func consumerSecurity() []consumer.Option { return nil }
