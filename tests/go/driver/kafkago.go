package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
)

type kafkaGo struct {
	bootstrap string
	// transport forgets soon what topics there are; the default one keeps that for six seconds.
	transport *kafka.Transport
	admin     *kafka.Client
}

func newKafkaGo(o options) (client, error) {
	transport := &kafka.Transport{MetadataTTL: 100 * time.Millisecond}
	admin := &kafka.Client{Addr: kafka.TCP(o.Bootstrap), Timeout: 20 * time.Second, Transport: transport}
	return &kafkaGo{o.Bootstrap, transport, admin}, nil
}

func (k *kafkaGo) do(c command) (answer, error) {
	switch c.Do {
	case "produce":
		return nil, k.produce(c)
	case "read":
		return k.read(c)
	case "create_topic":
		wanted := []kafka.TopicConfig{{Topic: c.Topic, NumPartitions: c.Partitions, ReplicationFactor: 1}}
		done, err := k.admin.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: wanted})
		if err != nil {
			return nil, err
		}
		return nil, done.Errors[c.Topic]
	case "topics":
		found, err := k.admin.Metadata(ctx, &kafka.MetadataRequest{})
		if err != nil {
			return nil, err
		}
		topics := []string{}
		for _, topic := range found.Topics {
			topics = append(topics, topic.Name)
		}
		return answer{"topics": topics}, nil
	case "delete_topic":
		done, err := k.admin.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{c.Topic}})
		if err != nil {
			return nil, err
		}
		return nil, done.Errors[c.Topic]
	}
	return k.doGroups(c)
}

func (k *kafkaGo) doGroups(c command) (answer, error) {
	switch c.Do {
	case "groups":
		found, err := k.admin.ListGroups(ctx, &kafka.ListGroupsRequest{})
		if err != nil {
			return nil, err
		}
		groups := []string{}
		for _, group := range found.Groups {
			groups = append(groups, group.GroupID)
		}
		return answer{"groups": groups}, found.Error
	case "describe":
		found, err := k.admin.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{c.Group}})
		if err != nil {
			return nil, err
		}
		group := found.Groups[0]
		return answer{"state": group.GroupState, "members": len(group.Members)}, group.Error
	case "offsets":
		return k.offsets(c)
	case "set_offset":
		wanted := map[string][]kafka.OffsetCommit{c.Topic: {{Partition: c.Partition, Offset: c.Offset}}}
		done, err := k.admin.OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: c.Group, GenerationID: -1, Topics: wanted})
		if err != nil {
			return nil, err
		}
		return nil, done.Topics[c.Topic][0].Error
	case "delete_offset":
		which := map[string][]int{c.Topic: {c.Partition}}
		done, err := k.admin.OffsetDelete(ctx, &kafka.OffsetDeleteRequest{GroupID: c.Group, Topics: which})
		if err != nil {
			return nil, err
		}
		return nil, errors.Join(done.Error, done.Topics[c.Topic][0].Error)
	case "delete_group":
		done, err := k.admin.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{c.Group}})
		if err != nil {
			return nil, err
		}
		return nil, done.Errors[c.Group]
	}
	return nil, fmt.Errorf("no %s", c.Do)
}

func (k *kafkaGo) offsets(c command) (answer, error) {
	wanted := []int{}
	for partition := range c.Partitions {
		wanted = append(wanted, partition)
	}
	found, err := k.admin.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: c.Group, Topics: map[string][]int{c.Topic: wanted}})
	if err != nil {
		return nil, err
	}
	offsets := map[int]int64{}
	for _, at := range found.Topics[c.Topic] {
		offsets[at.Partition] = at.CommittedOffset
	}
	return answer{"offsets": offsets}, found.Error
}

func (k *kafkaGo) produce(c command) error {
	var codec kafka.Compression
	if c.Codec != "none" {
		if err := codec.UnmarshalText([]byte(c.Codec)); err != nil {
			return err
		}
	}
	to := 0
	writer := &kafka.Writer{
		Addr: kafka.TCP(k.bootstrap), Topic: c.Topic, RequiredAcks: kafka.RequireAll, Compression: codec, Transport: k.transport,
		// Ten seconds unless told, which the start of all the matrix's clients may take on a busy machine.
		ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		BatchTimeout: 50 * time.Millisecond, Balancer: kafka.BalancerFunc(func(kafka.Message, ...int) int {
			to++
			return (c.First + to - 1) % c.Partitions
		}),
	}
	var messages []kafka.Message
	for n := c.First; n < c.First+c.Count; n++ {
		messages = append(messages, kafka.Message{
			Key: []byte(c.key(n)), Value: []byte(c.value(n)), Headers: []kafka.Header{{Key: "h", Value: []byte("x")}},
		})
	}
	err := writer.WriteMessages(ctx, messages...)
	for errors.Is(err, kafka.UnknownTopicOrPartition) { // a new topic is not known to the transport at once
		time.Sleep(50 * time.Millisecond)
		to = 0
		err = writer.WriteMessages(ctx, messages...)
	}
	return errors.Join(err, writer.Close())
}

func (k *kafkaGo) reader(topic string, partition int, offset int64) (*kafka.Reader, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{k.bootstrap}, Topic: topic, Partition: partition, MaxWait: 100 * time.Millisecond,
	})
	return reader, reader.SetOffset(offset)
}

func (k *kafkaGo) read(c command) (answer, error) {
	level := kafka.ReadUncommitted
	if c.Isolation == "read_committed" {
		level = kafka.ReadCommitted
	}
	messages := make(chan kafka.Message)
	until, stop := context.WithCancel(ctx)
	defer stop()
	for partition := range c.Partitions {
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: []string{k.bootstrap}, Topic: c.Topic, Partition: partition, MaxWait: 100 * time.Millisecond,
			IsolationLevel: level,
		})
		defer reader.Close()
		if err := reader.SetOffset(kafka.FirstOffset); err != nil {
			return nil, err
		}
		go func() {
			for {
				m, err := reader.ReadMessage(until)
				if err != nil {
					return
				}
				select {
				case messages <- m:
				case <-until.Done():
					return
				}
			}
		}()
	}
	found := []record{}
	for len(found) < c.Count {
		m := <-messages
		found = append(found, record{m.Partition, m.Offset, string(m.Key), string(m.Value)})
	}
	return answer{"records": found}, nil
}

func (k *kafkaGo) member(m *member, until context.Context) error {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: m.Group, Brokers: []string{k.bootstrap}, Topics: []string{m.Topic}, StartOffset: kafka.FirstOffset,
		GroupBalancers: []kafka.GroupBalancer{kafka.RangeGroupBalancer{}}, SessionTimeout: m.session(),
		HeartbeatInterval: m.heartbeat(), JoinGroupBackoff: 200 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	for until.Err() == nil {
		generation, err := group.Next(until)
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				say(answer{"error": err.Error()})
			}
			continue
		}
		k.generation(m, generation)
	}
	return group.Close()
}

// generation reads what was assigned; a reader a partition, until the group has another generation.
func (k *kafkaGo) generation(m *member, generation *kafka.Generation) {
	partitions := []int32{}
	for _, at := range generation.Assignments[m.Topic] {
		partitions = append(partitions, int32(at.ID))
	}
	m.given(partitions...)
	generation.Start(func(ended context.Context) {
		<-ended.Done()
		m.taken(partitions...)
	})
	for _, at := range generation.Assignments[m.Topic] {
		generation.Start(func(ended context.Context) {
			reader, err := k.reader(m.Topic, at.ID, at.Offset)
			if err != nil {
				say(answer{"error": err.Error()})
				return
			}
			defer reader.Close()
			for {
				message, err := reader.ReadMessage(ended)
				if err != nil {
					if !errors.Is(err, kafka.ErrGenerationEnded) && !errors.Is(err, context.Canceled) && !errors.Is(err, io.EOF) {
						say(answer{"error": err.Error()})
					}
					return
				}
				m.read(record{message.Partition, message.Offset, string(message.Value)})
				if message.HighWaterMark == message.Offset+1 {
					next := map[string]map[int]int64{m.Topic: {message.Partition: message.Offset + 1}}
					m.committed(generation.CommitOffsets(next))
				}
			}
		})
	}
}
