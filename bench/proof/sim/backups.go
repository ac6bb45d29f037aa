package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/restores"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/backup/targettest"
)

// backupsEvery: one seed of this many makes backups and restores them.
const backupsEvery = 5

// mixBackups adds backups and restores to one seed of backupsEvery.
func (s *shape) mixBackups(seed uint64) {
	if seed%backupsEvery == 0 {
		s.addBackups(seed)
	}
}

// addBackups adds backups and restores to this seed. Like all extra workloads, they do not change
// the schedule.
func (s *shape) addBackups(seed uint64) {
	if s.backups() != nil {
		return
	}
	t := newBackupTarget(rand.New(rand.NewPCG(seed, 15)))
	// The pace stretches the pauses of workloads that are always busy.
	s.extras = append(s.extras, &backing{Restores: &restores.Restores{Target: "file:///backups",
		Open:  func(context.Context) (target.Target, error) { return t.Memory, nil },
		Pause: 500 * time.Millisecond, TracePause: 100 * time.Millisecond}, target: t})
}

// backing is the workload together with the target of its backups.
type backing struct {
	*restores.Restores
	target *backupTarget
}

// backups returns the target of the run's backups; nil if the run makes no backups.
func (s *shape) backups() *backupTarget {
	for _, load := range s.extras {
		if b, ok := load.(*backing); ok {
			return b.target
		}
	}
	return nil
}

// backupTarget is the target of the backups of a run, in memory, as the servers see it. Calls take
// time, so that faults happen between them. Some calls fail. Of some calls only the answer is lost.
type backupTarget struct {
	*targettest.Memory
	slowest time.Duration
	// fails: one of this many calls fails; 0: no call fails.
	fails int

	mu     sync.Mutex
	random *rand.Rand
}

func newBackupTarget(random *rand.Rand) *backupTarget {
	return &backupTarget{Memory: targettest.NewMemory(), random: random,
		slowest: []time.Duration{time.Millisecond, 20 * time.Millisecond,
			200 * time.Millisecond}[random.IntN(3)],
		fails: []int{0, 100, 400}[random.IntN(3)]}
}

// bubble prepares the target for a synctest bubble. The compressors that package archive keeps in a
// pool have channels, and a bubble cannot use channels of another bubble. Two garbage collections
// empty the pool.
func (*backupTarget) bubble() {
	runtime.GC()
	runtime.GC()
}

// open is embedded.ServerConfig.OpenTarget.
func (b *backupTarget) open(context.Context, string) (target.Target, error) { return b, nil }

// errTarget is an error that callers treat as temporary.
var errTarget = errors.New("the target is not reached at present")

// call makes a call: it waits, and may fail before or after do.
func (b *backupTarget) call(ctx context.Context, do func() error) error {
	b.mu.Lock()
	takes := time.Duration(b.random.Int64N(int64(b.slowest)))
	fails := b.fails > 0 && b.random.IntN(b.fails) == 0
	done := b.random.IntN(2) == 0
	b.mu.Unlock()
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	if fails && !done {
		return errTarget
	}
	err := do()
	if fails {
		return errTarget
	}
	return err
}

// Put implements target.Target.
func (b *backupTarget) Put(ctx context.Context, name string, data []byte) error {
	return b.call(ctx, func() error { return b.Memory.Put(ctx, name, data) })
}

// Create implements target.Target.
func (b *backupTarget) Create(ctx context.Context, name string, data []byte) error {
	return b.call(ctx, func() error { return b.Memory.Create(ctx, name, data) })
}

// Delete implements target.Target.
func (b *backupTarget) Delete(ctx context.Context, name string) error {
	return b.call(ctx, func() error { return b.Memory.Delete(ctx, name) })
}

// Get implements target.Target.
func (b *backupTarget) Get(ctx context.Context, name string) (data []byte, err error) {
	err = b.call(ctx, func() (err error) {
		data, err = b.Memory.Get(ctx, name)
		return err
	})
	return data, err
}
