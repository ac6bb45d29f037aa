package forward

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// connectWithin bounds the wait for a connection to one member.
	connectWithin = time.Second
	// pauseFirst is the pause before all members are asked again. It doubles, up to pauseMost.
	pauseFirst, pauseMost = 20 * time.Millisecond, 250 * time.Millisecond
	// sparedTime is the part of a call's time that is reserved for the answer, so that the client
	// learns that nothing was sent.
	sparedTime = 100 * time.Millisecond
)

// lane is a set of connections, one to each member.
type lane struct {
	dialer *client.Dialer
	// open counts the calls on the lane. Forwarder.mu guards it.
	open int
}

// enter assigns a lane to a call until leave is called. It takes the fullest lane with free
// capacity, so that lanes which were opened for a peak become empty and are closed.
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

// lastStart returns the time until which a call may be sent to a member. The rest of the call's
// time is reserved for the answer that nothing was sent. The result is zero if the call has no
// deadline.
func lastStart(ctx context.Context) time.Time {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Time{}
	}
	return deadline.Add(-min(sparedTime, max(time.Until(deadline), 0)/2))
}

// connect returns a connection to a member that can be used at once. It waits at most until the
// given time, unless the time is zero.
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

// newStream opens a stream to a member, and sends nothing on it. fate says what an error means. The
// caller calls end when it does not use the stream any more, even after an error.
//
// If a member serves as many calls on the connection as it accepts, the stream waits. So the time
// of the call limits this wait, too.
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
	return stream, end, answered, err // the error is the call's own
}

// rounds asks all members, and again after pauses, until ask reports that it is done. The first
// round begins with the member at the address first, unless first is "". last is lastStart(ctx).
// The error says that nothing was sent, unless the client is gone.
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

// fate says what has happened to a request at a member.
type fate uint8

const (
	// answered: the member has answered, perhaps with an error; or there is no answer, and the request
	// may have been executed.
	answered fate = iota
	// notDone: nothing was done, so another member may be asked.
	notDone
)

// trusted is the codec for calls to members. The number of parts in members' answers is not
// checked, because an accepted request of a client may lead to many parts.
type trusted struct{ wire.Codec }

// Unmarshal implements encoding.CodecV2.
func (c trusted) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return c.Codec.Unmarshal(data, v)
	}
	return proto.Unmarshal(data.Materialize(), m)
}

// maxAnswerBytes limits a message of a member. Servers send no larger ones.
const maxAnswerBytes = 256 << 20

// largest returns the maximum size of a member's answer for a method. An answer that this server
// can never send is not received either, unless the method has an effect, which must always be
// answered.
func (f *Forwarder) largest(m *method) int {
	if m.reads || m.stream {
		return int(min(f.config.Answers.Limit(), maxAnswerBytes))
	}
	return maxAnswerBytes
}

// notSent returns the error for a client when no member could be reached. Clients of etcd for Go
// repeat a call that changes something only after one particular text, which says that the call was
// not sent.
func (f *Forwarder) notSent(m *method) error {
	if m.reads {
		return f.config.Refusal()
	}
	return coordpb.ErrNotSent
}
