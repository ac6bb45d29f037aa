package embedded

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

const (
	// drainTimeout bounds the handing over of leaderships when a server stops.
	drainTimeout = 10 * time.Second
	// answerTimeout bounds how long a server that stops waits for the requests that it has taken
	// in.
	answerTimeout = time.Second
	// goAwayTime is how long a server that stops gives clients of gRPC to hear that they are to call
	// elsewhere, and their last answers to reach them.
	goAwayTime = 50 * time.Millisecond
)

// Stop ends the server so that clients notice little: it says that it is not ready, hands over what
// it leads while it goes on serving, answers what it has taken in, and closes. It does not wait for
// servers that are not there: what cannot be handed over within some seconds is left to elections.
// The context bounds all of it; when it ends the server is closed as Close does.
func (s *Server) Stop(ctx context.Context) error {
	s.stopping.Store(true)
	if s.Err() == nil {
		s.drain(ctx)
	}
	return s.Close(ctx)
}

// drain hands over leaderships, the core's and those of partitions, and waits for the answers under
// way.
func (s *Server) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	// A part that starts now leads nothing.
	core, data := s.member.part.Load(), s.node.part.Load()
	began := time.Now()
	var draining sync.WaitGroup
	left, coreLeft := 0, 0
	if data != nil {
		draining.Go(func() { left = data.node.Drain(ctx) })
	}
	if core != nil {
		draining.Go(func() {
			coreLeft = core.host.Drain(ctx,
				func(g *host.Group, term uint64, to keys.ReplicaID) { g.TransferLeader(term, to) })
		})
	}
	draining.Wait()
	after := time.Since(began).Round(time.Millisecond)
	switch {
	case left+coreLeft == 0:
		s.config.Logger.Debug("leaderships handed over", "after", after)
	case ctx.Err() != nil:
		s.config.Logger.Warn("stopping with leaderships that no other server has taken in time; "+
			"elections will follow",
			"partitions", left, "core", coreLeft > 0, "after", after)
	default: // all servers stop, or there is one only
		s.config.Logger.Info("stopping with leaderships, as no server is left that could take them",
			"partitions", left, "core", coreLeft > 0, "after", after)
	}
	answering, done := context.WithTimeout(ctx, answerTimeout)
	defer done()
	s.rpc.Drain()
	s.calls.Drain()
	s.clients.Drain(answering)
	// A call may be on its way here whose client has not heard yet that it is to call elsewhere, and
	// an answer on its way to its client.
	for backoff.Sleep(answering, goAwayTime) == nil && s.etcd.Running() > 0 {
	}
}
