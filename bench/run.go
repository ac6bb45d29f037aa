package bench

import (
	"context"
	"sync"
	"time"
)

// Run loads the records if the workload needs them, warms up, measures, and reports. If ctx ends
// early, Run returns the measurements until then, with Interrupted set. If there are no
// measurements, it returns ctx's error.
func Run(ctx context.Context, target Target, cfg Config) (*Result, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Workload.Preload && !cfg.SkipLoad {
		if err := Load(ctx, target, cfg); err != nil {
			return nil, err
		}
	}
	inserted := newInsertCounter(cfg.Records)
	r := &run{
		cfg:      cfg,
		target:   target,
		values:   newValues(cfg.Seed, cfg.ValueSize),
		chooser:  newChooser(cfg.Workload.Keys, cfg.Records, inserted),
		inserted: inserted,
	}
	result, _ := r.drive(ctx)
	if result.Interrupted && len(result.Operations) == 0 {
		return nil, ctx.Err()
	}
	return result, nil
}

// drive runs the clients through the warm-up and the window. It returns when all clients have
// ended.
func (r *run) drive(ctx context.Context) (*Result, []*client) {
	cfg := r.cfg
	if cfg.WarmUp == 0 {
		r.beginWindow()
	}
	clients := make([]*client, cfg.Clients)
	var running sync.WaitGroup
	for i := range clients {
		c := &client{run: r, random: newRandom(cfg.Seed, i)}
		clients[i] = c
		running.Go(func() { c.loop(ctx) })
	}
	watch := &watcher{cfg: cfg, clients: clients}
	if cfg.WarmUp > 0 {
		watch.follow(ctx, "warm-up", cfg.WarmUp)
		r.beginWindow()
	}
	measured := watch.follow(ctx, "measure", cfg.Duration)
	r.phase.Store(phaseOver)
	if r.transactions != nil {
		r.transactions.windowEnds()
	}
	running.Wait()

	result := newResult(cfg, measured)
	for _, c := range clients {
		for kind := range c.records {
			result.merged[kind].merge(&c.records[kind])
		}
	}
	result.finish()
	result.Interrupted = ctx.Err() != nil
	return result, clients
}

func (r *run) beginWindow() {
	if r.transactions != nil {
		r.transactions.windowBegins()
	}
	r.phase.Store(phaseMeasure)
}

// watcher computes the progress from the clients' live counters.
type watcher struct {
	cfg                  Config
	clients              []*client
	ops, micros, errors  uint64 // at the previous call
	phaseErrors          uint64 // errors before this phase
	lastLook, phaseStart time.Time
}

// follow waits until a phase has lasted for total, or ctx ends, and returns how long it lasted.
func (w *watcher) follow(ctx context.Context, phase string, total time.Duration) time.Duration {
	w.phaseStart = time.Now()
	w.lastLook = w.phaseStart
	w.phaseErrors = w.errors
	over := time.NewTimer(total)
	defer over.Stop()
	tick := time.NewTicker(w.cfg.ProgressInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return time.Since(w.phaseStart)
		case <-over.C:
			elapsed := time.Since(w.phaseStart)
			w.look(phase, total)
			return elapsed
		case <-tick.C:
			w.look(phase, total)
		}
	}
}

func (w *watcher) look(phase string, total time.Duration) {
	if w.cfg.Progress == nil {
		return
	}
	var ops, micros, errors uint64
	for _, c := range w.clients {
		ops += c.live.ops.Load()
		micros += c.live.micros.Load()
		errors += c.live.errors.Load()
	}
	now := time.Now()
	p := Progress{Phase: phase, Elapsed: now.Sub(w.phaseStart), Total: total,
		Errors: errors - w.phaseErrors}
	if interval := now.Sub(w.lastLook); interval > 0 {
		p.Rate = float64(ops-w.ops) / interval.Seconds()
	}
	if ops > w.ops {
		p.Mean = time.Duration((micros-w.micros)/(ops-w.ops)) * time.Microsecond
	}
	w.ops, w.micros, w.errors, w.lastLook = ops, micros, errors, now
	w.cfg.Progress(p)
}
