package veil

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// judgeEvery is the interval of the checks whether a receiver may see what was withheld. judgeEach
	// is added to the interval for each withheld keyspace, so that the checks cost little.
	judgeEvery = 500 * time.Millisecond
	judgeEach  = 50 * time.Microsecond
	// maxTokenBytes is the maximum length of a token.
	maxTokenBytes = 4 << 10
)

// Viewer represents the receiver of one stream. A nil Viewer sees everything. Its methods are safe
// for concurrent use, but only one Follow may run at a time.
type Viewer struct {
	guard access.Guard
	// news signals that another token was shown. Capacity 1.
	news chan struct{}

	mu     sync.Mutex
	shown  access.Credentials
	client access.Client // nil until it is needed
}

// NewViewer returns the Viewer for the shown credentials. It returns nil for a caller that has
// proved to be a server.
func NewViewer(guard access.Guard, shown access.Credentials) *Viewer {
	return &Viewer{guard: guard, shown: shown, news: make(chan struct{}, 1)}
}

// Show replaces the token of the receiver. An empty token changes nothing.
func (v *Viewer) Show(token string) error {
	if len(token) > maxTokenBytes {
		return status.Error(codes.InvalidArgument,
			fmt.Sprintf("a token has at most %d bytes", maxTokenBytes))
	}
	if v == nil || token == "" {
		return nil
	}
	v.mu.Lock()
	if v.shown.Token != token {
		v.shown.Token, v.client = strings.Clone(token), nil
	}
	v.mu.Unlock()
	select {
	case v.news <- struct{}{}:
	default:
	}
	return nil
}

func (v *Viewer) identify() access.Client {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.client == nil {
		v.client = v.guard.Client(v.shown)
	}
	return v.client
}

// Emit takes one update of a table.
type Emit func(*clusterpb.TableUpdate) error

var errMore = errors.New("the receiver may see more than it was sent")

// Follow passes the updates of subscribe to emit, as far as the receiver may see them. When the
// receiver may see more than before, Follow ends the context of subscribe and calls subscribe
// again. It returns the error of subscribe.
func (v *Viewer) Follow(
	ctx context.Context, subscribe func(context.Context, Emit) error, emit Emit,
) error {
	if v == nil {
		return subscribe(ctx, emit)
	}
	for again := false; ; again = true {
		if err := v.follow(ctx, again, subscribe, emit); !errors.Is(err, errMore) {
			return err
		}
	}
}

// follow makes one call of subscribe. It returns errMore if subscribe has to be called again.
func (v *Viewer) follow(
	ctx context.Context, again bool, subscribe func(context.Context, Emit) error, emit Emit,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &screen{viewer: v, withheld: make(map[uint32]struct{})}
	var watching sync.WaitGroup
	defer watching.Wait() // runs after cancel
	defer cancel(nil)
	watched := false
	err := subscribe(ctx, func(u *clusterpb.TableUpdate) error {
		u = s.screen(u)
		if !watched && s.count() > 0 {
			watched = true
			watching.Go(func() {
				if s.awaitMore(ctx) {
					cancel(errMore)
				}
			})
		}
		u.Reset_, again = u.Reset_ || again, false
		return emit(u)
	})
	if errors.Is(context.Cause(ctx), errMore) {
		return errMore
	}
	return err
}

// screen filters the updates of one call of subscribe for the receiver.
type screen struct {
	viewer *Viewer

	mu sync.Mutex
	// withheld has the keyspaces with withheld partitions.
	withheld map[uint32]struct{}
}

func (s *screen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.withheld)
}

// screen returns an update as the receiver may see it. Descriptors may be shared, and are not
// changed.
func (s *screen) screen(u *clusterpb.TableUpdate) *clusterpb.TableUpdate {
	if !s.viewer.guard.Enabled() || len(u.Partitions)+len(u.RemovedKeyspaces) == 0 {
		return u
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range u.RemovedKeyspaces {
		delete(s.withheld, id)
	}
	client := s.viewer.identify()
	shown := make([]*clusterpb.Partition, 0, len(u.Partitions))
	keyspace, sees := uint32(0), false // no keyspace has the id 0
	for _, p := range u.Partitions {
		if p.Keyspace != keyspace {
			keyspace, sees = p.Keyspace, client.MayAny(uint64(p.Keyspace))
		}
		if sees {
			shown = append(shown, p)
			continue
		}
		s.withheld[p.Keyspace] = struct{}{}
		if whole := boundless(p); whole != nil {
			shown = append(shown, whole)
		}
	}
	u.Partitions = shown
	return u
}

// awaitMore waits until the receiver may see a keyspace whose partitions were withheld. It returns
// false if ctx has ended.
func (s *screen) awaitMore(ctx context.Context) bool {
	for {
		pause := time.NewTimer(judgeEvery + time.Duration(s.count())*judgeEach)
		select {
		case <-ctx.Done():
			pause.Stop()
			return false
		case <-s.viewer.news:
			pause.Stop()
		case <-pause.C:
		}
		if s.lifts() {
			return true
		}
	}
}

func (s *screen) lifts() bool {
	free, client := !s.viewer.guard.Enabled(), s.viewer.identify()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.withheld {
		if free || client.MayAny(uint64(id)) {
			return true
		}
	}
	return false
}

// boundless returns the partition that is sent in place of a partition whose bounds are withheld.
// It returns nil unless the partition is the first of its keyspace or hash number.
func boundless(p *clusterpb.Partition) *clusterpb.Partition {
	prefix := keys.PartitionPrefix(p)
	if !bytes.Equal(p.Start, prefix) {
		return nil
	}
	return &clusterpb.Partition{
		Id: p.Id, Keyspace: p.Keyspace, Hash: p.Hash, PrefixLength: p.PrefixLength,
		Replicas: p.Replicas, Start: prefix, End: keys.PrefixEnd(prefix),
		Membership: p.Generation<<32 | min(p.Membership, math.MaxUint32),
	}
}
