package replica

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// What was read beside the installation of a snapshot is not answered: the engine may have shown
// neither what was there before nor what takes its place.
func TestReadBesideInstallation(t *testing.T) {
	s := newSplitTest(t, 1)
	defer s.close()
	m := s.members[0]
	s.must(s.ask(putOf("x", "before")))
	ask := func() *kvpb.Response {
		q := getOf("x")
		q.Generation, q.Term = 1, 1
		answers := make(chan *kvpb.Response, 1)
		m.replica.active.Add(1)
		m.replica.serveNow(&read{command: command.Of(q), descriptor: m.replica.Descriptor(),
			timestamp: m.node.Clock.Now(), lockedReading: &plainReading,
			pending: Pending{Client: 1, Request: q, Arrived: time.Now(),
				Reply: func(a *kvpb.Response) { answers <- a }}})
		return <-answers
	}
	m.replica.installs.Add(1) // one is under way
	if a := ask(); a.GetError().GetCode() != kvpb.ErrorCode_NOT_LEADER {
		t.Errorf("while a snapshot is installed: %v", a)
	}
	m.replica.installs.Add(1) // it is over
	if a := ask(); a.GetError() != nil || string(a.GetGet().GetValue()) != "before" {
		t.Errorf("after a snapshot was installed: %v", a)
	}
}
