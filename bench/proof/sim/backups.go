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

// backupsEvery: of so many seeds one makes backups and restores them.
const backupsEvery = 5

// mixBackups has some of the seeds make backups and restore them, besides.
func (s *shape) mixBackups(seed uint64) {
	if seed%backupsEvery == 0 {
		s.addBackups(seed)
	}
}

// addBackups has this seed do so. Like all extras it changes nothing of the schedule.
func (s *shape) addBackups(seed uint64) {
	if s.backups() != nil {
		return
	}
	t := newBackupTarget(rand.New(rand.NewPCG(seed, 15)))
	// The pauses are multiplied by the pace of what keeps busy.
	s.extras = append(s.extras, &backing{Restores: &restores.Restores{Target: "file:///backups",
		Open:  func(context.Context) (target.Target, error) { return t.Memory, nil },
		Pause: 500 * time.Millisecond, TracePause: 100 * time.Millisecond}, target: t})
}

// backing is the workload with its target.
type backing struct {
	*restores.Restores
	target *backupTarget
}

// backups is the target of those that are made; nil: none are.
func (s *shape) backups() *backupTarget {
	for _, load := range s.extras {
		if b, ok := load.(*backing); ok {
			return b.target
		}
	}
	return nil
}

// backupTarget is the target of the backups of a run, in memory, as the servers see it: calls take
// their time, so that faults happen between them, and some fail, or are done and their answers get
// lost.
type backupTarget struct {
	*targettest.Memory
	slowest time.Duration
	// fails is of how many calls one fails; 0: none.
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

// bubble makes ready for a bubble. The compressors that archives keep have channels, and a bubble
// cannot use those of another one. Two collections empty a pool.
func (*backupTarget) bubble() {
	runtime.GC()
	runtime.GC()
}

// open is embedded.ServerConfig.OpenTarget.
func (b *backupTarget) open(context.Context, string) (target.Target, error) { return b, nil }

// errTarget is an error that may be temporary.
var errTarget = errors.New("the target is not reached at present")

// call makes a call.
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
