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
	// clockAge is how long a reading of the service's clock is extrapolated by this machine's
	// monotonic clock. The two clocks drift apart by a few milliseconds in that time.
	clockAge = 10 * time.Second
	// clockless is how long a service that does not tell the time is not asked again: it is etcd,
	// or an earlier version of Tidemark that may be upgraded.
	clockless = time.Minute
)

// moment is a reading of the time, in Unix nanoseconds: the time is between earliest and latest.
type moment struct {
	earliest, latest int64
	// at is the time of the reading by the client's monotonic clock.
	at int64
	// own: the reading is of this machine's wall clock, because the service does not tell the time.
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

// now returns the time. If the service does not tell the time, it is read from this machine's wall
// clock.
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
		// The service read its clock during the call: the time has advanced since, by no more than
		// the call took.
		told.earliest, told.latest = int64(r.Earliest), int64(r.Latest)+told.at-asked
	}
	c.time.note(told)
	return c.carry(told), nil
}

// carry extrapolates an earlier reading to the present.
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

// last returns the last reading, unless it is too old at the time now of the client's monotonic
// clock.
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
