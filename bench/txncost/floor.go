package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// nodes has separate connections to all nodes, for minimal requests. They measure the cost of a
// message, to one node and to all nodes at once, without its content.
type nodes struct {
	dialer *client.Dialer
	all    []*client.BatchConn
}

// reach connects to the nodes of the cluster.
func reach(ctx context.Context, of *kv.Client) (*nodes, error) {
	infos, err := admin.New(of).Nodes(ctx)
	if err != nil {
		return nil, err
	}
	n := &nodes{dialer: client.NewDialer(client.DialerConfig{})}
	var streams atomic.Uint64
	id := rand.Uint64() | 1
	for _, info := range infos {
		n.all = append(n.all, client.NewBatchConn(client.BatchConfig{
			Dialer: n.dialer, Address: info.Address, Client: id,
			Stream: func() uint64 { return streams.Add(1) },
		}))
	}
	return n, nil
}

func (n *nodes) close() {
	for _, c := range n.all {
		c.Close()
	}
	_ = n.dialer.Close() // no data can be lost
}

// ask returns an operation that sends a message to each of the first nodes, concurrently, and waits
// for the answers.
func (n *nodes) ask(count int) func(context.Context, int) error {
	return func(ctx context.Context, turn int) error {
		count := min(count, len(n.all))
		calls := client.NewCalls(count)
		defer calls.Abandon()
		for i := range count {
			requests := []*kvpb.Request{{Command: &kvpb.Request_Now{Now: &kvpb.NowRequest{}}}}
			taken, err := n.all[(turn+i)%len(n.all)].Submit(calls, []int{i}, requests)
			if err != nil {
				return err
			}
			if taken == 0 {
				return errors.New("a connection broke")
			}
		}
		for range count {
			select {
			case i := <-calls.Done():
				if _, err := calls.Outcome(i); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
}
