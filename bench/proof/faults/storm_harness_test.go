package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// site is a place in a keyspace at which a partition is split and merged again and again, at keys
// that no client writes. Falling keys come closer to the busy keys on their left, which stay in the
// partition. Rising keys come closer to the busy keys on their right, which go to the child.
type site struct {
	keyspace, before string
	rises            bool
}

// splitLimit is greater than the number of all splits at one site.
const splitLimit = 999_999_999

func (s site) key(n int) []byte {
	if !s.rises {
		n = splitLimit - n
	}
	return fmt.Appendf(nil, "%s%09d", s.before, n)
}

// storm splits and merges partitions, one operation after the other.
type storm struct {
	client *kv.Client
	sites  []site
	// every is the time between the begins of two operations.
	every time.Duration

	done atomic.Int64
	// splits and merges have the durations of the operations.
	splits, merges []time.Duration
	// refused is the number of refused operations; the field after it has the reason of the last
	// one.
	refused int
	reason  error
}

// run splits and merges until ctx ends, at the sites in turn. A refused operation, or one of
// unknown outcome, is repeated in the next turn of its site.
func (s *storm) run(ctx context.Context) {
	ticker := time.NewTicker(s.every)
	defer ticker.Stop()
	turns := make([]int, len(s.sites))
	for i := 0; ; i = (i + 1) % len(s.sites) {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		began := time.Now()
		do, took := s.split, &s.splits
		if turns[i]%2 == 1 {
			do, took = s.merge, &s.merges
		}
		err := do(ctx, s.sites[i].keyspace, s.sites[i].key(turns[i]/2))
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			s.done.Add(1)
			*took = append(*took, time.Since(began))
			turns[i]++
		default:
			s.refused++
			s.reason = err
		}
	}
}

// split splits a partition, and waits until the split is over.
func (s *storm) split(ctx context.Context, keyspace string, key []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	split, err := admin.New(s.client).SplitPartition(ctx, keyspace, key)
	if err != nil {
		return err
	}
	return s.await(ctx, split.Operator)
}

// merge merges the partitions on both sides of a key, and waits until the merge is over.
func (s *storm) merge(ctx context.Context, keyspace string, key []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	left, err := s.endingAt(ctx, keyspace, key)
	if err != nil || left == 0 {
		return err // or an earlier attempt has merged them
	}
	merge, err := admin.New(s.client).MergePartition(ctx, left)
	if err != nil {
		return err
	}
	if err := s.await(ctx, merge.Operator); err != nil {
		return err
	}
	if left, err = s.endingAt(ctx, keyspace, key); err == nil && left != 0 {
		err = fmt.Errorf("partition %d was not merged with its right neighbour", left)
	}
	return err
}

// endingAt returns the partition that ends at a key; 0 if there is no such boundary.
func (s *storm) endingAt(ctx context.Context, keyspace string, key []byte) (uint64, error) {
	all, err := admin.New(s.client).Partitions(ctx, keyspace)
	for _, p := range all {
		if bytes.Equal(p.End, key) {
			return p.ID, err
		}
	}
	return 0, err
}

// report describes the operations of the storm.
func (s *storm) report() string {
	times := func(all []time.Duration) string {
		if len(all) == 0 {
			return "none"
		}
		slices.Sort(all)
		return fmt.Sprintf("%d, %v in the median and %v at most", len(all),
			all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	}
	return fmt.Sprintf("splits: %s; merges: %s; %d refused or not known (the last: %v)",
		times(s.splits), times(s.merges), s.refused, s.reason)
}

// await waits until an operator is over.
func (s *storm) await(ctx context.Context, operator uint64) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		under, err := admin.New(s.client).Operators(ctx)
		if err != nil {
			return err
		}
		over := true
		for _, o := range under {
			over = over && o.ID != operator
		}
		if over {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("operator %d is not over: %w", operator, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// proof is workloads of package workloads that run against a cluster.
type proof struct {
	*driver.Run
	loads   []driver.Workload
	running sync.WaitGroup
	cancel  context.CancelFunc
}

// startProof sets up workloads and starts their clients.
func startProof(ctx context.Context, c *fleet.Cluster, loads []driver.Workload) (*proof, error) {
	p := &proof{loads: loads}
	p.Run = driver.NewRun(func(ctx context.Context, options ...kv.Option) (*kv.Client, error) {
		return kv.Open(ctx, c.Endpoints(), options...)
	})
	p.Incremental = true
	for _, load := range loads {
		if err := load.Setup(ctx, p.Run); err != nil {
			return nil, fmt.Errorf("setting %s up: %w", load.Name(), err)
		}
	}
	driving, cancel := context.WithCancel(ctx)
	p.cancel = cancel
	for n, load := range loads {
		for i := range load.Clients() {
			client, hangUp, err := p.Connect(ctx, load.Name())
			if err != nil {
				p.stop()
				return nil, err
			}
			random := rand.New(rand.NewPCG(uint64(n), uint64(i)))
			p.running.Go(func() {
				load.Drive(driving, p.Run, i, client, random)
				_ = hangUp()
			})
		}
	}
	return p, nil
}

func (p *proof) stop() {
	p.cancel()
	p.running.Wait()
}

// judge ends the workloads and reports violations.
func (p *proof) judge(ctx context.Context) error {
	p.stop()
	var wrong []error
	for _, load := range p.loads {
		client, hangUp, err := p.Connect(ctx, load.Name())
		if err == nil {
			err = errors.Join(load.Check(ctx, p.Run, client), hangUp())
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("checking %s: %w", load.Name(), err))
		}
	}
	p.CheckHistory(p.History.Operations())
	p.Judge()
	for _, v := range p.Violations() {
		wrong = append(wrong, errors.New(v))
	}
	return errors.Join(wrong...)
}

// everyKeyOnce checks that the partitions of a keyspace cover it exactly once, and that the
// statistics of each partition equal a count. Nothing may write to the keyspace.
func everyKeyOnce(ctx context.Context, client *kv.Client,
	keyspace string) (partitions int, err error) {
	all, err := admin.New(client).Partitions(ctx, keyspace)
	if err != nil {
		return 0, err
	}
	var end []byte
	hash := -1
	for i, p := range all {
		if p.Hash != hash || i == 0 {
			if i > 0 && len(end) > 0 || len(p.Start) > 0 {
				return 0, fmt.Errorf("a hole at the end of hash number %d or at the beginning of %d", hash,
					p.Hash)
			}
		} else if len(end) == 0 || !bytes.Equal(p.Start, end) {
			return 0, fmt.Errorf("partition %d begins at %q, and the one before ends at %q",
				p.ID, p.Start, end)
		}
		hash, end = p.Hash, p.End
	}
	if len(end) > 0 {
		return 0, fmt.Errorf("a hole behind %q", end)
	}
	if hash >= 0 {
		return len(all), nil // the spans of hash partitions are not spans of user keys
	}
	ks := client.Keyspace(keyspace)
	for _, p := range all {
		options := []kv.CountOption{kv.From(p.Start)}
		if len(p.End) > 0 {
			options = append(options, kv.To(p.End))
		}
		n, err := ks.Count(ctx, options...)
		if err != nil {
			return 0, err
		}
		if n != p.LiveKeys {
			return 0, fmt.Errorf("partition %d says that it has %d keys, and %d are counted", p.ID,
				p.LiveKeys, n)
		}
	}
	return len(all), nil
}
