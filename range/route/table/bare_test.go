package table

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/clock"
	"github.com/tidemarkdb/tidemark/range/route/identity"
	"github.com/tidemarkdb/tidemark/range/route/lifetime"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/metric"
)

// owner has sent nothing, and knows of no node.
type owner struct{}

func (owner) Cluster() uint64         { return 0 }
func (owner) Knows(keys.NodeID) bool  { return false }
func (owner) NextSequence() uint64    { return 1 }
func (owner) Unreachable(addr string) {}

// bareNodes makes an empty set of nodes, none of which can be reached.
func bareNodes(life *lifetime.Lifetime) *nodes.Nodes {
	log := slog.New(slog.DiscardHandler)
	return nodes.New(nodes.Config{Owner: owner{}, Lanes: 1, Logger: log, Life: life,
		Random: rand.Uint64, Clock: new(clock.Clock),
		Identity:  identity.New(identity.Config{Life: life, Logger: log}),
		Suspected: metric.NewGauge("suspected", "", nil),
		Dialer: client.DialerConfig{Dial: func(context.Context, string) (net.Conn, error) {
			return nil, errors.New("there is no network")
		}}})
}

// bareKnown knows nothing.
func bareKnown() *Known {
	return NewKnown(bareNodes(lifetime.New()), slog.New(slog.DiscardHandler))
}

// someNodes makes nodes with the ids from 1 on, none of which can be reached.
func someNodes(t testing.TB, count int) (some []*nodes.Node) {
	life := lifetime.New()
	all := bareNodes(life)
	t.Cleanup(func() {
		life.End()
		all.Close()
		life.Wait()
	})
	for id := range keys.NodeID(count) {
		info := &clusterpb.Node{Address: fmt.Sprintf("10.0.0.%d:7400", id+1)}
		some = append(some, all.Get(id+1, info))
	}
	return some
}

func suspect(n *nodes.Node) { n.Suspect(n.Incarnation(), errors.New("it does not answer")) }
