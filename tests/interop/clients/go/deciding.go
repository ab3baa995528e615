package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// deciding decides transactions by the modes of their messages (tests/interop/messages.py), and writes
// a line for each time that the broker asks. A message that this program does not know stays undecided.
type deciding struct {
	results *lines
	mutex   sync.Mutex
	modes   map[string]string // by mid: what is to be asked
	asked   map[string]int    // by mid: how often
	open    int               // to be decided by a check
}

func newDeciding(results *lines) *deciding {
	return &deciding{results: results, modes: map[string]string{}, asked: map[string]int{}}
}

func isChecked(mode string) bool { return strings.HasPrefix(mode, "check-") }

func isTransaction(mode string) bool {
	return mode == "commit" || mode == "rollback" || mode == "orphan" || isChecked(mode)
}

// expect says that the broker will ask about the message mid, sent by this program or another one.
func (d *deciding) expect(mid, mode string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if isChecked(mode) {
		d.modes[mid] = mode
		d.open++
	}
}

func (d *deciding) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch message.GetProperty("txmode") {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return undecided
}

func (d *deciding) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	mid := message.GetProperty("mid")
	d.asked[mid]++
	times, _ := strconv.Atoi(message.GetProperty("TRANSACTION_CHECK_TIMES")) // 0 shows in the line
	_ = d.results.write(map[string]interface{}{
		"asked": mid, "times": times, "topic": message.Topic,
	})
	mode := d.modes[mid]
	if mode == "" || (mode == "check-late" && d.asked[mid] == 1) {
		return undecided
	}
	d.open--
	if mode == "check-rollback" {
		return primitive.RollbackMessageState
	}
	return primitive.CommitMessageState
}

func (d *deciding) missing() int {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.open
}

// await returns once every transaction is decided, and half a second for the answer, which is one-way.
func (d *deciding) await(limit time.Duration) error {
	if d.missing() == 0 {
		return nil
	}
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if d.missing() == 0 {
			time.Sleep(500 * time.Millisecond)
			return nil
		}
	}
	return fmt.Errorf("%d transactions were not decided within %s", d.missing(), limit)
}
