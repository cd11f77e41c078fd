// franz-go against a running server, beyond the cells of docs/clients.md: `go run . BOOTSTRAP`, or `go run . BOOTSTRAP fenced`
// for a server that fences commits by ownership. Prints a line a step; exits 1 on a failure.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 6

func check(holds bool, format string, arguments ...any) {
	if !holds {
		fmt.Printf("failed: "+format+"\n", arguments...)
		os.Exit(1)
	}
}

func must(err error, what string) { check(err == nil, "%s: %v", what, err) }

// member is a consumer in its own goroutine: what it holds and what it read.
type member struct {
	client *kgo.Client
	mu     sync.Mutex
	held   map[int32]bool
	values map[string]int
	done   chan struct{}
}

func newMember(bootstrap, group, topic string, more ...kgo.Opt) *member {
	m := &member{held: map[int32]bool{}, values: map[string]int{}, done: make(chan struct{})}
	change := func(add bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, moved map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range moved[topic] {
				if add {
					m.held[p] = true
				} else {
					delete(m.held, p)
				}
			}
		}
	}
	options := append([]kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(300 * time.Millisecond), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
	}, more...)
	client, err := kgo.NewClient(options...)
	must(err, "consumer")
	m.client = client
	go m.run()
	return m
}

func (m *member) run() {
	defer close(m.done)
	for {
		fetches := m.client.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		m.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) { m.values[string(r.Value)]++ })
		m.mu.Unlock()
		_ = m.client.CommitUncommittedOffsets(context.Background()) // refused in a rebalance: read again by the new owner
	}
}

func (m *member) leave() {
	m.client.Close()
	<-m.done
}

func (m *member) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.held)
}

func (m *member) any() int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.held {
		return p
	}
	panic("it holds nothing")
}

func distinct(members ...*member) int {
	all := map[string]bool{}
	for _, m := range members {
		m.mu.Lock()
		for v := range m.values {
			all[v] = true
		}
		m.mu.Unlock()
	}
	return len(all)
}

func await(what string, holds func() bool) {
	deadline := time.Now().Add(40 * time.Second)
	for !holds() {
		check(time.Now().Before(deadline), "not in time: %s", what)
		time.Sleep(20 * time.Millisecond)
	}
}

func sizes(want int, members ...*member) func() bool {
	return func() bool {
		for _, m := range members {
			if m.size() != want {
				return false
			}
		}
		return true
	}
}

func create(admin *kadm.Client, topic string, partitions int32) {
	_, err := admin.CreateTopic(context.Background(), partitions, 1, nil, topic)
	must(err, "create topic")
}

func produce(bootstrap, topic string, first, count int) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(err, "producer")
	defer client.Close()
	for n := first; n < first+count; n++ {
		record := &kgo.Record{Topic: topic, Partition: int32(n % partitions), Value: []byte(fmt.Sprint("v", n))}
		client.Produce(context.Background(), record, func(_ *kgo.Record, err error) { must(err, "produce") })
	}
	must(client.Flush(context.Background()), "flush")
}

// describe asks for a group of either protocol: its state, and how many members it has.
func describe(admin *kadm.Client, name string) (string, int) {
	described, err := admin.DescribeConsumerGroups(context.Background(), name)
	must(err, "describe")
	if found := described[name]; found.Err == nil {
		for _, m := range found.Members {
			check(m.MemberType == 1 && m.MemberEpoch <= found.Epoch, "described %+v", found)
		}
		return found.State, len(found.Members)
	}
	classic, err := admin.DescribeGroups(context.Background(), name)
	must(err, "describe")
	return classic[name].State, len(classic[name].Members)
}

func group(admin *kadm.Client, bootstrap, topic string, more ...kgo.Opt) {
	ctx := context.Background()
	create(admin, topic, partitions)
	produce(bootstrap, topic, 0, 600)
	name := topic + "-group"
	a, b, c := newMember(bootstrap, name, topic, more...), newMember(bootstrap, name, topic, more...), newMember(bootstrap, name, topic, more...)
	await("2, 2, 2", sizes(2, a, b, c))
	await("600 values", func() bool { return distinct(a, b, c) == 600 })
	c.leave()
	await("3, 3", sizes(3, a, b))
	await("a description", func() bool { state, members := describe(admin, name); return state == "Stable" && members == 2 })
	a.leave()
	b.leave()
	produce(bootstrap, topic, 600, 60)
	again := newMember(bootstrap, name, topic, more...)
	await("the new values", func() bool { return distinct(again) >= 60 })
	check(distinct(again) == 60, "restart from the committed offsets, not %d", distinct(again))
	again.leave()
	lag, err := admin.Lag(ctx, name)
	must(err, "lag")
	check(lag[name].Lag.Total() == 0, "lag %d", lag[name].Lag.Total())
	_, err = admin.DeleteGroups(ctx, name)
	must(err, "delete group")
}

// changes: members of the consumer protocol come and go while values are produced and committed, and the topic grows.
func changes(admin *kadm.Client, bootstrap string) {
	const topic, name = "go-changes", "go-changes-group"
	create(admin, topic, partitions)
	next := []kgo.Opt{kgo.ServerSideBalancer(), kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(time.Second)}
	a, b := newMember(bootstrap, name, topic, next...), newMember(bootstrap, name, topic, next...)
	await("3, 3", sizes(3, a, b))
	began := time.Now()
	for first := 0; first < 3000; first += 300 {
		produce(bootstrap, topic, first, 300)
		if first == 600 || first == 1500 {
			c := newMember(bootstrap, name, topic, next...)
			await("2, 2, 2", sizes(2, a, b, c))
			produce(bootstrap, topic, 3000+first, 300)
			await("values", func() bool { return distinct(c) > 0 })
			c.leave()
			await("3, 3", sizes(3, a, b))
		}
	}
	_, err := admin.CreatePartitions(context.Background(), 2, topic)
	must(err, "create partitions")
	await("4, 4", sizes(4, a, b))
	check(time.Since(began) < 22*time.Second, "five changes took %v, as if each waited for a heartbeat", time.Since(began))
	a.leave()
	b.leave()
}

// heartbeats counts a client's heartbeats on their way out and their answers.
type heartbeats struct{ sent, answered atomic.Int32 }

const heartbeatKey = 12

func (h *heartbeats) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == heartbeatKey {
		h.sent.Add(1)
	}
}

func (h *heartbeats) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == heartbeatKey {
		h.answered.Add(1)
	}
}

func (h *heartbeats) waiting() bool { return h.sent.Load() == h.answered.Load()+1 }

// held: one may be held for 20 s, and the next comes 8 s later; what takes less than 7 s waited for no heartbeat.
func held(admin *kadm.Client, bootstrap string) {
	const topic = "go-held"
	create(admin, topic, partitions)
	slow := []kgo.Opt{kgo.SessionTimeout(60 * time.Second), kgo.HeartbeatInterval(8 * time.Second)}
	var ofA, ofAlone heartbeats
	a := newMember(bootstrap, topic+"-pushed", topic, append(slow, kgo.WithHooks(&ofA))...)
	alone := newMember(bootstrap, topic+"-alone", topic, append(slow, kgo.WithHooks(&ofAlone))...)
	await("all partitions", sizes(partitions, a, alone))
	await("heartbeats that wait", func() bool { return ofA.waiting() && ofAlone.waiting() })
	time.Sleep(200 * time.Millisecond) // an answer that is not held would be here
	check(ofA.waiting() && ofAlone.waiting(), "a heartbeat was answered at once")

	began := time.Now()
	b := newMember(bootstrap, topic+"-pushed", topic, slow...)
	await("3, 3", sizes(3, a, b))
	check(time.Since(began) < 7*time.Second, "the newcomer waited %v", time.Since(began))

	began = time.Now()
	at := map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 1}}}
	alone.client.CommitOffsetsSync(context.Background(), at, nil)
	check(time.Since(began) < 4*time.Second, "the commit waited %v", time.Since(began))
	await("the next heartbeat that waits", ofAlone.waiting)
	began = time.Now()
	alone.leave()
	check(time.Since(began) < 4*time.Second, "the leave waited %v", time.Since(began))
	a.leave()
	b.leave()
}

func main() {
	bootstrap := os.Args[1]
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	must(err, "client")
	defer client.Close()
	must(client.Ping(context.Background()), "ping")
	admin := kadm.NewClient(client)
	if len(os.Args) > 2 {
		fenced(admin, bootstrap)
		return
	}
	group(admin, bootstrap, "go-next", kgo.ServerSideBalancer())
	fmt.Println("ok a group of the consumer protocol")
	changes(admin, bootstrap)
	fmt.Println("ok changes of a group of the consumer protocol")
	held(admin, bootstrap)
	fmt.Println("ok held heartbeats")
}
