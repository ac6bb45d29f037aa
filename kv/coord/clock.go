package coord

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

const (
	// clockAge is for how long a reading of the service's clock is carried on by the monotonic clock
	// of this machine. The two come apart by a few milliseconds in that time.
	clockAge = 10 * time.Second
	// clockless is for how long a service is not asked again that tells no time: it is etcd, or a
	// Tidemark of an earlier version, which may be upgraded.
	clockless = time.Minute
)

// moment is what time it is, in Unix nanoseconds: at least earliest, and at most latest.
type moment struct {
	earliest, latest int64
	// at is when that was so, by the client's monotonic clock.
	at int64
	// own says that the wall clock of this machine has told it, since the service tells no time.
	own bool
}

// serviceClock is the clock of the service, by the clocks of most of its members. What the wall
// clock of this machine shows does not count.
type serviceClock struct {
	mu struct {
		sync.Mutex
		// told is the last reading; its at is 0 if there is none.
		told moment
	}
}

// now tells the time. If the service tells none, the wall clock of this machine has to do.
func (c *Client) now(ctx context.Context) (moment, error) {
	if told := c.time.last(c.clock()); told.at != 0 {
		return c.carry(told), nil
	}
	var asked int64
	var r *coordpb.ReadClockResponse
	err := c.until(ctx, func(ctx context.Context) (err error) {
		asked = c.clock()
		r, err = coordpb.NewClockClient(c.etcd.ActiveConnection()).Read(ctx,
			&coordpb.ReadClockRequest{})
		return err
	})
	told := moment{at: c.clock()}
	switch {
	case status.Code(err) == codes.Unimplemented:
		told.own = true
	case err != nil:
		return moment{}, err
	default:
		// The service told of a moment of the call: by now it is later, by no more than the call took.
		told.earliest, told.latest = int64(r.Earliest), int64(r.Latest)+told.at-asked
	}
	c.time.note(told)
	return c.carry(told), nil
}

// carry is what time it is now, if it was told before.
func (c *Client) carry(told moment) moment {
	if told.own {
		wall := c.wall().UnixNano()
		return moment{earliest: wall, latest: wall, at: c.clock(), own: true}
	}
	passed := c.clock() - told.at
	return moment{earliest: told.earliest + passed, latest: told.latest + passed, at: told.at + passed}
}

// forget has the next call of now ask the service.
func (s *serviceClock) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.told = moment{}
}

// last is the last reading, if it is not too old at a moment of the client's monotonic clock.
func (s *serviceClock) last(now int64) moment {
	s.mu.Lock()
	defer s.mu.Unlock()
	age := clockAge
	if s.mu.told.own {
		age = clockless
	}
	if now-s.mu.told.at >= int64(age) {
		return moment{}
	}
	return s.mu.told
}

func (s *serviceClock) note(told moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.told = told
}
