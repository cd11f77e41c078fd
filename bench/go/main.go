// Franz-go's kfake for `make bench`: one broker on a port that it prints, until it is killed or its input ends.
//
//	kfake [NAME=VALUE...]
//
// The pairs are broker configs. Sessions may last as long as a run does. Everything is in memory.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	configs := map[string]string{}
	for _, word := range os.Args[1:] {
		name, value, _ := strings.Cut(word, "=")
		configs[name] = value
	}
	cluster, err := kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.GroupMaxSessionTimeout(time.Hour),
		kfake.BrokerConfigs(configs),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer cluster.Close()
	fmt.Println(cluster.ListenAddrs()[0])
	_, _ = io.Copy(io.Discard, os.Stdin)
}
