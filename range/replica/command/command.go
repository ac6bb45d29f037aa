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

// Dispatch is the way by which a request is served.
type Dispatch uint8

const (
	// NotKnown: this server does not know the command, or the request has none.
	NotKnown Dispatch = iota
	// AtTimestamp: a read, served at a timestamp by a leader that has proved its leadership.
	AtTimestamp
	// InQueue: it is evaluated in its turn, and may add to the next entry of the log.
	InQueue
	// InMemory: it is answered from what the leader has in memory; nothing is proved.
	InMemory
	// ByNode: the node answers it, of several partitions or of none.
	ByNode
)

// Command is what the server knows of one kind of request. There is one value for each kind, made
// when the program starts and never changed. A function that is nil has the answer that its comment
// says.
type Command struct {
	// Name is the label of the command in metrics.
	Name     string
	Dispatch Dispatch
	// Transactional commands are those of the transaction protocol. They look at locks themselves;
	// for the others this is done before they are evaluated.
	Transactional bool
	// Late: it is evaluated although its caller does not wait any longer.
	Late bool
	// BelowPending: a read of the latest value of one key that does not wait for pending writes,
	// which are not acknowledged.
	BelowPending bool
	// Admissible: a read that a leader can admit for another replica (Request.admit).
	Admissible bool
	// EndsLocks: what it waits for is that locks end, and not what comes after.
	EndsLocks bool

	// Lasting: the request may be held until there is something to tell, so that its client is judged
	// again when it is answered.
	Lasting bool

	// Body says whether the request has a command with contents: a client may send one without.
	Body func(*kvpb.Request) bool
	// Open: whatever the request says, it needs no right: it tells nothing about data, and changes
	// nothing.
	Open bool
	// Permissions appends what rights the client needs for the request, which was not looked at
	// before: whatever it reads, writes, locks or tells of. They alias the request. No command is
	// without it.
	Permissions func(at request.Place, q *kvpb.Request, needs []access.Permission) []access.Permission
	// Footprint is what the request reads or writes. Nil: nothing, or of several partitions.
	Footprint func(*kvpb.Request) request.Footprint
	// Named is the wall time of the highest timestamp that the request names, besides that of its
	// session: up to there it brings the clock. Nil: it names none.
	Named func(*kvpb.Request) int64
	// Foreground says that the request counts as load that background work makes way for. Nil: it
	// does not.
	Foreground func(*kvpb.Request) bool

	// CheckRead and CheckWrite say what is wrong with a request by itself, as far as the partition's
	// descriptor tells; nil if nothing is. They return what the request asks for. A command has the
	// one that its Dispatch needs.
	CheckRead  func(*clusterpb.Partition, *kvpb.Request) (Reading, *request.Problem)
	CheckWrite func(*clusterpb.Partition, *kvpb.Request) (Writing, *request.Problem)

	// Read answers a read from the state at its timestamp.
	Read func(*View, *kvpb.Request) (*kvpb.Response, error)
	// Evaluate finds out what comes of a write.
	Evaluate func(*Evaluation, *kvpb.Request) error

	// Alone says that the request is evaluated with no write pending, and has an entry of its own: it
	// reads more of the engine than pending writes can be looked up for. Nil: it is not.
	Alone func(*kvpb.Request) bool
	// Hurried says that others may wait for the request: it acquires volatile locks, or releases
	// them. It is evaluated even if its entry cannot be proposed yet. Nil: it is not.
	Hurried func(*kvpb.Request) bool
	// MayDoNothing says that the request can be answered, for good, without having written anything.
	// Nil: it always writes, or an attempt that comes late does no harm.
	MayDoNothing func(*kvpb.Request) bool

	index int
}

// Index is the command's place in All.
func (c *Command) Index() int { return c.index }

// ReadOnly says that the requests have no effect that others can see, whenever they run.
func (c *Command) ReadOnly() bool {
	return c.Dispatch == AtTimestamp || c.Dispatch == ByNode && c.Named != nil
}

// IsAlone is Alone of a request.
func (c *Command) IsAlone(q *kvpb.Request) bool { return c.Alone != nil && c.Alone(q) }

// IsHurried is Hurried of a request.
func (c *Command) IsHurried(q *kvpb.Request) bool { return c.Hurried != nil && c.Hurried(q) }

// IsForeground is Foreground of a request.
func (c *Command) IsForeground(q *kvpb.Request) bool {
	return c.Foreground != nil && c.Foreground(q)
}

// CanDoNothing is MayDoNothing of a request.
func (c *Command) CanDoNothing(q *kvpb.Request) bool {
	return c.MayDoNothing != nil && c.MayDoNothing(q)
}

// LatestNamed is the wall time of the highest timestamp up to which a request would bring the
// clock.
func (c *Command) LatestNamed(q *kvpb.Request) int64 {
	latest := max(wall(q.Session), wall(q.GetReplicaRead().GetAdmission().GetAt()))
	if c.Named != nil {
		latest = max(latest, c.Named(q))
	}
	return latest
}

func wall(ts *kvpb.Timestamp) int64 { return wire.FromTimestamp(ts).Wall }

// always is for commands of which something holds whatever the request says.
func always(*kvpb.Request) bool { return true }

// Reading is what a read asks for.
type Reading struct {
	// At is the timestamp that the client asked for; zero: the latest.
	At hlc.Timestamp
	// UncertainUntil is the client's uncertainty limit, with At.
	UncertainUntil hlc.Timestamp
	// Context is the request's; nil if it has none.
	Context *kvpb.ReadContext
	// Refresh is set for a refresh, Changes for a read of changes.
	Refresh *Refreshing
	Changes *Changing
}

// Writing is what is known of a write that is valid by itself.
type Writing struct {
	// Size is about how many bytes it adds to an entry.
	Size int
	// Transaction is set if the command is transactional.
	Transaction *Transaction
}

// Transaction is what a request of the transaction protocol says.
type Transaction struct {
	// Info is of the transaction that the request is about; zero if it is about several.
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

// Of is the command of a request: Unknown if the request has none, or one without contents.
func Of(q *kvpb.Request) *Command {
	if c := byType[reflect.TypeOf(q.Command)]; c != nil && c.Body(q) {
		return c
	}
	return unknown
}

// Unknown is the command of requests that this server does not know. Its Dispatch is NotKnown.
func Unknown() *Command { return unknown }

// All are all commands, each at its index.
func All() []*Command { return all }

// CheckAdmission says what is wrong with a read as one that a leader is to admit, or that a replica
// reads by an admission, which then says at what timestamp; nil if nothing is, or it is neither.
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
