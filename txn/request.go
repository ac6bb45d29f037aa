package txn

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// MaxParticipants bounds the participants of a transaction. It equals the number of keys that a
	// transaction may write.
	MaxParticipants = 100_000
	// MaxParticipantBytes bounds the bytes of all participants' keys.
	MaxParticipantBytes = 8 << 20
)

// The requests to a coordinator, checked. They share no memory with the messages. The errors say
// what is wrong with a message; sending the message again fails again.

// End is a checked EndTransaction.
type End struct {
	Transaction Info
	Commit      bool
	// Timestamp is the commit timestamp; zero if Commit is not set.
	Timestamp    hlc.Timestamp
	Participants []Participant
	// Wait asks for commit wait.
	Wait bool
	// Requested is set if an operator requests the abort; never with Commit.
	Requested bool
}

// ParseEnd checks an EndTransaction.
func ParseEnd(q *kvpb.EndTransactionRequest) (*End, error) {
	info, err := ParseInfo(q.GetTransaction())
	if err != nil {
		return nil, err
	}
	e := &End{Transaction: info, Commit: q.Commit, Wait: q.Commit && q.CommitWait,
		Requested: q.Requested}
	bad := func(format string, args ...any) (*End, error) {
		return nil, fmt.Errorf("transaction %s: "+format, append([]any{info.ID}, args...)...)
	}
	if e.Commit && e.Requested {
		return bad("it is to be committed, as a person asks; a person can only abort")
	}
	if e.Commit {
		if e.Timestamp = wire.FromTimestamp(q.CommitTimestamp); e.Timestamp.IsZero() {
			return bad("it is to be committed, without a timestamp")
		}
	}
	if e.Participants, err = parseParticipants(q.Participants); err != nil {
		return bad("%w", err)
	}
	return e, nil
}

// Push is a checked push.
type Push struct {
	Pushee Info
	// Seen is when the pushee's lock was acquired, in nanoseconds since the epoch, by the clock of
	// the leader that acquired it.
	Seen int64
	Kind kvpb.PushRequest_Kind
	// Above is the timestamp above which the pushee is to stay; zero if Kind is not TIMESTAMP.
	Above hlc.Timestamp
	// PusherBegun and Pusher are the age and id of the pusher; zero if the pusher is not a
	// transaction.
	PusherBegun hlc.Timestamp
	Pusher      ID
	// Wanted is the key that the pusher wants, if Kind is ABORT.
	Wanted Wanted
	// Locked is the keyspace of the lock that was met; 0 if unknown.
	Locked keys.KeyspaceID
}

// Heartbeat is a checked heartbeat.
type Heartbeat struct {
	Transaction Info
	// Idle is as in Record.
	Idle time.Duration
}

// ParseHeartbeat checks a heartbeat.
func ParseHeartbeat(q *kvpb.HeartbeatTransactionRequest) (*Heartbeat, error) {
	info, err := ParseInfo(q.GetTransaction())
	if err != nil {
		return nil, err
	}
	h := &Heartbeat{Transaction: info}
	idle := time.Duration(min(q.IdleMicros, uint64(MaxLimit/time.Microsecond))) * time.Microsecond
	if idle > HeartbeatInterval {
		h.Idle = idle.Truncate(time.Millisecond)
	}
	return h, nil
}

// ParsePush checks a push.
func ParsePush(q *kvpb.PushRequest) (*Push, error) {
	info, err := ParseInfo(q.GetPushee())
	if err != nil {
		return nil, err
	}
	p := &Push{Pushee: info, Seen: wire.FromTimestamp(q.Seen).Wall, Kind: q.Kind,
		PusherBegun: wire.FromTimestamp(q.PusherBegun),
		Locked:      keys.KeyspaceID(q.LockedKeyspace)}
	if p.Pusher, err = ParseOptionalID(q.Pusher); err == nil {
		err = p.validate(q)
	}
	if err != nil {
		return nil, fmt.Errorf("push of transaction %s: %w", info.ID, err)
	}
	return p, nil
}

func (p *Push) validate(q *kvpb.PushRequest) error {
	switch {
	case p.Seen == 0:
		// Zero would mean long ago, and abort a transaction that has no record yet.
		return errors.New("it does not say when the transaction was seen")
	case !p.Pusher.IsZero() && p.PusherBegun.IsZero():
		return errors.New("it does not say when the pusher began")
	}
	switch p.Kind {
	case kvpb.PushRequest_STATUS:
	case kvpb.PushRequest_ABORT:
		p.Wanted = parseWanted(q.WantedKeyspace, q.WantedKey)
	case kvpb.PushRequest_TIMESTAMP:
		if p.Above = wire.FromTimestamp(q.Above); p.Above.IsZero() {
			return errors.New("it does not say above which timestamp")
		}
	default:
		return fmt.Errorf("unknown kind %d", p.Kind)
	}
	return nil
}
