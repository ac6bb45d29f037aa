package console

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// known caches answers of the cluster that several feeds of a viewer use. An answer is refreshed
// when it is older than its age, and also older than restAfter times the duration of its question.
type known struct {
	partitions memo[[]admin.PartitionInfo]
	nodes      memo[[]admin.NodeInfo]
	core       memo[admin.Core]
	upgrade    memo[admin.Upgrade]
	placement  memo[admin.PlacementSettings]
}

// The ages of answers.
const (
	partitionsAge = 2 * time.Second
	nodesAge      = 1 * time.Second
	coreAge       = 3 * time.Second
	slowlyAge     = 10 * time.Second
)

func (k *known) forget() {
	k.partitions.forget()
	k.nodes.forget()
	k.core.forget()
	k.upgrade.forget()
	k.placement.forget()
}

// memo caches one answer. Callers share the answer, and must not change it.
type memo[T any] struct {
	// The caller who asks the cluster holds asking. mu guards value and until.
	mu     sync.Mutex
	asking chan struct{}
	value  T
	until  time.Time
}

// get returns the answer. It asks again if the answer is too old. An error is not cached.
func (m *memo[T]) get(ctx context.Context, age time.Duration,
	ask func(context.Context) (T, error)) (value T, err error) {
	m.mu.Lock()
	if m.asking == nil {
		m.asking = make(chan struct{}, 1)
	}
	turn := m.asking
	m.mu.Unlock()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return value, context.Cause(ctx)
	}
	began := time.Now()
	m.mu.Lock()
	value, until := m.value, m.until
	m.mu.Unlock()
	if began.Before(until) {
		return value, nil
	}
	if value, err = ask(ctx); err != nil {
		return value, err
	}
	took := time.Since(began)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.value, m.until = value, time.Now().Add(min(max(age, took*restAfter), longestRest))
	return value, nil
}

func (m *memo[T]) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	var none T
	m.value, m.until = none, time.Time{}
}
