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
	// drainTimeout limits the transfer of leaderships when a server stops.
	drainTimeout = 10 * time.Second
	// answerTimeout limits the time for which a server that stops waits for the requests that it has
	// accepted.
	answerTimeout = time.Second
	// goAwayTime is the time that a server that stops gives to gRPC clients. In this time they learn
	// that they must call another server, and receive their last answers.
	goAwayTime = 50 * time.Millisecond
)

// Stop stops the server with little effect on clients: the server reports that it is not ready,
// transfers its leaderships while it still serves, answers the requests that it has accepted, and
// closes. It does not wait for servers that do not answer: leaderships that cannot be transferred
// within some seconds are left to elections. The context limits the whole time. When it ends, the
// server is closed as by Close.
func (s *Server) Stop(ctx context.Context) error {
	s.stopping.Store(true)
	if s.Err() == nil {
		s.drain(ctx)
	}
	return s.Close(ctx)
}

// drain transfers leaderships, of the core and of partitions, and waits for the answers under way.
func (s *Server) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	// A part that starts from now on will not lead.
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
	default: // all servers stop, or there is only one
		s.config.Logger.Info("stopping with leaderships, as no server is left that could take them",
			"partitions", left, "core", coreLeft > 0, "after", after)
	}
	answering, done := context.WithTimeout(ctx, answerTimeout)
	defer done()
	s.rpc.Drain()
	s.calls.Drain()
	if s.clients.Drain(answering) {
		s.rpc.CallsAnswered()
	}
	// A call may still arrive from a client that does not know yet that it must call another server,
	// and an answer may still be on its way to its client.
	for backoff.Sleep(answering, goAwayTime) == nil && s.etcd.Running() > 0 {
	}
}
