// Command client drives rocketmq-client-go for the interoperability tests: `produce`, `consume`, `accounts` and
// `members` with the options that the programs of the other languages take (tests/interop/runner.py).
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

type item struct {
	Mode       string            `json:"mode"`
	Tags       string            `json:"tags"`
	Keys       string            `json:"keys"`
	Properties map[string]string `json:"properties"`
	Body       string            `json:"body"`
	DelayLevel int               `json:"delayLevel"`
	Shard      *int              `json:"shard"`
}

type options struct {
	namesrv, topic, group, file, out, expression, sql, names string
	count, timeout, lingerMs, maxReconsume, waitChecksMs     int
	orderly, rejectOnce, broadcast                           bool
}

func parse(args []string) *options {
	o := &options{}
	set := flag.NewFlagSet(args[0], flag.ExitOnError)
	set.StringVar(&o.namesrv, "namesrv", "", "host:port of the name server")
	set.StringVar(&o.topic, "topic", "", "topic, or several with commas for consume")
	set.StringVar(&o.group, "group", "PG-go", "producer or consumer group")
	set.StringVar(&o.file, "file", "", "messages to send, a JSON array")
	set.StringVar(&o.out, "out", "", "file of JSON lines to write")
	set.StringVar(&o.expression, "expression", "*", "tags to subscribe to")
	set.StringVar(&o.sql, "sql", "", "SQL92 expression to subscribe to")
	set.StringVar(&o.names, "properties", "", "ignored: all properties are reported")
	set.IntVar(&o.count, "count", 1, "messages to wait for")
	set.IntVar(&o.timeout, "timeout", 60, "seconds to wait for them")
	set.IntVar(&o.lingerMs, "linger-ms", 1000, "time for what must not come")
	set.IntVar(&o.maxReconsume, "max-reconsume", -1, "deliveries before the dead letter topic")
	set.IntVar(&o.waitChecksMs, "wait-checks-ms", 0, "time for transaction checks")
	set.BoolVar(&o.orderly, "orderly", false, "consume each queue in order, under its lock")
	set.BoolVar(&o.rejectOnce, "reject-once", false, "ask for every message again once")
	set.BoolVar(&o.broadcast, "broadcast", false, "every consumer gets every message")
	_ = set.Parse(args[1:]) // ExitOnError: it does not return one
	return o
}

// lines is a file of JSON lines, flushed after each.
type lines struct {
	mutex  sync.Mutex
	file   *os.File
	writer *bufio.Writer
}

func openLines(path string) (*lines, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &lines{file: file, writer: bufio.NewWriter(file)}, nil
}

func (l *lines) write(line map[string]interface{}) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if _, err = l.writer.Write(append(text, '\n')); err != nil {
		return err
	}
	return l.writer.Flush()
}

func describe(message *primitive.MessageExt) map[string]interface{} {
	return map[string]interface{}{
		"topic":          message.Topic,
		"tags":           message.GetTags(),
		"keys":           message.GetKeys(),
		"properties":     message.GetProperties(),
		"body":           base64.StdEncoding.EncodeToString(message.Body),
		"queueId":        message.Queue.QueueId,
		"offset":         message.QueueOffset,
		"msgId":          message.MsgId,
		"reconsumeTimes": message.ReconsumeTimes,
		"bornAt":         message.BornTimestamp,
		"storedAt":       message.StoreTimestamp,
		"sysFlag":        message.SysFlag,
		"storeSize":      message.StoreSize,
		"seenAt":         time.Now().UnixMilli(),
	}
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "expected a command: produce, consume, accounts or members")
		os.Exit(2)
	}
	o := parse(os.Args[1:])
	var err error
	enough := true
	switch os.Args[1] {
	case "produce":
		err = produce(o)
	case "consume":
		enough, err = consume(o)
	case "members":
		err = members(o)
	case "accounts":
		err = accounts(o)
	default:
		err = fmt.Errorf("unknown command: %s", os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !enough {
		os.Exit(3)
	}
}
