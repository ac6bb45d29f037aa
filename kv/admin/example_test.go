package admin_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// A node is drained before it is restarted: others lead in its place.
func Example() {
	ctx := context.Background()
	client, err := kv.Open(ctx, []string{"127.0.0.1:7400"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	cluster := admin.New(client)
	nodes, err := cluster.Nodes(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range nodes {
		fmt.Println(n.ID, n.Address, n.Alive, n.Replicas, n.Leaders)
	}
	progress, err := cluster.SetNodeStatus(ctx, nodes[0].ID, admin.NodeDraining)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(progress.LeadersLeft, "partitions are still led by it")
}
