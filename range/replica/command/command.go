package command

import (
	"reflect"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// Dispatch says how a request is served.
type Dispatch uint8

const (
	// NotKnown: this server does not know the command, or the request has none.
	NotKnown Dispatch = iota
	// AtTimestamp: a read, served at a timestamp by a leader that has proved its leadership.
	AtTimestamp
	// InQueue: a write; it is evaluated in its turn, and may add to the next entry of the log.
	InQueue
	// InMemory: it is answered from the leader's memory, without proof of leadership.
	InMemory
	// ByNode: the node answers it, from several partitions or from none.
	ByNode
)

// Command describes one kind of request to the server. There is one value for each kind, made when
// the program starts and never changed. For a nil function the comment of its field gives the
// default.
type Command struct {
	// Name is the label of the command in metrics.
	Name     string
	Dispatch Dispatch
	// Transactional commands are those of the transaction protocol. They check locks themselves;
	// for other commands the evaluator checks locks first.
	Transactional bool
	// Late: the request is evaluated although its caller does not wait any longer.
	Late bool
	// BelowPending: a read of the latest value of one key that does not wait for pending writes,
	// which are not acknowledged.
	BelowPending bool
	// Admissible: a read that a leader can admit for another replica (Request.admit).
	Admissible bool
	// EndsLocks: the request waits only for locks to end. Requests that come after it may overtake
	// it in the wait.
	EndsLocks bool

	// Lasting: the request may be held until there is something to answer, so its client's rights
	// are checked again then.
	Lasting bool

	// Body says whether the request's command has contents: a client may send a request without.
	Body func(*kvpb.Request) bool
	// Open: the request needs no right, whatever it contains: it reveals no data, and changes
	// nothing.
	Open bool
	// Permissions appends the rights that the client needs for the request, which is not validated
	// yet: for whatever it reads, writes, locks or reveals. They alias the request. Every command
	// has this function.
	Permissions func(at request.Place, q *kvpb.Request, needs []access.Permission) []access.Permission
	// Footprint returns the keys and spans that the request reads or writes. Nil: none, or keys of
	// several partitions.
	Footprint func(*kvpb.Request) request.Footprint
	// Named returns the wall time of the highest timestamp in the request, besides its session's:
	// the clock is advanced to it. Nil: the request names none.
	Named func(*kvpb.Request) int64
	// Foreground reports whether the request counts as load for which background work makes way.
	// Nil: it does not.
	Foreground func(*kvpb.Request) bool

	// CheckRead and CheckWrite validate a request on its own and against the partition's
	// descriptor; a nil Problem means that it is valid. They also return the parsed request. A
	// command has the one of the two that its Dispatch needs.
	CheckRead  func(*clusterpb.Partition, *kvpb.Request) (Reading, *request.Problem)
	CheckWrite func(*clusterpb.Partition, *kvpb.Request) (Writing, *request.Problem)

	// Read answers a read from the state at its timestamp.
	Read func(*View, *kvpb.Request) (*kvpb.Response, error)
	// Evaluate computes the effect of a write.
	Evaluate func(*Evaluation, *kvpb.Request) error

	// Alone reports whether the request is evaluated with no write pending, and gets a log entry of
	// its own, because it reads more of the engine than can be compared with pending writes. Nil:
	// it is not.
	Alone func(*kvpb.Request) bool
	// Hurried reports whether others may wait for the request, because it acquires or releases
	// volatile locks. It is evaluated even if its entry cannot be proposed yet. Nil: it is not.
	Hurried func(*kvpb.Request) bool
	// MayDoNothing reports whether the request can be answered, for good, without having written
	// anything. Nil: it always writes, or a late attempt does no harm.
	MayDoNothing func(*kvpb.Request) bool

	index int
}

// Index returns the command's place in All.
func (c *Command) Index() int { return c.index }

// ReadOnly reports that the requests have no effect that others can see, whenever they run.
func (c *Command) ReadOnly() bool {
	return c.Dispatch == AtTimestamp || c.Dispatch == ByNode && c.Named != nil
}

// IsAlone calls Alone.
func (c *Command) IsAlone(q *kvpb.Request) bool { return c.Alone != nil && c.Alone(q) }

// IsHurried calls Hurried.
func (c *Command) IsHurried(q *kvpb.Request) bool { return c.Hurried != nil && c.Hurried(q) }

// IsForeground calls Foreground.
func (c *Command) IsForeground(q *kvpb.Request) bool {
	return c.Foreground != nil && c.Foreground(q)
}

// CanDoNothing calls MayDoNothing.
func (c *Command) CanDoNothing(q *kvpb.Request) bool {
	return c.MayDoNothing != nil && c.MayDoNothing(q)
}

// LatestNamed returns the wall time of the highest timestamp to which a request would advance the
// clock.
func (c *Command) LatestNamed(q *kvpb.Request) int64 {
	latest := max(wall(q.Session), wall(q.GetReplicaRead().GetAdmission().GetAt()))
	if c.Named != nil {
		latest = max(latest, c.Named(q))
	}
	return latest
}

func wall(ts *kvpb.Timestamp) int64 { return wire.FromTimestamp(ts).Wall }

// always is a predicate for commands for which it holds whatever the request contains.
func always(*kvpb.Request) bool { return true }

// Reading holds the parameters of a read.
type Reading struct {
	// At is the timestamp of the read; zero: the latest.
	At hlc.Timestamp
	// UncertainUntil is the client's uncertainty limit, if At is set.
	UncertainUntil hlc.Timestamp
	// Context is the request's; nil if it has none.
	Context *kvpb.ReadContext
	// Refresh is set for a refresh, Changes for a read of changes.
	Refresh *Refreshing
	Changes *Changing
}

// Writing holds the parameters of a valid write.
type Writing struct {
	// Size estimates how many bytes the write adds to an entry.
	Size int
	// Transaction is set if the command is transactional.
	Transaction *Transaction
}

// Transaction holds the parameters of a request of the transaction protocol.
type Transaction struct {
	// Info describes the request's transaction; zero if the request is about several.
	Info txn.Info
	// End, Push and Heartbeat are set for requests of these kinds.
	End       *txn.End
	Push      *txn.Push
	Heartbeat *txn.Heartbeat
}

var (
	all     []*Command
	byType  = map[reflect.Type]*Command{}
	unknown = &Command{Name: "unknown"}
)

func init() {
	unknown.index = len(all)
	all = append(all, unknown)
}

// register makes a command known. request is the case of the oneof kvpb.Request.command that
// carries it. It is called when the package's variables are made.
func register(request any, c Command) *Command {
	added := &c
	added.index = len(all)
	all = append(all, added)
	byType[reflect.TypeOf(request)] = added
	return added
}

// Of returns the command of a request: Unknown if the request has none, or one without contents.
func Of(q *kvpb.Request) *Command {
	if c := byType[reflect.TypeOf(q.Command)]; c != nil && c.Body(q) {
		return c
	}
	return unknown
}

// Unknown returns the command of requests that this server does not know. Its Dispatch is NotKnown.
func Unknown() *Command { return unknown }

// All lists all commands, each at its index.
func All() []*Command { return all }

// CheckAdmission validates a read that a leader is to admit for another replica, or that a replica
// serves by such an admission, which then sets its timestamp. It returns nil if the read is valid
// or is neither of the two.
func (c *Command) CheckAdmission(q *kvpb.Request, asked *Reading) *request.Problem {
	by := q.GetReplicaRead().GetAdmission()
	switch {
	case !q.GetAdmit() && by == nil:
		return nil
	case !c.Admissible:
		return request.Invalid(
			"a request of the kind %s cannot be admitted: only reads of keys and spans can",
			c.Name)
	case q.GetAdmit() && q.GetReplicaRead() != nil:
		return request.Invalid(
			"a read is admitted by a leader, or answered by any replica, and not both")
	case len(asked.Context.GetTransaction()) > 0 || asked.Context.GetLeadership() != nil:
		return request.Invalid(
			"a read that is admitted is of no transaction, and under no leadership; its " +
				"context names one")
	case by == nil:
		return nil
	}
	at := wire.FromTimestamp(by.At)
	if at.IsZero() {
		return request.Invalid("the admission of a read has no timestamp")
	}
	asked.At, asked.UncertainUntil, asked.Context = at, wire.FromTimestamp(by.UncertainUntil), nil
	return nil
}
