package route

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// SnapshotTimestamp asks the nodes that lead partitions of one keyspace for a timestamp at which to
// read them: every write in the span of user keys that was acknowledged before the call lies at or
// below it, in all of these partitions but rest. Those are the ones that no node is known to lead,
// and those for which their node did not answer; what the refusals say has been taken in. The
// timestamp is zero if it holds for no partition. Each node is asked once, and all at the same
// time. heard gets what their clocks showed, one at a time; it may be nil.
func (s *Sender) SnapshotTimestamp(ctx context.Context, partitions []*Partition, span keys.Span,
	heard func(node keys.NodeID,
		now *kvpb.Timestamp)) (at hlc.Timestamp, rest []*Partition, err error) {
	bundles, rest := s.Bundles(partitions, 1)
	var mu sync.Mutex
	var failure error
	each(bundles, func(b *Bundle) {
		got, err := s.DoBundle(ctx, b,
			&kvpb.MergeScanRequest{Partitions: b.Routes(), Start: span.Start, End: span.End})
		said := wire.FromTimestamp(got.MergeScanResponse.GetAt())
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil && !said.IsZero():
			at = hlc.Max(at, said)
			rest = append(rest, got.Refused...)
			if heard != nil && got.Now != nil {
				heard(b.Node, got.Now)
			}
		case err == nil, errors.Is(err, ErrScattered):
			rest = append(rest, b.Partitions...)
		case failure == nil:
			failure = err
		}
	})
	return at, rest, failure
}

// Announce brings the clocks of the nodes that lead partitions up to a timestamp that is about to
// be read there, so that what they write from now on lies above it. It does without nodes that do
// not answer within the limit.
func (s *Sender) Announce(ctx context.Context, partitions []*Partition, at hlc.Timestamp,
	limit time.Duration) {
	s.Clock.RaiseSession(at)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	bundles, _ := s.Bundles(partitions, 1)
	each(bundles, func(b *Bundle) {
		// The session that it carries is what counts. It asks for the timestamp of an empty span.
		s.DoBundle(ctx, b,
			&kvpb.MergeScanRequest{Partitions: b.Routes()[:1], Start: []byte{0}, End: []byte{0}})
	})
}

// each calls f for all bundles at the same time.
func each(bundles []*Bundle, f func(*Bundle)) {
	if len(bundles) == 1 {
		f(bundles[0])
		return
	}
	var running sync.WaitGroup
	for _, b := range bundles {
		running.Go(func() { f(b) }) // ends with its context at the latest
	}
	running.Wait()
}
