package load

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/kv/internal/sorting"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/block"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

const (
	// leastBlock and mostBlock bound the size of a block in bytes, loadBlockRecords in records: it
	// is one loadBlocks-th of the load, so that a short load has many blocks too. A larger record
	// has a block of its own.
	leastBlock       = 256 << 10
	mostBlock        = 4 << 20
	loadBlocks       = 64
	loadBlockRecords = 50_000
	// loadInFlight bounds the blocks on their way; loadPerPartition bounds those to one partition:
	// the present one, and the next.
	loadInFlight     = 8
	loadPerPartition = 2
	// loadGathered is how much may wait in unfinished blocks of one stream.
	loadGathered = 32 << 20
	// loadStreams is how many streams are read at a time.
	loadStreams = 4
	// loadPatience is how long a load continues while no block is written.
	loadPatience = 2 * time.Minute
	loadPause    = 500 * time.Millisecond
)

// write writes the sorted records.
func (l *loader) write(ctx context.Context) error {
	ks := l.table()
	if ks == nil {
		return &route.Error{Cause: route.ErrNoKeyspace}
	}
	l.moved = time.Now()
	l.tell(Progress{Stage: Writing, Total: l.loaded.Records})
	streams, err := l.sorted(ctx, ks)
	if err != nil {
		return err
	}
	var seen atomic.Uint64
	err = conn.InParallel(ctx, len(streams), loadStreams, func(ctx context.Context, i int) error {
		n, err := l.stream(ctx, streams[i])
		seen.Add(n)
		return err
	})
	if err == nil {
		l.loaded.Replaced = l.loaded.Records - seen.Load()
		l.tell(Progress{Stage: Writing, Done: l.loaded.Records, Total: l.loaded.Records})
	}
	return err
}

// table is the keyspace as the client's table shows it; nil if it was dropped.
func (l *loader) table() *route.Keyspace {
	return l.cfg.Conn.Sender.Table().KeyspaceByID(l.cfg.ID)
}

// gathered are the records for the next block of a partition.
type gathered struct {
	block.Writer
	first []byte
}

// sending are the blocks of a stream on their way.
type sending struct {
	*loader
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan error
	open   int
}

// stream cuts a stream into blocks and sends them. It returns how many records there were.
func (l *loader) stream(ctx context.Context, records iter.Seq2[sorting.Record, error],
) (n uint64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &sending{loader: l, ctx: ctx, cancel: cancel, done: make(chan error, loadInFlight)}
	defer func() {
		for s.open > 0 {
			if failed := s.wait(); err == nil {
				err = failed
			}
		}
		cancel(nil)
	}()
	ks := l.table()
	if ks == nil {
		return 0, &route.Error{Cause: route.ErrNoKeyspace}
	}
	hashed := ks.Hashed()
	most := min(mostBlock, max(leastBlock, l.loaded.Bytes/loadBlocks))
	gathering := map[keys.PartitionID]*gathered{}
	total := uint64(0)
	var at *route.Partition
	var g *gathered
	for r, err := range records {
		if err != nil {
			return n, err
		}
		if at == nil || hashed || !at.Span.Contains(r.Key) {
			if at, err = l.locate(ctx, r.Key); err != nil {
				return n, err
			}
			if g = gathering[at.ID]; g == nil {
				g = &gathered{}
				gathering[at.ID] = g
			}
		}
		size := uint64(len(r.Key) + len(r.Value))
		if g.Records() > 0 && (g.Size()+size > most || g.Records() >= loadBlockRecords) {
			total -= g.Size()
			if err := s.send(at.ID, g); err != nil {
				return n, err
			}
		}
		if g.Records() == 0 {
			g.first = append(g.first[:0], r.Key...)
		}
		if err := g.Add(block.Record(r)); err != nil {
			return n, err
		}
		n++
		if total += size; total > loadGathered {
			id := largest(gathering)
			total -= gathering[id].Size()
			if err := s.send(id, gathering[id]); err != nil {
				return n, err
			}
		}
	}
	for id, g := range gathering {
		if g.Records() > 0 {
			if err := s.send(id, g); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// largest returns the partition with most gathered bytes.
func largest(gathering map[keys.PartitionID]*gathered) (id keys.PartitionID) {
	size := uint64(0)
	for of, g := range gathering {
		if g.Size() > size {
			id, size = of, g.Size()
		}
	}
	return id
}

// locate is the partition that a key lies in, as far as the client knows.
func (l *loader) locate(ctx context.Context, key []byte) (*route.Partition, error) {
	for {
		ks := l.table()
		if ks == nil {
			return nil, &route.Error{Cause: route.ErrNoKeyspace}
		}
		if p := ks.ByKey(key); p != nil {
			return p, nil
		}
		bounded, cancel := l.cfg.Conn.Bound(ctx)
		_, err := l.cfg.Conn.Sender.PartitionsOf(bounded, l.cfg.ID, keys.Span{})
		cancel()
		if err != nil {
			return nil, err
		}
	}
}

// wait waits for a block of the stream, and returns its error.
func (s *sending) wait() error {
	err := <-s.done
	s.open--
	if err != nil {
		s.cancel(err)
	}
	return err
}

// lane bounds what is on its way to a partition.
func (l *loader) lane(id keys.PartitionID) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lanes[id] == nil {
		l.lanes[id] = make(chan struct{}, loadPerPartition)
	}
	return l.lanes[id]
}

// send sends the records that are gathered for a partition, when there is room, and begins a new
// block. The error may be that of an earlier block.
func (s *sending) send(id keys.PartitionID, g *gathered) error {
	lane := s.lane(id)
	for _, room := range [...]chan struct{}{lane, s.slots} {
		for taken := false; !taken; {
			select {
			case room <- struct{}{}:
				taken = true
			case err := <-s.done:
				s.open--
				if err != nil {
					s.cancel(err)
					if room == s.slots {
						<-lane
					}
					return err
				}
			case <-s.ctx.Done():
				if room == s.slots {
					<-lane
				}
				return context.Cause(s.ctx)
			}
		}
	}
	b := &loadBlock{first: bytes.Clone(g.first), last: bytes.Clone(g.Last()),
		records: g.Records(), size: g.Size()}
	b.data = g.Finish()
	s.open++
	go func() {
		err := s.loader.sendBlock(s.ctx, b, new(route.Identity))
		<-lane
		<-s.slots
		s.done <- err
	}()
	return nil
}

// errElsewhere: the records of a block are no longer in one partition.
var errElsewhere = errors.New("the records are not in one partition any more")

// loadBlock is a block on its way.
type loadBlock struct {
	first, last, data []byte
	records           int
	size              uint64
}

// sendBlock sends a block to its partition, or to several if that has split meanwhile.
func (l *loader) sendBlock(ctx context.Context, b *loadBlock, identity *route.Identity) error {
	call := route.Call{
		Keyspace: l.cfg.ID, Key: b.first, Write: true, Slack: conn.LockSlack, Identity: identity,
		Request: &kvpb.Request{Command: &kvpb.Request_Load{Load: &kvpb.LoadRequest{Block: b.data,
			First: b.first, Last: b.last, Records: uint32(b.records), Size: b.size,
			Ttl: int64(l.cfg.Lifetime)}}},
		Prepare: route.PreparerFunc(func(p *route.Partition, _ route.Leader) error {
			if !p.Span.Contains(b.last) {
				return errElsewhere
			}
			return nil
		}),
	}
	c := l.cfg.Conn
	for {
		bounded, cancel := c.Bound(ctx)
		answer, err := c.Sender.Do(bounded, &call)
		cancel()
		var failed *route.Error
		switch {
		case err == nil:
			r := answer.GetLoad()
			l.written(uint64(r.GetWritten()), uint64(r.GetPresent()))
			return nil
		case errors.As(err, &failed) && failed.Cause == errElsewhere:
			return l.cutAgain(ctx, b, identity)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !l.tryAgain(l.cfg.Wrap(b.first, err)):
			return l.cfg.Wrap(b.first, err)
		}
		if err := c.Pause(ctx, loadPause); err != nil {
			return err
		}
	}
}

// written notes what was written.
func (l *loader) written(written, present uint64) {
	l.mu.Lock()
	l.loaded.Written += written
	l.loaded.Present += present
	l.moved = time.Now()
	done := l.loaded.Written + l.loaded.Present
	l.mu.Unlock()
	l.tell(Progress{Stage: Writing, Done: done, Total: l.loaded.Records})
}

// tryAgain reports that the error of a block may be temporary.
func (l *loader) tryAgain(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.moved) > loadPatience {
		return false
	}
	return l.cfg.Passing(err)
}

// cutAgain sends a block whose partition has split, each part to its present partition.
//
// All parts carry the identity of the whole block: if an attempt with the whole block took effect,
// the parts find its versions; otherwise each part takes effect once. That is enough, since a load
// need not be atomic.
func (l *loader) cutAgain(ctx context.Context, b *loadBlock, identity *route.Identity) error {
	records, err := block.Open(b.data)
	if err != nil {
		return err
	}
	var g gathered
	var at *route.Partition
	flush := func() error {
		part := &loadBlock{first: bytes.Clone(g.first), last: bytes.Clone(g.Last()),
			records: g.Records(), size: g.Size()}
		part.data = g.Finish()
		return l.sendBlock(ctx, part, identity)
	}
	for {
		record, ok, err := records.Next()
		key := record.Key
		if err != nil {
			return err
		}
		if !ok {
			return flush()
		}
		if at == nil || !at.Span.Contains(key) {
			if g.Records() > 0 {
				if err := flush(); err != nil {
					return err
				}
			}
			if at, err = l.locate(ctx, key); err != nil {
				return err
			}
		}
		if g.Records() == 0 {
			g.first = append(g.first[:0], key...)
		}
		if err := g.Add(record); err != nil {
			return err
		}
	}
}
