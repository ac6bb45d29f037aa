package embedded_test

import (
	"context"
	"fmt"
	"log"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
)

// A cluster in this process is an etcd, too: any client of etcd is given its endpoints.
func ExampleCluster() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "embedded-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cluster, err := embedded.StartCluster(ctx, embedded.ClusterConfig{Dir: dir, Nodes: 1, Cores: 1,
		Listen: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	if err := cluster.WaitReady(ctx); err != nil {
		log.Fatal(err)
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: cluster.Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	if _, err := etcd.Put(ctx, "greeting", "hello"); err != nil {
		log.Fatal(err)
	}
	answer, err := etcd.Get(ctx, "greeting")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", answer.Kvs[0].Value)
	// Output: hello
}
