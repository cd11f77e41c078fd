// TLS, SASL and ACLs: enter opens a producer with the settings of a case, sends a record and reads it in a group; send
// uses the producer again.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xdg "github.com/xdg-go/scram"
)

// secured are the settings of a case. Without a mechanism, the client shows the certificate in the file Own.
type secured struct {
	Bootstrap, Mechanism, User, Password, Ca, Own, Token, Value string
	Patience                                                    float64 `json:"patience_s"`
}

func (s secured) patience() time.Duration { return time.Duration(s.Patience * float64(time.Second)) }

func (s secured) tls() (*tls.Config, error) {
	ca, err := os.ReadFile(s.Ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	config := &tls.Config{RootCAs: pool}
	if s.Mechanism == "" {
		own, err := tls.LoadX509KeyPair(s.Own, s.Own)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// -- franz-go

func (f *franz) enter(c command) error {
	config, err := c.tls()
	if err != nil {
		return err
	}
	settings := []kgo.Opt{kgo.SeedBrokers(c.Bootstrap), kgo.DialTLSConfig(config), kgo.MetadataMinAge(50 * time.Millisecond)}
	switch c.Mechanism {
	case "PLAIN":
		settings = append(settings, kgo.SASL(plain.Auth{User: c.User, Pass: c.Password}.AsMechanism()))
	case "OAUTHBEARER":
		settings = append(settings, kgo.SASL(oauth.Auth{Token: c.Token}.AsMechanism()))
	case "SCRAM-SHA-256":
		settings = append(settings, kgo.SASL(scram.Auth{User: c.User, Pass: c.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		settings = append(settings, kgo.SASL(scram.Auth{User: c.User, Pass: c.Password}.AsSha512Mechanism()))
	}
	producer, err := kgo.NewClient(append(settings, kgo.RecordDeliveryTimeout(c.patience()))...)
	if err != nil {
		return err
	}
	f.producers[c.Name] = producer
	if err := f.send(c); err != nil {
		return err
	}
	consumer, err := kgo.NewClient(append(settings, kgo.ConsumerGroup(c.Topic), kgo.ConsumeTopics(c.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return err
	}
	defer consumer.Close()
	until, stop := context.WithTimeout(ctx, c.patience())
	defer stop()
	fetches := consumer.PollFetches(until)
	if err := fetches.Err(); err != nil {
		return err
	}
	if read := fetches.Records(); len(read) != 1 || string(read[0].Value) != c.Value {
		return errors.New("another record")
	}
	return nil
}

func (f *franz) send(c command) error {
	until, stop := context.WithTimeout(ctx, c.patience())
	defer stop()
	return f.producers[c.Name].ProduceSync(until, &kgo.Record{Topic: c.Topic, Value: []byte(c.Value)}).FirstErr()
}

// -- sarama

// conversation is SCRAM for sarama, which has none of its own: as its example does it.
type conversation struct {
	*xdg.ClientConversation
	hash xdg.HashGeneratorFcn
}

func (c *conversation) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

// token gives sarama the one of the case.
type token string

func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func (s *saramas) enter(c command) error {
	config := saramaConfig()
	config.Net.TLS.Enable = true
	var err error
	if config.Net.TLS.Config, err = c.tls(); err != nil {
		return err
	}
	if c.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.User, config.Net.SASL.Password = c.User, c.Password
		config.Net.SASL.Mechanism = sarama.SASLMechanism(c.Mechanism)
		config.Net.SASL.TokenProvider = token(c.Token)
		hashes := map[string]xdg.HashGeneratorFcn{"SCRAM-SHA-256": xdg.SHA256, "SCRAM-SHA-512": xdg.SHA512}
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: hashes[c.Mechanism]} }
	}
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	producer, err := sarama.NewSyncProducer([]string{c.Bootstrap}, config)
	if err != nil {
		return err
	}
	s.producers[c.Name] = producer
	if err := s.send(c); err != nil {
		return err
	}
	group, err := sarama.NewConsumerGroup([]string{c.Bootstrap}, c.Topic, config)
	if err != nil {
		return err
	}
	defer group.Close()
	until, stop := context.WithTimeout(ctx, c.patience())
	defer stop()
	read := &reader{stop: stop}
	if err := group.Consume(until, []string{c.Topic}, read); err != nil {
		return err
	}
	if read.value != c.Value {
		return errors.New("another record: " + read.value)
	}
	return nil
}

func (s *saramas) send(c command) error {
	_, _, err := s.producers[c.Name].SendMessage(&sarama.ProducerMessage{Topic: c.Topic, Value: sarama.StringEncoder(c.Value)})
	return err
}

// reader keeps one value, and stops.
type reader struct {
	value string
	stop  func()
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *reader) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	if message, open := <-claim.Messages(); open {
		r.value = string(message.Value)
		r.stop()
	}
	return nil
}
