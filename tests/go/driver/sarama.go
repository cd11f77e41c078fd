package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

type saramas struct {
	bootstrap []string
	admin     sarama.ClusterAdmin
	producers map[string]sarama.SyncProducer
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.RefreshFrequency = time.Second
	return config
}

func newSarama(o options) (client, error) {
	bootstrap := []string{o.Bootstrap}
	admin, err := sarama.NewClusterAdmin(bootstrap, saramaConfig())
	return &saramas{bootstrap, admin, map[string]sarama.SyncProducer{}}, err
}

func (s *saramas) do(c command) (answer, error) {
	switch c.Do {
	case "produce":
		return nil, s.produce(c)
	case "transact":
		return nil, s.transact(c)
	case "end":
		return nil, s.end(c)
	case "copy":
		return nil, s.copy(c)
	case "enter":
		return nil, s.enter(c)
	case "send":
		return nil, s.send(c)
	case "read":
		return s.read(c)
	case "create_topic":
		return nil, s.admin.CreateTopic(c.Topic, &sarama.TopicDetail{NumPartitions: int32(c.Partitions), ReplicationFactor: 1}, false)
	case "topics":
		found, err := s.admin.ListTopics()
		return answer{"topics": names(found)}, err
	case "delete_topic":
		return nil, s.admin.DeleteTopic(c.Topic)
	case "groups":
		found, err := s.admin.ListConsumerGroups()
		return answer{"groups": names(found)}, err
	case "describe":
		found, err := s.admin.DescribeConsumerGroups([]string{c.Group})
		if err != nil {
			return nil, err
		}
		return answer{"state": found[0].State, "members": len(found[0].Members)}, nil
	case "offsets":
		return s.offsets(c)
	case "set_offset":
		wanted := map[int32]sarama.OffsetAndMetadata{int32(c.Partition): {Offset: c.Offset, LeaderEpoch: -1}}
		_, err := s.admin.AlterConsumerGroupOffsets(c.Group, map[string]map[int32]sarama.OffsetAndMetadata{c.Topic: wanted}, nil)
		return nil, err
	case "delete_offset":
		return nil, s.admin.DeleteConsumerGroupOffset(c.Group, c.Topic, int32(c.Partition))
	case "delete_group":
		return nil, s.admin.DeleteConsumerGroup(c.Group)
	}
	return nil, fmt.Errorf("no %s", c.Do)
}

func names[V any](found map[string]V) []string {
	names := []string{}
	for name := range found {
		names = append(names, name)
	}
	return names
}

func (s *saramas) offsets(c command) (answer, error) {
	found, err := s.admin.ListConsumerGroupOffsets(c.Group, nil)
	if err != nil {
		return nil, err
	}
	offsets := map[int32]int64{}
	for partition, block := range found.Blocks[c.Topic] {
		offsets[partition] = block.Offset
	}
	return answer{"offsets": offsets}, nil
}

func (s *saramas) produce(c command) error {
	config := saramaConfig()
	if err := config.Producer.Compression.UnmarshalText([]byte(c.Codec)); err != nil {
		return err
	}
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Flush.Frequency = 50 * time.Millisecond
	if c.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(s.bootstrap, config)
	if err != nil {
		return err
	}
	var messages []*sarama.ProducerMessage
	for n := c.First; n < c.First+c.Count; n++ {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: c.Topic, Partition: int32(n % c.Partitions),
			Key: sarama.StringEncoder(c.key(n)), Value: sarama.StringEncoder(c.value(n)),
			Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("x")}},
		})
	}
	return errors.Join(producer.SendMessages(messages), producer.Close())
}

func (s *saramas) read(c command) (answer, error) {
	config := saramaConfig()
	if c.Isolation == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(s.bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	messages := make(chan *sarama.ConsumerMessage)
	for partition := range c.Partitions {
		of, err := consumer.ConsumePartition(c.Topic, int32(partition), sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		defer of.AsyncClose()
		go func() {
			for message := range of.Messages() {
				messages <- message
			}
		}()
	}
	found := []record{}
	for len(found) < c.Count {
		message := <-messages
		found = append(found, record{message.Partition, message.Offset, string(message.Key), string(message.Value)})
	}
	return answer{"records": found}, nil
}

// saramaHandler tells of the claims of a session: each is consumed in a goroutine of its own.
type saramaHandler struct{ *member }

func (saramaHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	h.given(claim.Partition())
	defer h.taken(claim.Partition())
	for message := range claim.Messages() {
		h.read(record{message.Partition, message.Offset, string(message.Value)})
		session.MarkMessage(message, "")
		if claim.HighWaterMarkOffset() == message.Offset+1 {
			session.Commit()
			h.committed(nil)
		}
	}
	return nil
}

func (s *saramas) member(m *member, until context.Context) error {
	config := saramaConfig()
	config.ClientID = m.Name
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = m.session()
	config.Consumer.Group.Heartbeat.Interval = m.heartbeat()
	config.Consumer.Group.InstanceId = m.Instance
	if m.Cooperative {
		config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	}
	group, err := sarama.NewConsumerGroup(s.bootstrap, m.Group, config)
	if err != nil {
		return err
	}
	for until.Err() == nil {
		if err := group.Consume(until, []string{m.Topic}, saramaHandler{m}); err != nil && !slices.Contains([]error{sarama.ErrClosedConsumerGroup, context.Canceled}, err) {
			say(answer{"error": err.Error()})
		}
	}
	return group.Close()
}
