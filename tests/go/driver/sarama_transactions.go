package main

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
)

func (s *saramas) transactional(c command) (sarama.SyncProducer, error) {
	if producer := s.producers[c.Name]; producer != nil {
		return producer, nil
	}
	config := saramaConfig()
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Transaction.ID = c.ID
	producer, err := sarama.NewSyncProducer(s.bootstrap, config)
	if err == nil {
		s.producers[c.Name] = producer
	}
	return producer, err
}

func (s *saramas) transact(c command) error {
	producer, err := s.transactional(c)
	if err != nil {
		return err
	}
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	var messages []*sarama.ProducerMessage
	for n := c.First; n < c.First+c.Count; n++ {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: c.Topic, Partition: int32(n % c.Partitions),
			Key: sarama.StringEncoder(c.key(n)), Value: sarama.StringEncoder(c.value(n)),
		})
	}
	return producer.SendMessages(messages)
}

func (s *saramas) end(c command) error {
	if c.Commit {
		return s.producers[c.Name].CommitTxn()
	}
	return s.producers[c.Name].AbortTxn()
}

// saramaSource hands over the messages of all claims, and the session.
type saramaSource struct {
	sessions chan sarama.ConsumerGroupSession
	messages chan *sarama.ConsumerMessage
}

func (f saramaSource) Setup(session sarama.ConsumerGroupSession) error {
	f.sessions <- session
	return nil
}
func (saramaSource) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (f saramaSource) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		select {
		case f.messages <- message:
		case <-session.Context().Done():
		}
	}
	return nil
}

func (s *saramas) copy(c command) error {
	config := saramaConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	group, err := sarama.NewConsumerGroup(s.bootstrap, c.Group, config)
	if err != nil {
		return err
	}
	source := saramaSource{make(chan sarama.ConsumerGroupSession, 1), make(chan *sarama.ConsumerMessage)}
	until, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- group.Consume(until, []string{c.Source}, source) }()
	session := <-source.sessions
	producer, err := s.transactional(c)
	if err == nil {
		err = producer.BeginTxn()
	}
	// Without a producer nothing is read; the session ends.
	metadata := &sarama.ConsumerGroupMetadata{GroupID: c.Group, GenerationID: session.GenerationID(), MemberID: session.MemberID()}
	for n := 0; err == nil && n < c.Count; n++ {
		message := <-source.messages
		_, _, err = producer.SendMessage(&sarama.ProducerMessage{
			Topic: c.Topic, Partition: message.Partition,
			Key: sarama.ByteEncoder(message.Key), Value: sarama.ByteEncoder(message.Value),
		})
		err = errors.Join(err, producer.AddMessageToTxnWithGroupMetadata(message, metadata, nil))
	}
	if err == nil {
		err = s.end(c)
	}
	stop()
	return errors.Join(err, <-ended, group.Close())
}
