package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/metric"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/follow"
	"github.com/tidemarkdb/tidemark/range/route/identity"
	"github.com/tidemarkdb/tidemark/range/route/lifetime"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/range/route/table"
)

// bareSender has an empty table, and follows none.
func bareSender() *Sender {
	s := &Sender{log: slog.New(slog.DiscardHandler), life: lifetime.New()}
	s.identity = identity.New(identity.Config{Life: s.life, Logger: s.log})
	s.nodes = nodes.New(nodes.Config{Owner: (*owner)(s), Lanes: 1, Logger: s.log, Life: s.life,
		Random: rand.Uint64, Identity: s.identity, Clock: &s.Clock,
		Suspected: metric.NewGauge("suspected", "", nil),
		Dialer: client.DialerConfig{Dial: func(context.Context, string) (net.Conn, error) {
			return nil, errors.New("there is no network")
		}}})
	s.known = table.NewKnown(s.nodes, s.log)
	s.following = follow.New(follow.Config{Known: s.known, Dialer: s.nodes.Dialer(),
		Identity: s.identity, Clock: &s.Clock, Random: rand.Uint64, Logger: s.log, Life: s.life,
		Streams: metric.NewCounter("streams", "", nil)})
	s.servers = s.following
	return s
}

// someNodes makes nodes with the ids from 1 on, none of which can be reached.
func someNodes(t testing.TB, count int) (all []*nodes.Node) {
	s := bareSender()
	t.Cleanup(func() {
		s.life.End()
		s.nodes.Close()
		s.life.Wait()
	})
	for id := range keys.NodeID(count) {
		info := &clusterpb.Node{Address: fmt.Sprintf("10.0.0.%d:7400", id+1)}
		all = append(all, s.nodes.Get(id+1, info))
	}
	return all
}

func suspect(n *nodes.Node) { n.Suspect(n.Incarnation(), errors.New("it does not answer")) }
