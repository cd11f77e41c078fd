// Driver of the Go clients (tests/matrix/matrix_stage.py says what a driver is): franz-go, sarama and kafka-go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// options are the program's argument; those from Group on are a member's.
type options struct {
	Client, Bootstrap, Group, Topic, Name, Instance, Protocol string
	Cooperative, Pattern                                      bool
	SessionTimeoutMs                                          int `json:"session_timeout_ms"`
	HeartbeatIntervalMs                                       int `json:"heartbeat_interval_ms"`
}

func (o options) session() time.Duration { return time.Duration(o.SessionTimeoutMs) * time.Millisecond }
func (o options) heartbeat() time.Duration {
	return time.Duration(o.HeartbeatIntervalMs) * time.Millisecond
}

// command is what a line on the input asks for.
type command struct {
	Do, Topic, Group, Codec             string
	Name, ID, Source, Isolation         string
	Partitions, Partition, First, Count int
	Pad                                 int
	Offset                              int64
	Idempotent, Commit                  bool
	secured
}

func (c command) key(n int) string { return fmt.Sprint("k", n) }

func (c command) value(n int) string { return fmt.Sprint("v", n, strings.Repeat(".", c.Pad)) }

type answer = map[string]any

// record is [partition, offset, key, value].
type record = []any

type client interface {
	// do answers a command, or says why it cannot.
	do(c command) (answer, error)
	// member consumes until the context ends, then leaves the group.
	member(m *member, until context.Context) error
}

var clients = map[string]struct {
	module string
	make   func(options) (client, error)
}{
	"franz-go": {"github.com/twmb/franz-go", newFranz},
	"sarama":   {"github.com/IBM/sarama", newSarama},
	"kafka-go": {"github.com/segmentio/kafka-go", newKafkaGo},
}

var ctx = context.Background()

var output sync.Mutex

func say(what answer) {
	line, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(line))
}

// member tells what a consumer holds and reads.
type member struct {
	options
	mu   sync.Mutex
	held []int32
}

func (m *member) given(partitions ...int32) {
	m.change(func() { m.held = append(m.held, partitions...) })
}

func (m *member) taken(partitions ...int32) {
	m.change(func() {
		m.held = slices.DeleteFunc(m.held, func(p int32) bool { return slices.Contains(partitions, p) })
	})
}

func (m *member) change(how func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := slices.Clone(m.held)
	how()
	slices.Sort(m.held)
	if !slices.Equal(before, m.held) {
		say(answer{"assigned": append([]int32{}, m.held...)})
	}
}

func (m *member) read(records ...record) {
	if len(records) > 0 {
		say(answer{"records": records})
	}
}

func (m *member) committed(err error) {
	if err != nil {
		say(answer{"error": err.Error()})
	} else {
		say(answer{"committed": true})
	}
}

func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return strings.TrimPrefix(dependency.Version, "v")
		}
	}
	panic("no " + module)
}

func consume(c client, o options, lines *bufio.Scanner) {
	until, stop := context.WithCancel(ctx)
	go func() {
		for lines.Scan() && lines.Text() != "close" {
		}
		stop()
	}()
	if err := c.member(&member{options: o}, until); err != nil {
		say(answer{"error": err.Error()})
		os.Exit(1)
	}
	say(answer{"closed": true})
}

func obey(c client, lines *bufio.Scanner) {
	for lines.Scan() {
		var asked command
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		done, err := c.do(asked)
		if err != nil {
			say(answer{"failed": err.Error()})
			continue
		}
		if done == nil {
			done = answer{}
		}
		say(answer{"done": done})
	}
}

func main() {
	var o options
	if err := json.Unmarshal([]byte(os.Args[1]), &o); err != nil {
		panic(err)
	}
	known := clients[o.Client]
	c, err := known.make(o)
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	if o.Group != "" {
		consume(c, o, lines)
		return
	}
	say(answer{"version": version(known.module)})
	obey(c, lines)
}
