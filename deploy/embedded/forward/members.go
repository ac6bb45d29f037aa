package forward

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/client"
)

const (
	// connectWithin bounds the wait for a connection to one member.
	connectWithin = time.Second
	// pauseFirst is the pause before all members are asked again. It doubles, up to pauseMost.
	pauseFirst, pauseMost = 20 * time.Millisecond, 250 * time.Millisecond
	// sparedTime is what is left of a call's time when members are asked no more: the client is to
	// hear that nothing was sent, rather than nothing.
	sparedTime = 100 * time.Millisecond
	// silentMost is for how long calls may wait at a member in vain before another one is preferred.
	// A member that is cut off from the others, or whose log stands still, lets calls wait for longer
	// than most clients do.
	silentMost = time.Second
)

// members remember which member is asked first, and how each has answered.
type members struct {
	mu sync.Mutex
	// preferred is the address of the member that is asked first; "" while none is.
	preferred string
	records   map[string]record
}

// record is how a member has answered. The zero value is that of a member which was never asked.
type record struct {
	// serving: the member has answered, and has not failed since. The others are asked whether they
	// serve before a stream is opened there.
	serving bool
	// answered is when the member has answered last.
	answered time.Time
	// silent is when the first of the calls began that have waited in vain since the member has
	// answered last; zero if there is none.
	silent time.Time
}

// order puts the preferred member first. The others keep their order around it, as in a ring. Any
// member is preferred, by a random number, if none is.
func (m *members) order(all []string, random func() uint64) []string {
	if len(all) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.records, func(address string, _ record) bool {
		return !slices.Contains(all, address)
	})
	first := slices.Index(all, m.preferred)
	if first < 0 {
		first = int(random() % uint64(len(all)))
		m.preferred = all[first]
	}
	return slices.Concat(all[first:], all[:first])
}

// ended notes how a call has ended that began at a member at that time.
func (m *members) ended(address string, all []string, of *method, began time.Time, err error) {
	switch status.Code(err) {
	case codes.Unavailable:
		m.failed(address, all)
	case codes.DeadlineExceeded, codes.Canceled:
		m.inVain(address, all, of, began)
	default:
		m.answered(address)
	}
}

// answered notes that a member has answered. It does not change which member is asked first: the
// call may have begun before another one has found that member not to serve.
func (m *members) answered(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLocked(address, record{serving: true, answered: time.Now()})
}

// failed notes that a member has not answered: if it was asked first, the one after it is from now
// on.
func (m *members) failed(address string, all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failedLocked(address, all)
}

func (m *members) failedLocked(address string, all []string) {
	m.setLocked(address, record{answered: m.records[address].answered})
	if i := slices.Index(all, address); i >= 0 && m.preferred == address {
		m.preferred = all[(i+1)%len(all)]
	}
}

// inVain notes that a call, which began at that time, has waited at a member for as long as its
// client does. The member has failed if calls have waited there for silentMost, be it one call or
// several short ones. A call that may wait for other clients says something only if the member has
// not answered any call meanwhile.
func (m *members) inVain(address string, all []string, of *method, began time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[address]
	if of.waits && r.answered.After(began) {
		return
	}
	if r.silent.IsZero() || began.Before(r.silent) {
		r.silent = began
	}
	m.setLocked(address, r)
	if time.Since(r.silent) >= silentMost {
		m.failedLocked(address, all)
	}
}

func (m *members) setLocked(address string, r record) {
	if m.records == nil {
		m.records = make(map[string]record)
	}
	m.records[address] = r
}

func (m *members) serves(address string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[address].serving
}

// Member is the address of the member that calls go to; "" if none has answered.
func (f *Forwarder) Member() string {
	m := &f.members
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.records[m.preferred].serving {
		return ""
	}
	return m.preferred
}

// lane is a set of connections, one to each member.
type lane struct {
	dialer *client.Dialer
	// open counts the calls that have the lane. Forwarder.mu guards it.
	open int
}

// enter gives a call a lane until leave is called. Of the lanes with room it is the fullest, so
// that those that a rush has opened become empty, and are closed.
func (f *Forwarder) enter(party string) (_ *lane, leave func(), err error) {
	if !f.open.Take(party, 1) {
		f.metrics.refused.Inc()
		return nil, nil, errTooMany
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		f.open.Give(party, 1)
		return nil, nil, f.config.Refusal()
	}
	var to *lane
	for _, l := range f.mu.lanes {
		if l.open < f.config.PerConnection && (to == nil || l.open > to.open) {
			to = l
		}
	}
	if to == nil {
		to = &lane{dialer: f.config.Dialer()}
		f.mu.lanes = append(f.mu.lanes, to)
	}
	to.open++
	f.metrics.open.Inc()
	return to, func() { f.leave(party, to) }, nil
}

func (f *Forwarder) leave(party string, l *lane) {
	f.open.Give(party, 1)
	f.metrics.open.Dec()
	f.mu.Lock()
	defer f.mu.Unlock()
	l.open--
	if l.open > 0 || len(f.mu.lanes) < 2 || f.mu.closed {
		return
	}
	f.mu.lanes = slices.DeleteFunc(f.mu.lanes, func(other *lane) bool { return other == l })
	f.running.Go(func() { _ = l.dialer.Close() })
}

// lastStart is until when a call may be begun at a member: what is left of the call's time then is
// for the client to hear that nothing was sent. The zero time: the call has no deadline.
func lastStart(ctx context.Context) time.Time {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Time{}
	}
	return deadline.Add(-min(sparedTime, max(time.Until(deadline), 0)/2))
}

// connect gives a connection to a member that can be used at once. It waits until the given time at
// most, if that is not zero.
func (l *lane) connect(ctx context.Context, address string,
	until time.Time) (*grpc.ClientConn, error) {
	conn, err := l.dialer.Conn(address)
	if err != nil {
		return nil, err
	}
	limit := time.Now().Add(connectWithin)
	if !until.IsZero() && until.Before(limit) {
		limit = until
	}
	limited, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return conn, nil
		case connectivity.Idle:
			conn.Connect()
		case connectivity.TransientFailure, connectivity.Shutdown:
			return nil, fmt.Errorf("%s cannot be reached", address)
		}
		if !conn.WaitForStateChange(limited, state) {
			return nil, fmt.Errorf("%s cannot be reached: %w", address, limited.Err())
		}
	}
}

// newStream opens a stream to a member, and sends nothing on it. The fate says what an error means.
// end is to be called when the stream is not used any more, also after an error.
//
// A member that has as many calls of the connection as it takes makes the stream wait, so the time
// of the call bounds that, too.
func (l *lane) newStream(ctx context.Context, address string, m *method, d *grpc.StreamDesc,
	until time.Time, largest int) (_ grpc.ClientStream, end func(), _ fate, _ error) {
	ctx, end = context.WithCancel(ctx)
	conn, err := l.connect(ctx, address, until)
	if err != nil {
		return nil, end, notDone, err
	}
	begun := func() bool { return true }
	if !until.IsZero() {
		begun = time.AfterFunc(time.Until(until), end).Stop
	}
	stream, err := conn.NewStream(ctx, d, m.full, grpc.ForceCodecV2(trusted{}),
		grpc.MaxCallRecvMsgSize(largest))
	switch {
	case !begun():
		return nil, end, notDone, fmt.Errorf("%s takes no more calls", address)
	case status.Code(err) == codes.Unavailable:
		return nil, end, notDone, err
	}
	return stream, end, answered, err // an error is of the call itself
}

// rounds asks all members, and again after pauses, until ask says that it is done. In the first
// round it begins with the member at the address first, unless that is "". last is lastStart(ctx).
// The error says that nothing was sent, unless the client has gone.
func (f *Forwarder) rounds(ctx context.Context, m *method, first string, last time.Time,
	ask func(address string, all []string) (done bool)) error {
	until := time.Now().Add(f.config.Patience)
	if !last.IsZero() && last.Before(until) {
		until = last
	}
	for round := 0; ; round++ {
		all := f.config.Members()
		order := f.members.order(all, f.config.Random)
		if i := slices.Index(order, first); i > 0 {
			order = slices.Concat(order[i:], order[:i])
		}
		first = ""
		for _, address := range order {
			if _, _, local := f.config.Local(m.service); local {
				return errLocal
			}
			if ask(address, all) {
				return nil
			}
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			f.members.failed(address, all)
		}
		if _, _, local := f.config.Local(m.service); local {
			return errLocal
		}
		wait := backoff.Step(round, pauseFirst, pauseMost, 0.5, float64(f.config.Random()>>11)/(1<<53))
		if time.Until(until) < wait {
			return f.notSent(m)
		}
		if err := backoff.Sleep(ctx, wait); errors.Is(err, context.Canceled) {
			return err
		} else if err != nil {
			return f.notSent(m)
		}
	}
}
