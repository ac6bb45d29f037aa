package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// floodRates has rates in requests a second. The process of the flood reads a floodRates for each
// change of the rates.
type floodRates struct{ Flood, Low float64 }

// floodReport is the output of the process of the flood.
type floodReport struct {
	Counts  counts
	Failure string
}

// reportEvery is the interval at which the process of the flood prints its counts.
const reportEvery = 100 * time.Millisecond

// runFlood sends the flood until its input ends.
func runFlood(ctx context.Context, o options) error {
	client, err := kv.Open(ctx, strings.Split(o.addresses, ","))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	loads := []*load{newLoad("flood", client.Keyspace("flood"), kv.PriorityNormal),
		newLoad("low", client.Keyspace("low"), kv.PriorityLow)}
	changes := make(chan floodRates)
	go func() {
		defer close(changes)
		in := json.NewDecoder(os.Stdin)
		for {
			var r floodRates
			if in.Decode(&r) != nil {
				return
			}
			changes <- r
		}
	}()
	out := json.NewEncoder(os.Stdout)
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case r, ok := <-changes:
			if !ok {
				return nil
			}
			for i, rate := range []float64{r.Flood, r.Low} {
				if loads[i].cancel != nil {
					loads[i].cancel() // outstanding requests are not waited for
				}
				loads[i].open(ctx, rate)
			}
		case <-tick.C:
		}
		var r floodReport
		for _, l := range loads {
			r.Counts = r.Counts.plus(l.counts())
			if _, err := l.take(); err != nil {
				r.Failure = fmt.Sprintf("%s: %v", l.name, err)
			}
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
}

// floodState is the latest report of the process of the flood.
type floodState struct {
	mu     sync.Mutex
	latest floodReport
	over   bool
}

func (s *floodState) set(line []byte) {
	var r floodReport
	if json.Unmarshal(line, &r) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Failure == "" {
		r.Failure = s.latest.Failure
	}
	s.latest = r
}

func (s *floodState) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

func (s *floodState) counts() counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest.Counts
}

// failure returns the latest failure since the last call.
func (s *floodState) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return errors.New("the process of the flood has ended; see flood.log")
	}
	if s.latest.Failure == "" {
		return nil
	}
	text := s.latest.Failure
	s.latest.Failure = ""
	return errors.New(text)
}
