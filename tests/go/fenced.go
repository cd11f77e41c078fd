package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// commit returns the error of each partition.
func (m *member) commit(topic string, offset int64, partitions ...int32) map[int32]error {
	at := map[int32]kgo.EpochOffset{}
	for _, p := range partitions {
		at[p] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	errors := map[int32]error{}
	m.client.CommitOffsetsSync(context.Background(), map[string]map[int32]kgo.EpochOffset{topic: at},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
			must(err, "commit")
			for _, t := range answer.Topics {
				for _, p := range t.Partitions {
					errors[p.Partition] = kerr.ErrorForCode(p.ErrorCode)
				}
			}
		})
	return errors
}

// fenced: members of a group whose commits are fenced by ownership.
func fenced(admin *kadm.Client, bootstrap string) {
	const topic = "fenced"
	create(admin, topic, 4)
	a := newMember(bootstrap, topic, topic, kgo.ServerSideBalancer())
	await("4", sizes(4, a))
	b := newMember(bootstrap, topic, topic, kgo.ServerSideBalancer())
	await("2, 2", sizes(2, a, b))
	kept, lost := a.any(), b.any()

	errors := a.commit(topic, 3, kept, lost)
	check(errors[kept] == nil && errors[lost] == kerr.FencedMemberEpoch, "errors: %v", errors)
	fmt.Println("ok a lost partition is refused, the rest is committed")

	errors = b.commit(topic, 5, lost)
	check(errors[lost] == nil, "errors: %v", errors)
	errors = a.commit(topic, 6, kept)
	check(errors[kept] == nil, "errors: %v", errors)
	check(a.size() == 2 && b.size() == 2, "a member left the group")
	fmt.Println("ok nobody leaves the group for it")
	a.leave()
	b.leave()
}
