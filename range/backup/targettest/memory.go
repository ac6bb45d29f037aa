// Package targettest provides a backup target in memory for tests. The target can simulate a crash
// at any call.
package targettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/backup/target"
)

// ErrCrash is returned by a Memory from the call on at which it crashes.
var ErrCrash = errors.New("the process was killed")

// Memory is a target in memory. It is safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	calls   int
	crashAt int
	after   bool
}

var _ target.Target = (*Memory)(nil)

// NewMemory makes an empty target.
func NewMemory() *Memory { return &Memory{objects: make(map[string][]byte)} }

// CrashAt makes the n-th call from now on, and all later calls, return ErrCrash and do nothing. If
// after is set, the n-th call takes effect and only its answer is lost. n = 0 means that no call
// crashes.
func (m *Memory) CrashAt(n int, after bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls, m.crashAt, m.after = 0, n, after
}

// Objects returns a copy of all objects by name.
func (m *Memory) Objects() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.objects)
}

// Set stores an object without counting as a call. nil removes the object.
func (m *Memory) Set(name string, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects[name] = data; data == nil {
		delete(m.objects, name)
	}
}

// call makes one call, unless the target has crashed.
func (m *Memory) call(ctx context.Context, do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	m.calls++
	switch {
	case m.crashAt > 0 && m.calls > m.crashAt, m.calls == m.crashAt && !m.after:
		return ErrCrash
	case m.calls == m.crashAt:
		_ = do()
		return ErrCrash
	}
	return do()
}

// Put implements target.Target.
func (m *Memory) Put(ctx context.Context, name string, data []byte) error {
	return m.call(ctx, func() error {
		m.objects[name] = bytes.Clone(data)
		return nil
	})
}

// Create implements target.Target.
func (m *Memory) Create(ctx context.Context, name string, data []byte) error {
	return m.call(ctx, func() error {
		if _, there := m.objects[name]; there {
			return fmt.Errorf("%s: %w", name, target.ErrExists)
		}
		m.objects[name] = bytes.Clone(data)
		return nil
	})
}

// Delete implements target.Target.
func (m *Memory) Delete(ctx context.Context, name string) error {
	return m.call(ctx, func() error {
		delete(m.objects, name)
		return nil
	})
}

// Get implements target.Target.
func (m *Memory) Get(ctx context.Context, name string) (data []byte, err error) {
	err = m.call(ctx, func() error {
		found, there := m.objects[name]
		if !there {
			return fmt.Errorf("%s: %w", name, target.ErrNotFound)
		}
		data = bytes.Clone(found)
		return nil
	})
	return data, err
}

// List implements target.Target.
func (m *Memory) List(ctx context.Context, prefix string) iter.Seq2[target.Object, error] {
	return func(yield func(target.Object, error) bool) {
		var all []target.Object
		if err := m.call(ctx, func() error {
			for _, name := range slices.Sorted(maps.Keys(m.objects)) {
				if strings.HasPrefix(name, prefix) {
					all = append(all, target.Object{Name: name, Size: int64(len(m.objects[name]))})
				}
			}
			return nil
		}); err != nil {
			yield(target.Object{}, err)
			return
		}
		for _, object := range all {
			if !yield(object, nil) {
				return
			}
		}
	}
}

// Sweep implements target.Target. A crash leaves nothing behind.
func (m *Memory) Sweep(context.Context, string, time.Time) (int, error) { return 0, nil }

// String implements target.Target.
func (m *Memory) String() string { return "memory" }

// Close implements target.Target.
func (m *Memory) Close() error { return nil }
