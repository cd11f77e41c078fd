package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franz struct {
	bootstrap string
	admin     *kadm.Client
	producers map[string]*kgo.Client
}

func newFranz(o options) (client, error) {
	plain, err := kgo.NewClient(kgo.SeedBrokers(o.Bootstrap), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return &franz{o.Bootstrap, kadm.NewClient(plain), map[string]*kgo.Client{}}, nil
}

func (f *franz) do(c command) (answer, error) {
	switch c.Do {
	case "produce":
		return nil, f.produce(c)
	case "transact":
		return nil, f.transact(c)
	case "end":
		return nil, f.producers[c.Name].EndTransaction(ctx, kgo.TransactionEndTry(c.Commit))
	case "copy":
		return nil, f.copy(c)
	case "enter":
		return nil, f.enter(c)
	case "send":
		return nil, f.send(c)
	case "read":
		return f.read(c)
	case "create_topic":
		_, err := f.admin.CreateTopic(ctx, int32(c.Partitions), 1, nil, c.Topic)
		return nil, err
	case "topics":
		found, err := f.admin.ListTopics(ctx)
		return answer{"topics": found.Names()}, err
	case "delete_topic":
		_, err := f.admin.DeleteTopic(ctx, c.Topic)
		return nil, err
	case "groups":
		found, err := f.admin.ListGroups(ctx)
		return answer{"groups": found.Groups()}, err
	case "describe":
		found, err := f.admin.DescribeGroups(ctx, c.Group)
		return answer{"state": found[c.Group].State, "members": len(found[c.Group].Members)}, err
	case "offsets":
		found, err := f.admin.FetchOffsets(ctx, c.Group)
		offsets := map[int32]int64{}
		found.Each(func(r kadm.OffsetResponse) { offsets[r.Partition] = r.At })
		return answer{"offsets": offsets}, err
	case "set_offset":
		var wanted kadm.Offsets
		wanted.Add(kadm.Offset{Topic: c.Topic, Partition: int32(c.Partition), At: c.Offset, LeaderEpoch: -1})
		return nil, f.admin.CommitAllOffsets(ctx, c.Group, wanted)
	case "delete_offset":
		var which kadm.TopicsSet
		which.Add(c.Topic, int32(c.Partition))
		done, err := f.admin.DeleteOffsets(ctx, c.Group, which)
		return nil, errors.Join(err, done.Error())
	case "delete_group":
		_, err := f.admin.DeleteGroup(ctx, c.Group)
		return nil, err
	}
	return nil, fmt.Errorf("no %s", c.Do)
}

func (f *franz) produce(c command) error {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(f.bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[c.Codec]), kgo.ProducerLinger(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer producer.Close()
	var records []*kgo.Record
	for n := c.First; n < c.First+c.Count; n++ {
		records = append(records, &kgo.Record{
			Topic: c.Topic, Partition: int32(n % c.Partitions), Key: []byte(c.key(n)), Value: []byte(c.value(n)),
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}},
		})
	}
	return producer.ProduceSync(ctx, records...).FirstErr()
}

func (f *franz) transact(c command) error {
	producer := f.producers[c.Name]
	if producer == nil {
		made, err := kgo.NewClient(kgo.SeedBrokers(f.bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.TransactionalID(c.ID), kgo.TransactionTimeout(time.Minute))
		if err != nil {
			return err
		}
		producer, f.producers[c.Name] = made, made
	}
	if err := producer.BeginTransaction(); err != nil {
		return err
	}
	var records []*kgo.Record
	for n := c.First; n < c.First+c.Count; n++ {
		records = append(records, &kgo.Record{
			Topic: c.Topic, Partition: int32(n % c.Partitions), Key: []byte(c.key(n)), Value: []byte(c.value(n)),
		})
	}
	return producer.ProduceSync(ctx, records...).FirstErr()
}

// copy is what a session of a group and a producer is made for.
func (f *franz) copy(c command) error {
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(f.bootstrap), kgo.TransactionalID(c.ID),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets())
	if err != nil {
		return err
	}
	defer session.Close()
	var copies []*kgo.Record
	for len(copies) < c.Count {
		fetches := session.PollRecords(ctx, c.Count-len(copies))
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			copies = append(copies, &kgo.Record{Topic: c.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value})
		})
	}
	if err := session.Begin(); err != nil {
		return err
	}
	if err := session.ProduceSync(ctx, copies...).FirstErr(); err != nil {
		return err
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(c.Commit))
	if err == nil && committed != c.Commit {
		err = errors.New("the session did not commit")
	}
	return err
}

func (f *franz) read(c command) (answer, error) {
	level := kgo.ReadUncommitted()
	if c.Isolation == "read_committed" {
		level = kgo.ReadCommitted()
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(f.bootstrap), kgo.ConsumeTopics(c.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(level))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	found := []record{}
	for len(found) < c.Count {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			found = append(found, record{r.Partition, r.Offset, string(r.Key), string(r.Value)})
		})
	}
	return answer{"records": found}, nil
}

func (f *franz) member(m *member, until context.Context) error {
	given := func(_ context.Context, _ *kgo.Client, moved map[string][]int32) { m.given(moved[m.Topic]...) }
	taken := func(_ context.Context, _ *kgo.Client, moved map[string][]int32) { m.taken(moved[m.Topic]...) }
	settings := []kgo.Opt{
		kgo.SeedBrokers(m.Bootstrap), kgo.ClientID(m.Name), kgo.ConsumerGroup(m.Group), kgo.ConsumeTopics(m.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(m.session()),
		kgo.HeartbeatInterval(m.heartbeat()), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(given), kgo.OnPartitionsRevoked(taken), kgo.OnPartitionsLost(taken),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
	}
	if m.Instance != "" {
		settings = append(settings, kgo.InstanceID(m.Instance))
	}
	if m.Pattern {
		settings = append(settings, kgo.ConsumeRegex())
	}
	switch {
	case m.Protocol == "consumer":
		settings = append(settings, kgo.ServerSideBalancer())
	case m.Cooperative:
		settings = append(settings, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	default:
		settings = append(settings, kgo.Balancers(kgo.RangeBalancer()))
	}
	consumer, err := kgo.NewClient(settings...)
	if err != nil {
		return err
	}
	for until.Err() == nil {
		fetches := consumer.PollFetches(until)
		var found []record
		fetches.EachRecord(func(r *kgo.Record) { found = append(found, record{r.Partition, r.Offset, string(r.Value)}) })
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.Canceled) {
				say(answer{"error": failed.Err.Error()})
			}
		}
		m.read(found...)
		if len(found) > 0 {
			m.committed(consumer.CommitUncommittedOffsets(ctx))
		}
	}
	consumer.Close()
	return nil
}
