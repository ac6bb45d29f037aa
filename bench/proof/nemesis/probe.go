package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/availability"
	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/links"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/kv"
)

const (
	probeKeyspace   = "probes"
	probePartitions = 8
	// probeEvery is the time between two requests to a partition. probePatience is the time limit of a
	// request. Slow links on the request's way extend the limit.
	probeEvery    = 20 * time.Millisecond
	probePatience = 500 * time.Millisecond
)

// probes write and read one key of every partition of a keyspace all the time. The time limit of a
// request is short, and the SDK does not retry the request after the limit. So the probes measure
// the behaviour of the servers, and not the retries of the SDK. The limit is extended by the delay
// of slow links on the request's way. Otherwise the probes would measure that delay.
type probes struct {
	client        *kv.Client // closed by stop's caller
	keyspace      *driver.Keyspace
	keys          []string // by hash partition
	writes, reads *availability.Meter
	running       sync.WaitGroup
	cancel        context.CancelFunc
	still         process.Standstill

	mu struct {
		sync.Mutex
		// writeErrors and readErrors have the errors of each partition's latest requests.
		writeErrors, readErrors []error
		// detours has the time that slow links add to a request, for each partition.
		detours []time.Duration
	}
}

// startProbes creates the keyspace and starts the probes. pace counts the answers to writes.
func startProbes(ctx context.Context, run *driver.Run, client *kv.Client,
	pace *availability.Pace) (*probes, error) {
	_, err := client.CreateKeyspace(ctx, probeKeyspace, kv.Hash(probePartitions))
	if err != nil {
		return nil, fmt.Errorf("the keyspace of the probes: %w", err)
	}
	keyspace := run.Client(client, nil, probeKeyspace).Keyspace(probeKeyspace)
	p := &probes{
		client: client, keyspace: keyspace, keys: fleet.PartitionKeys(probePartitions),
		writes: availability.NewMeter(probePartitions), reads: availability.NewMeter(
			probePartitions),
	}
	p.mu.writeErrors, p.mu.readErrors = make([]error, probePartitions),
		make([]error, probePartitions)
	p.mu.detours = make([]time.Duration, probePartitions)
	for _, key := range p.keys {
		if _, err := keyspace.Put(ctx, []byte(key), []byte("begin")); err != nil {
			return nil, fmt.Errorf("the first write of a probe: %w", err)
		}
	}
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for i, key := range p.keys {
		p.running.Go(func() {
			n := 0
			p.ask(ctx, i, p.writes, p.mu.writeErrors, func(ctx context.Context) error {
				n++
				_, err := keyspace.Put(ctx, []byte(key), strconv.AppendInt(nil, int64(n), 10))
				if err == nil {
					pace.Answered(i)
				}
				return err
			})
		})
		p.running.Go(func() {
			p.ask(ctx, i, p.reads, p.mu.readErrors, func(ctx context.Context) error {
				_, err := keyspace.Get(ctx, []byte(key))
				return err
			})
		})
	}
	p.running.Go(func() { p.still.Watch(ctx) })
	return p, nil
}

func (p *probes) ask(ctx context.Context, partition int, meter *availability.Meter,
	failures []error, request func(context.Context) error) {
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		asked := time.Now()
		attempt, cancel := context.WithTimeout(ctx, p.patience(partition))
		err := request(attempt)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			meter.Answered(partition, asked, time.Now())
		}
		p.mu.Lock()
		failures[partition] = err
		p.mu.Unlock()
	}
}

// patience returns the time limit of a request that is sent now.
func (p *probes) patience(partition int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return probePatience + p.mu.detours[partition]
}

// bear extends the time limits of the probes by the delays of the links, from now on.
func (p *probes) bear(shapes map[links.Link]links.Shape, voters [][]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.mu.detours {
		p.mu.detours[i] = detour(shapes, voters[i])
	}
}

// begin opens a window of both meters.
func (p *probes) begin(now time.Time) {
	p.writes.Begin(now)
	p.reads.Begin(now)
	p.still.Reset()
}

// silent returns nil if every partition has answered a write and a read that were sent after t.
func (p *probes) silent(t time.Time) error {
	writes, reads := p.writes.Silent(t), p.reads.Silent(t)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(writes) > 0:
		return fmt.Errorf("partitions %v of %s answer no writes (%v)", writes, probeKeyspace,
			p.mu.writeErrors[writes[0]])
	case len(reads) > 0:
		return fmt.Errorf("partitions %v of %s answer no reads (%v)", reads, probeKeyspace,
			p.mu.readErrors[reads[0]])
	}
	return nil
}

func (p *probes) stop() {
	p.cancel()
	p.running.Wait()
}
