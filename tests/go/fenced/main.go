// franz-go's consumers in a group that is fenced by ownership: `go run ./fenced BOOTSTRAP`. Prints a line a step.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const topic = "fenced"

func check(holds bool, format string, arguments ...any) {
	if !holds {
		fmt.Printf("failed: "+format+"\n", arguments...)
		os.Exit(1)
	}
}

// member is a consumer and what it holds.
type member struct {
	client *kgo.Client
	mu     sync.Mutex
	held   map[int32]bool
}

var members []*member

func newMember(bootstrap string) *member {
	m := &member{held: map[int32]bool{}}
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
	// The consumer protocol is behind a hidden switch.
	next := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
	client, err := kgo.NewClient(
		kgo.WithContext(next), kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(), kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)),
		kgo.OnPartitionsLost(change(false)),
	)
	check(err == nil, "consumer: %v", err)
	m.client = client
	members = append(members, m)
	return m
}

func (m *member) holds() (held []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.held {
		held = append(held, p)
	}
	return held
}

func poll(counts ...int) {
	for deadline := time.Now().Add(30 * time.Second); ; {
		settled := true
		for i, m := range members {
			short, stop := context.WithTimeout(context.Background(), 20*time.Millisecond)
			m.client.PollFetches(short)
			stop()
			settled = settled && len(m.holds()) == counts[i]
		}
		if settled {
			return
		}
		check(time.Now().Before(deadline), "not within 30 s: %v", counts)
	}
}

// commit returns the error of each partition.
func (m *member) commit(offset int64, partitions ...int32) map[int32]error {
	at := map[int32]kgo.EpochOffset{}
	for _, p := range partitions {
		at[p] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	errors := map[int32]error{}
	m.client.CommitOffsetsSync(context.Background(), map[string]map[int32]kgo.EpochOffset{topic: at},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
			check(err == nil, "commit: %v", err)
			for _, t := range answer.Topics {
				for _, p := range t.Partitions {
					errors[p.Partition] = kerr.ErrorForCode(p.ErrorCode)
				}
			}
		})
	return errors
}

func main() {
	bootstrap := os.Args[1]
	admin, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	check(err == nil, "admin: %v", err)
	_, err = kadm.NewClient(admin).CreateTopic(context.Background(), 4, 1, nil, topic)
	check(err == nil, "topic: %v", err)
	admin.Close()
	a := newMember(bootstrap)
	poll(4)
	b := newMember(bootstrap)
	poll(2, 2)
	kept, lost := a.holds()[0], b.holds()[0]

	errors := a.commit(3, kept, lost)
	check(errors[kept] == nil && errors[lost] == kerr.FencedMemberEpoch, "errors: %v", errors)
	fmt.Println("ok a lost partition is refused, the rest is committed")

	errors = b.commit(5, lost)
	check(errors[lost] == nil, "errors: %v", errors)
	errors = a.commit(6, kept)
	check(errors[kept] == nil, "errors: %v", errors)
	poll(2, 2)
	fmt.Println("ok nobody leaves the group for it")
	for _, m := range members {
		m.client.Close()
	}
}
