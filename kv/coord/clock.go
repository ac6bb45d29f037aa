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
	// clockAge is the time for which a reading of the service's clock is extrapolated by this
	// machine's monotonic clock. In that time the two clocks drift apart by at most a few
	// milliseconds.
	clockAge = 10 * time.Second
	// clockless is the time for which a service that does not provide the time is not asked again.
	// Such a service is etcd, or an earlier version of Tidemark that may be upgraded.
	clockless = time.Minute
)

// moment is a reading of the time, in Unix nanoseconds: the true time is between earliest and
// latest.
type moment struct {
	earliest, latest int64
	// at is the time of the reading by the client's monotonic clock.
	at int64
	// own is set if the reading comes from this machine's wall clock, because the service does not
	// provide the time.
	own bool
}

// serviceClock is the clock of the service, which follows the clocks of most of its members. It
// does not depend on the wall clock of this machine.
type serviceClock struct {
	mu struct {
		sync.Mutex
		// told is the last reading. Its at is 0 if there is no reading.
		told moment
	}
}

// now returns the time. If the service does not provide the time, the reading comes from this
// machine's wall clock.
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

// forget makes the next call of now ask the service.
func (s *serviceClock) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.told = moment{}
}

// last returns the last reading, unless it is too old. now is the present time of the client's
// monotonic clock.
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
