//go:build tls

package main

import (
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// The client of tls.mod goes to name servers and brokers by TLS, and verifies nobody.

const undecided = primitive.UnkonwnState

func producerSecurity() []producer.Option { return []producer.Option{producer.WithTls(true)} }

func consumerSecurity() []consumer.Option { return []consumer.Option{consumer.WithTls(true)} }
