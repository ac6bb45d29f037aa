package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/block"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

const (
	// blockBytes and blockRecords bound a block; a larger record has a block of its own.
	blockBytes, blockRecords = 4 << 20, 50_000
	// inFlight limits the blocks of one Load that are sent at the same time. A partition writes one
	// block after the other, so two blocks keep it busy.
	inFlight = 2
	// attemptTime limits one attempt at a block. patience limits the time for all attempts at a block.
	attemptTime, patience = 30 * time.Second, 5 * time.Minute
	// holePause is the pause before the partition table is asked again for a partition that it does
	// not show.
	holePause = 50 * time.Millisecond
)

// Destination is the keyspace that rows are written to.
type Destination struct {
	ID     keys.KeyspaceID
	Name   string
	Hashed bool
}

// Config has the dependencies of a Load. Sender must be set.
type Config struct {
	Sender *route.Sender
	// Progress is called for each written block, by several goroutines. It may be nil.
	Progress func(Loaded)
	// Pause is called after each block with the time that the block took. It waits, to leave capacity
	// to requests of clients. nil means no pause.
	Pause func(ctx context.Context, took time.Duration) error
}

// Loaded counts rows.
type Loaded struct {
	// Written counts the rows that were written. Present counts the rows that existed already.
	Written, Present uint64
	// Bytes is the size of the keys and values of both.
	Bytes uint64
}

// Rows writes rows into a keyspace. The rows must come in order, and are copied. After an error,
// Loaded counts the rows that are certainly in the keyspace.
func Rows(ctx context.Context, c Config, to Destination,
	rows iter.Seq2[archive.Record, error]) (Loaded, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &loader{Config: c, to: to, ctx: ctx, fail: cancel, slots: make(chan struct{}, inFlight)}
	err := l.all(rows)
	l.sending.Wait()
	if failed := context.Cause(ctx); failed != nil {
		err = failed // the first one
	}
	return l.loaded, err
}

// loader is the state of a running load.
type loader struct {
	Config
	to      Destination
	ctx     context.Context
	fail    context.CancelCauseFunc
	slots   chan struct{}
	sending sync.WaitGroup

	// mu guards loaded. No other lock is taken while it is held.
	mu     sync.Mutex
	loaded Loaded
}

// gathered collects rows of one partition, with their user keys.
type gathered struct {
	block.Writer
	hash  uint32
	first []byte
}

// add adds a row.
func (g *gathered) add(user []byte, r *archive.Record) error {
	if g.Records() == 0 {
		g.first = append(g.first[:0], user...)
	}
	lifetime := keys.Forever
	if r.Expiry != 0 {
		lifetime = keys.Until(r.Expiry)
	}
	return g.Add(block.Record{Key: user, Value: r.Value, Lifetime: lifetime})
}

// finish makes a block of the rows.
func (g *gathered) finish() *oneBlock {
	b := &oneBlock{hash: g.hash, first: bytes.Clone(g.first), last: bytes.Clone(g.Last()),
		records: g.Records(), size: g.Size()}
	b.data = g.Finish()
	return b
}

// oneBlock is a block that is being sent.
type oneBlock struct {
	hash        uint32
	first, last []byte
	records     int
	size        uint64
	data        []byte
}

// all cuts all rows into blocks and sends them.
func (l *loader) all(rows iter.Seq2[archive.Record, error]) error {
	var g gathered
	var at *route.Partition
	flush := func() error {
		if g.Records() == 0 {
			return nil
		}
		return l.send(g.finish())
	}
	for r, err := range rows {
		if err != nil {
			return err
		}
		hash, user := uint32(0), r.Key
		if l.to.Hashed {
			var ok bool
			if hash, user, ok = manifest.SplitHashRow(r.Key); !ok {
				return fmt.Errorf("%s is no row of a hash keyspace", keys.Pretty(r.Key))
			}
		}
		size := uint64(len(user) + len(r.Value))
		if at == nil || hash != g.hash || !at.Span.Contains(user) || g.Records() > 0 &&
			(g.Size()+size > blockBytes || g.Records() >= blockRecords) {
			if err := flush(); err != nil {
				return err
			}
			if at, err = l.locate(hash, user); err != nil {
				return err
			}
			g.hash = hash
		}
		if err := g.add(user, &r); err != nil {
			return fmt.Errorf("the key %s: %w", keys.Pretty(user), err)
		}
	}
	return flush()
}

// locate returns the partition of a key according to the partition table.
func (l *loader) locate(hash uint32, user []byte) (*route.Partition, error) {
	for {
		ks, err := l.Sender.AwaitKeyspace(l.ctx, l.to.ID)
		if err != nil {
			return nil, fmt.Errorf("looking for the partitions of the keyspace %q: %w", l.to.Name, err)
		}
		p := ks.ByKey(user)
		if l.to.Hashed {
			p = ks.ByHash(hash, user)
		}
		if p != nil {
			return p, nil
		}
		if err := backoff.Sleep(l.ctx, holePause); err != nil {
			return nil, err
		}
	}
}

// send sends a block as soon as fewer than inFlight blocks are being sent.
func (l *loader) send(b *oneBlock) error {
	select {
	case l.slots <- struct{}{}:
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
	l.sending.Go(func() {
		began := time.Now()
		err := l.write(b, new(route.Identity))
		if err == nil && l.Pause != nil {
			err = l.Pause(l.ctx, time.Since(began))
		}
		if err != nil {
			l.fail(err)
		}
		<-l.slots
	})
	return nil
}

// errElsewhere: the rows of a block no longer belong to one partition.
var errElsewhere = errors.New("the rows are not in one partition any more")

// write writes a block. It retries until patience is over.
func (l *loader) write(b *oneBlock, identity *route.Identity) error {
	call := route.Call{Keyspace: l.to.ID, By: route.ByKey, Key: b.first, Hash: b.hash, Write: true,
		Identity: identity,
		Request: &kvpb.Request{Background: true, Command: &kvpb.Request_Load{Load: &kvpb.LoadRequest{Block: b.data,
			First: b.first, Last: b.last, Records: uint32(b.records), Size: b.size,
			Ttl: int64(keys.Forever)}}},
		Prepare: route.PreparerFunc(func(p *route.Partition, _ route.Leader) error {
			if !p.Span.Contains(b.last) {
				return errElsewhere
			}
			return nil
		})}
	if l.to.Hashed {
		call.By = route.ByHash
	}
	pauses := backoff.Backoff{Base: 100 * time.Millisecond, Cap: 5 * time.Second, Jitter: 0.5}
	for n, began := 0, time.Now(); ; n++ {
		ctx, cancel := context.WithTimeout(l.ctx, attemptTime)
		answer, err := l.Sender.Do(ctx, &call)
		cancel()
		var failed *route.Error
		switch {
		case err == nil:
			l.count(answer.GetLoad(), b.size)
			return nil
		case errors.As(err, &failed) && failed.Cause == errElsewhere:
			return l.cutAgain(b, identity)
		case l.ctx.Err() != nil:
			return context.Cause(l.ctx)
		case !passing(err) || time.Since(began) > patience:
			return fmt.Errorf("writing the keyspace %q from the key %s on: %w", l.to.Name,
				keys.Pretty(b.first), err)
		}
		if err := backoff.Sleep(l.ctx, pauses.Delay(n, rand.Float64())); err != nil {
			return err
		}
	}
}

// passing reports whether another attempt may succeed.
func passing(err error) bool {
	var failed *route.Error
	if !errors.As(err, &failed) {
		return false
	}
	switch failed.Code {
	case kvpb.ErrorCode_INVALID_ARGUMENT, kvpb.ErrorCode_WRONG_CLUSTER, kvpb.ErrorCode_CORRUPTION,
		kvpb.ErrorCode_PERMISSION_DENIED, kvpb.ErrorCode_UNAUTHENTICATED:
		return false
	}
	return !errors.Is(failed.Cause, route.ErrNoKeyspace)
}

// count counts a block that was written.
func (l *loader) count(answer *kvpb.LoadResponse, size uint64) {
	one := Loaded{Written: uint64(answer.GetWritten()), Present: uint64(answer.GetPresent()),
		Bytes: size}
	l.mu.Lock()
	l.loaded.Written += one.Written
	l.loaded.Present += one.Present
	l.loaded.Bytes += one.Bytes
	l.mu.Unlock()
	if l.Progress != nil {
		l.Progress(one)
	}
}

// cutAgain writes a block whose partition has split: it sends each part to its own partition. All
// parts use the request identity of the whole block. If an earlier attempt with that identity took
// effect, the partitions recognize its versions.
func (l *loader) cutAgain(b *oneBlock, identity *route.Identity) error {
	records, err := block.Open(b.data)
	if err != nil {
		return err
	}
	g := gathered{hash: b.hash}
	var at *route.Partition
	for {
		r, ok, err := records.Next()
		if err != nil {
			return err
		}
		if g.Records() > 0 && (!ok || !at.Span.Contains(r.Key)) {
			if err := l.write(g.finish(), identity); err != nil {
				return err
			}
			at = nil
		}
		if !ok {
			return nil
		}
		if at == nil {
			if at, err = l.locate(b.hash, r.Key); err != nil {
				return err
			}
		}
		if g.Records() == 0 {
			g.first = append(g.first[:0], r.Key...)
		}
		if err := g.Add(r); err != nil {
			return err
		}
	}
}
